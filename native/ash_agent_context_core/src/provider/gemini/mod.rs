//! Gemini generateContent.
pub(crate) mod response;
mod paths;
