//! Ollama chat.

pub mod facts;
mod read;
mod response;
mod usage;
mod write;

/// The room of this provider.
pub(crate) struct Room;
