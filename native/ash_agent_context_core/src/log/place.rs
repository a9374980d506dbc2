//! Where content stands.

/// Where content stands; it decides which parts it may have.
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
