//! What is true of OpenAI Chat Completions: what the chat dialect says.

pub(crate) use crate::provider::dialect::facts::CHAT as FACTS;
