//! Bedrock Converse.
pub(crate) mod response;
