//! Anthropic Messages.

pub mod facts;
mod read;
mod response;
mod usage;
mod write;

/// Holds what a call says beside its arguments, and wants to be said again: who made it and of which set its tool is.
const CALLED: [&str; 2] = ["caller", "toolset_name"];

/// The room of this provider.
pub(crate) struct Room;
