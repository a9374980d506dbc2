//! Trajectories in ATIF, the Agent Trajectory Interchange Format.
//!
//! A result stands in the step of its call there, too. Data that the format has no fields for stands beside it, under
//! [`OWN`] in `extra`, where others leave it alone and [`read`] finds it.

mod part;
pub mod read;
pub mod write;

/// The key of what is ours in `extra`.
const OWN: &str = "ash_agent_context";

/// Images that the format has.
const IMAGES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];
