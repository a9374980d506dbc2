//! Changes: things that are sent in another form than they are kept in.

use crate::value::word::words;

/// Something that is sent in another form than it is kept in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The kind of change.
    pub what: ChangeKind,
    /// A short description of the thing as the conversation has it.
    pub from: String,
    /// The form that is sent; `None` when nothing is.
    pub to: Option<String>,
}

words! {
    /// The kinds of changes.
    pub enum ChangeKind {
        /// The id of a call.
        RenamedId = "renamed_id",
        /// The name of a tool.
        RenamedTool = "renamed_tool",
        /// Arguments that are not an object stand in one.
        WrappedArguments = "wrapped_arguments",
        /// Thinking became text.
        ThinkingToText = "thinking_to_text",
        /// Thinking was left out.
        DroppedThinking = "dropped_thinking",
        /// A part was left out.
        DroppedPart = "dropped_part",
        /// A text that says nothing was left out.
        DroppedBlankText = "dropped_blank_text",
        /// Bytes that are not valid UTF-8 were replaced.
        ReplacedBytes = "replaced_bytes",
        /// A part of a result stands in a message after all results, or thinking before other words.
        MovedPart = "moved_part",
        /// A call stands after something that the model said after it.
        MovedCall = "moved_call",
        /// The view hides iterations.
        HiddenIterations = "hidden_iterations",
        /// The view shows a summary instead of iterations.
        SummarizedIterations = "summarized_iterations",
        /// The view blanks a result.
        ClearedResult = "cleared_result",
        /// The view shortens a result.
        ShortenedResult = "shortened_result",
        /// The view masks texts.
        MaskedText = "masked_text",
        /// The media type of a part is that of its bytes, which is another one than was given.
        CorrectedType = "corrected_type",
        /// A part became text.
        PartToText = "part_to_text",
        /// A result that is an object became text, since the provider would misread it.
        ResultToText = "result_to_text",
        /// A text has what only the frame of a late result may have, and it was escaped.
        EscapedFrame = "escaped_frame",
        /// A number that no float can hold became text.
        NumberToText = "number_to_text",
        /// A message of which nothing is left was left out.
        DroppedMessage = "dropped_message",
        /// A call of a kind that the provider does not know became one of a function.
        CallToFunction = "call_to_function",
        /// A user message stands where the provider wants one and there is none.
        AddedMessage = "added_message",
    }
}
