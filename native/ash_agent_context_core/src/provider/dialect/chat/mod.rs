//! The chat dialect: OpenAI's Chat Completions, and the variants of others.

pub mod read;
pub mod response;
pub mod write;
