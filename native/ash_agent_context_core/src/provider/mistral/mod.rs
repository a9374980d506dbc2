//! Mistral chat completions: OpenAI's shape with rules of its own.

pub mod facts;
mod write;

use crate::log::provider::Provider;
use crate::provider::dialect::chat::read::{ChatDialect, Completions};

pub(crate) struct Room;

impl Completions for Room {
    const DIALECT: ChatDialect = ChatDialect {
        provider: Provider::Mistral,
        empty_calls: true,
    };
}
