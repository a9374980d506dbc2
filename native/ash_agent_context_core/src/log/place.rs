//! The places of content, which decide about its parts.

/// The place of content; it decides which parts are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the system prompt: text, and blocks of providers.
    System,
    /// In a user message.
    User,
    /// In an assistant message.
    Assistant,
    /// In a tool result.
    Result,
}
