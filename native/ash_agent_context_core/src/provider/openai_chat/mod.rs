//! OpenAI Chat Completions and the servers that speak it.

mod beside;
pub mod facts;
mod read;
mod write;

pub(crate) struct Room;

impl crate::provider::dialect::chat::response::Completions for Room {}
