//! OpenAI Chat Completions and the servers that speak it.

mod accepts;
mod read;
mod response;
mod usage;
mod write;

/// The room of this provider.
pub(crate) struct Room;
