//! The chat dialect: OpenAI's Chat Completions, and what others made of it.

mod leftovers;
pub mod read;
pub mod reasoning;
pub mod response;
pub mod thought;
pub mod write;
