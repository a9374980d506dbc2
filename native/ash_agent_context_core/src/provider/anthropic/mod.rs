//! Anthropic Messages.

pub mod facts;
mod read;
mod response;
mod write;

/// The fields of a call beside its arguments that go back with it: who made it, and from which set its tool is.
const CALLED: [&str; 2] = ["caller", "toolset_name"];

pub(crate) struct Room;
