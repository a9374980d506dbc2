//! OpenAI Responses.
pub(crate) mod response;
