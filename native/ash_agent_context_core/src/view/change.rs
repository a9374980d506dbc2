//! Describes what is sent in another way than it is kept.

/// Something that is sent in another way than it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Says what was done.
    pub what: ChangeKind,
    /// Says what it is in the conversation.
    pub from: String,
    /// Holds what is sent for it; `None` when nothing is.
    pub to: Option<String>,
}

/// The kinds of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// The id of a call.
    RenamedId,
    /// The name of a tool.
    RenamedTool,
    /// Arguments that are not an object stand in one.
    WrappedArguments,
    /// Thinking became text.
    ThinkingToText,
    /// Thinking was left out.
    DroppedThinking,
    /// A part was left out.
    DroppedPart,
    /// A text that says nothing was left out.
    DroppedBlankText,
    /// Bytes that are not valid UTF-8 were replaced.
    ReplacedBytes,
    /// A part of a result stands in a message after all results, or thinking before other words.
    MovedPart,
    /// A call stands after something that the model said after it.
    MovedCall,
    /// The view hides iterations.
    HiddenIterations,
    /// The view shows a summary instead of iterations.
    SummarizedIterations,
    /// The view blanks a result.
    ClearedResult,
    /// The view shortens a result.
    ShortenedResult,
    /// The view masks texts.
    MaskedText,
    /// A part became text.
    PartToText,
    /// A message of which nothing is left was left out.
    DroppedMessage,
    /// A call of a kind that the provider does not know became one of a function.
    CallToFunction,
    /// A user message stands where the provider wants one and there is none.
    AddedMessage,
}
