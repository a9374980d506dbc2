//! The facts about OpenAI Chat Completions, which are those of the chat dialect.

pub(crate) use crate::provider::dialect::facts::CHAT as FACTS;
