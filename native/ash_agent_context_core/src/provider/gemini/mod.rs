//! Gemini generateContent.

pub mod facts;
mod paths;
mod read;
mod response;
mod usage;
mod write;

/// The room of this provider.
pub(crate) struct Room;
