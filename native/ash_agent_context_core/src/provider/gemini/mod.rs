//! Gemini generateContent.

pub mod facts;
mod read;
mod response;
mod write;

pub(crate) struct Room;
