//! What is sent in another way than it is kept.

/// Something that is sent in another way than it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What was done, such as `renamed_id`.
    pub what: &'static str,
    /// What it is in the conversation.
    pub from: String,
    /// What is sent for it; `None` when nothing is.
    pub to: Option<String>,
}
