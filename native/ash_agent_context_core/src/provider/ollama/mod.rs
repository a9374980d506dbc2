//! Ollama chat.

pub mod facts;
mod read;
mod response;
mod usage;
mod write;

pub(crate) struct Room;
