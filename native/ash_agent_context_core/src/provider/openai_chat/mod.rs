//! OpenAI Chat Completions and the servers that speak it.

pub mod beside;
pub mod facts;
mod write;

use crate::log::provider::Provider;
use crate::provider::dialect::chat::read::Completions;

pub(crate) struct Room;

impl Completions for Room {
    const PROVIDER: Provider = Provider::OpenAiChat;
}
