//! Mistral chat completions: OpenAI's shape with rules of its own.

pub mod facts;
mod write;

use crate::log::provider::Provider;
use crate::provider::dialect::chat::read::Completions;

pub(crate) struct Room;

impl Completions for Room {
    const PROVIDER: Provider = Provider::Mistral;
}
