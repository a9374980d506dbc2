//! OpenAI Chat Completions and the servers that speak it.

mod beside;
pub mod facts;
mod write;

use crate::provider::dialect::chat::read::{ChatDialect, Completions, OPENAI};

pub(crate) struct Room;

impl Completions for Room {
    const DIALECT: ChatDialect = OPENAI;
}
