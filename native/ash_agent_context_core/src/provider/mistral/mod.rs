//! Mistral chat completions: OpenAI's shape with rules of its own.

pub mod facts;
mod read;
mod write;

pub(crate) struct Room;

impl crate::provider::dialect::chat::response::Completions for Room {}
