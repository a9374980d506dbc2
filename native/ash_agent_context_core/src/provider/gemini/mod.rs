//! Gemini generateContent.

mod accepts;
mod output;
mod paths;
mod read;
mod response;
mod usage;
mod write;

/// The room of this provider.
pub(crate) struct Room;
