//! Gemini generateContent.

pub mod facts;
mod paths;
mod read;
mod response;
mod write;

pub(crate) struct Room;
