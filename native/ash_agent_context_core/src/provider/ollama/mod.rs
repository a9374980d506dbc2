//! Ollama chat.

pub mod facts;
mod read;
mod response;
mod write;

pub(crate) struct Room;
