//! Ollama chat.
pub(crate) mod response;
