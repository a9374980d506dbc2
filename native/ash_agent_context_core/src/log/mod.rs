//! What was said.

pub mod call;
pub mod decision;
pub mod done;
pub mod entries;
pub mod ids;
pub mod iteration;
pub mod media;
pub mod message;
pub mod notes;
pub mod once;
pub mod part;
pub mod provider;
pub mod reply;
pub mod results;
pub mod usage;
pub mod wire;
