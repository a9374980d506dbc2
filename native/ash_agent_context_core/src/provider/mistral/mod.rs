//! Mistral chat completions: OpenAI's shape with rules of its own.

mod accepts;
mod output;
mod read;
mod write;

/// The room of this provider.
pub(crate) struct Room;

impl crate::provider::dialect::chat::response::Completions for Room {}
