//! Anthropic Messages.
pub(crate) mod response;
