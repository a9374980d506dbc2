//! The errors of operations, as data.
//!
//! An [`Error`] is why an operation was refused, and a [`Fault`] why a provider's answer cannot be used, which may be an error
//! of an operation too. The [`Reason`] of either is what callers match on, a name and details. A failure is a request that
//! brought no answer, as it is kept with its iteration; [`crate::FailureKind`] sorts failures and faults alike.

use std::borrow::Cow;
use std::fmt;

use crate::fault::Fault;
use crate::reason::{Reason, Unsupported};
use crate::value::Value;

/// A path into a value: keys and 0-based indexes ([`Value::Int`]), outermost first.
pub type Path = Vec<Value>;

/// Returns an index as a step of a path.
pub(crate) fn index(index: usize) -> Value {
    Value::Int(i64::try_from(index).unwrap_or(i64::MAX))
}

/// Reads all elements of a list; an error has the index of the faulty one.
pub(crate) fn each<N, T>(
    items: impl IntoIterator<Item = N>,
    mut read: impl FnMut(N) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let read = |(at, item)| read(item).map_err(|error| error.within(index(at)));
    items.into_iter().enumerate().map(read).collect()
}

/// Declares the errors, each with the name of its reason. Its fields are the details of the reason, in this order.
macro_rules! errors {
    ($($(#[$doc:meta])* $error:ident $({ $($field:ident: $type:ty),* })? = $name:literal,)*) => {
        /// The reason why an operation was refused. Its context is unchanged.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs)] // each error says what its fields are
        pub enum Error {
            $($(#[$doc])* $error $({ $($field: $type),* })?,)*
            /// A response that cannot be added: it failed, or is still open.
            Response(Fault),
        }

        impl Error {
            /// Returns the reason that callers match on. That of [`Self::Response`] is the fault's own.
            #[must_use]
            pub fn reason(&self) -> Reason<'_> {
                let (name, details) = match self {
                    $(Self::$error $({ $($field),* })? => ($name, vec![$($($field.into()),*)?]),)*
                    Self::Response(fault) => return fault.reason(),
                };
                Reason { name, details }
            }
        }
    };
}

errors! {
    /// A result for an id that no call of the current iteration has; `pending` are the ids that wait for one.
    UnknownToolCall { id: Box<str>, pending: Vec<Box<str>> } = "unknown_tool_call",
    /// A result for a call that has one; `pending` are the ids that wait for one.
    ToolCallAlreadyAnswered { id: Box<str>, pending: Vec<Box<str>> } = "tool_call_already_answered",
    /// Two results for the call of this id in one list.
    DuplicateToolResult { id: Box<str> } = "duplicate_tool_result",
    /// An empty list of results, while these ids wait for one.
    NoToolResults { pending: Vec<Box<str>> } = "no_tool_results",
    /// A late result for a call, named by its id or its handle, and why it is not taken: see [`crate::Refusal`].
    LateToolResult { call: Box<str>, why: &'static str } = "late_tool_result",
    /// Results for these ids, although no call waits for one.
    NoPendingToolCalls { given: Vec<Box<str>> } = "no_pending_tool_calls",
    /// A message, or a request, while the calls of these ids wait for their results.
    PendingToolCalls { ids: Vec<Box<str>> } = "pending_tool_calls",
    /// Two calls of one message with this id.
    DuplicateToolCall { id: Box<str> } = "duplicate_tool_call",
    /// A content part, at this 0-based position in its list, whose key is wrong, missing or unknown.
    InvalidPart { position: usize, key: Value } = "invalid_part",
    /// A tool call, at this 0-based position in its list, whose key is wrong or missing.
    InvalidToolCall { position: usize, key: Value } = "invalid_tool_call",
    /// A tool result, at this 0-based position in its list, whose key is wrong or missing.
    InvalidToolResult { position: usize, key: Value } = "invalid_tool_result",
    /// A term of a kind that a context cannot hold, and the path to it.
    UnsupportedTerm { kind: Unsupported, path: Path } = "unsupported_term",
    /// A value with more levels than the limit, [`crate::MAX_DEPTH`].
    TooDeep { limit: usize } = "too_deep",
    /// Foreign data (attributes, snapshots, histories) that cannot be read: the path to what is wrong, and what was expected.
    Invalid { path: Path, expected: Cow<'static, str> } = "invalid",
    /// More bytes to encode than [`crate::Options::most`] allows; everything encoded so far is kept.
    TooMuchWork = "too_much_work",
    /// A field of the caller that would overwrite a field of the request.
    ReservedField { key: Box<str> } = "reserved_field",
    /// A call that cannot take a status, because of the one it has.
    IllegalStatus { id: Box<str>, from: &'static str, to: &'static str } = "illegal_status",
    /// An approval of arguments that the call would not run with, and the paths of the first differences.
    OtherArguments { id: Box<str>, paths: Vec<Path> } = "other_arguments",
    /// A decision about another attempt of a call than the one that an approval would start.
    OtherAttempt { id: Box<str>, attempt: i64 } = "other_attempt",
    /// An answer to the call of this id, which is no question to a person.
    NotAQuestion { id: Box<str> } = "not_a_question",
    /// An approval of the call of this id, which is a question to a person: it needs an answer.
    IsAQuestion { id: Box<str> } = "is_a_question",
    /// A map that is not a report on tokens: the key that is wrong, or nil when no known key is there.
    InvalidUsage { key: Value } = "invalid_usage",
    /// Tokens of a model whose price is not given. The model is there as far as it is known.
    NoPrice { model: Option<Box<str>> } = "no_price",
    /// A report on tokens without a message of the model.
    NoAssistantMessage = "no_assistant_message",
    /// A budget that cannot be met: so many tokens remain when as much as possible is hidden.
    CannotFit { least: u64 } = "cannot_fit",
    /// Pins, by their names, that leave a budget no room: so many tokens remain when as much as possible is hidden.
    PinsTooLong { pins: Vec<Box<str>>, least: u64 } = "pins_too_long",
    /// Something to pin, by its name, that the conversation does not have.
    UnknownPin { pin: Box<str> } = "unknown_pin",
    /// One pin more than the most allowed.
    TooManyPins { most: usize } = "too_many_pins",
    /// Iterations that cannot be compacted: the current turn, pending calls, or iterations that do not exist. The first and
    /// the last of them, and of those that may be, if any.
    NotCompactable { range: (u64, u64), allowed: Option<(u64, u64)> } = "not_compactable",
    /// A summary that is not shorter than the iterations it replaces, in tokens.
    SummaryTooLong { tokens: u64, replaced: u64 } = "summary_too_long",
    /// A Cargo feature that this build of the library left out.
    FeatureMissing { feature: Box<str> } = "feature_missing",
    /// A pattern that is not a regular expression, and the problem in the words of the compiler of patterns.
    InvalidPattern { pattern: Box<str>, problem: Box<str> } = "invalid_pattern",
    /// Text that is not a handle of `recall`.
    UnknownHandle { handle: Box<str> } = "unknown_handle",
    /// A handle of `recall` to a text that is gone, as after a rewind.
    HandleGone { handle: Box<str> } = "handle_gone",
    /// An iteration number that the context does not have; the first and the last that it has.
    UnknownIteration { number: i64, range: (u64, u64) } = "unknown_iteration",
    /// A trace that would have more than the most bytes allowed.
    TraceTooLarge { most: usize } = "trace_too_large",
}

impl Error {
    /// Makes an error for an unexpected value at this path.
    pub(crate) fn invalid(path: Path, expected: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid {
            path,
            expected: expected.into(),
        }
    }

    /// Makes an error for an unexpected value.
    pub(crate) fn expected(expected: impl Into<Cow<'static, str>>) -> Self {
        Self::invalid(Path::new(), expected)
    }

    /// Returns the same error, seen from one level further out in a document.
    #[must_use]
    pub fn within(self, step: Value) -> Self {
        match self.in_document() {
            Self::UnsupportedTerm { kind, mut path } => {
                path.insert(0, step); // paths are a few hundred steps at most
                Self::UnsupportedTerm { kind, path }
            }
            Self::Invalid { mut path, expected } => {
                path.insert(0, step);
                Self::Invalid { path, expected }
            }
            other => other,
        }
    }

    /// Turns an error of an element of a list into one with a path.
    fn in_document(self) -> Self {
        let (position, key, place) = match self {
            Self::InvalidPart { position, key } => (position, key, "a content part"),
            Self::InvalidToolCall { position, key } => (position, key, "a tool call"),
            Self::DuplicateToolCall { id } => {
                let expected =
                    format!("tool call ids that differ within a message, not {id:?} twice");
                return Self::expected(expected);
            }
            other => return other,
        };
        let expected = format!("another value in {place}");
        Self::invalid(vec![index(position), key], expected)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason().fmt(f)
    }
}

impl std::error::Error for Error {}
