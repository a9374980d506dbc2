//! Mistral chat completions.
pub(crate) mod response;
