//! OpenAI Chat Completions and the servers that speak it.

mod accepts;
mod beside;
mod output;
mod read;
mod write;

/// The room of this provider.
pub(crate) struct Room;

impl crate::provider::dialect::chat::response::Completions for Room {}
