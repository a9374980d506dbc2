//! One room a provider.

pub mod anthropic;
pub mod bedrock;
pub mod gemini;
pub mod media;
pub mod mistral;
pub mod ollama;
pub mod openai_chat;
pub mod openai_responses;
pub mod out;
pub mod patterns;
pub mod text;
