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
    ($($(#[$doc:meta])* $error:ident $({ $($(#[$about:meta])* $field:ident: $type:ty,)* })? = $name:literal,)*) => {
        /// The reason why an operation was refused. Its context is unchanged.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Error {
            $($(#[$doc])* $error $({ $($(#[$about])* $field: $type,)* })?,)*
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
    /// A result for an id that no call of the current iteration has.
    UnknownToolCall {
        /// The id of the result.
        id: Box<str>,
        /// The ids that wait for a result.
        pending: Vec<Box<str>>,
    } = "unknown_tool_call",
    /// A result for a call that has one.
    ToolCallAlreadyAnswered {
        /// The id of the result.
        id: Box<str>,
        /// The ids that wait for a result.
        pending: Vec<Box<str>>,
    } = "tool_call_already_answered",
    /// Two results for one call in one list.
    DuplicateToolResult {
        /// The id that stands twice.
        id: Box<str>,
    } = "duplicate_tool_result",
    /// An empty list of results.
    NoToolResults {
        /// The ids that wait for a result.
        pending: Vec<Box<str>>,
    } = "no_tool_results",
    /// Results although no call waits for one.
    NoPendingToolCalls {
        /// The ids of the results.
        given: Vec<Box<str>>,
    } = "no_pending_tool_calls",
    /// A message, or a request, while calls wait for their results.
    PendingToolCalls {
        /// The ids that wait for a result.
        ids: Vec<Box<str>>,
    } = "pending_tool_calls",
    /// Two calls of one message with the same id.
    DuplicateToolCall {
        /// The id that stands twice.
        id: Box<str>,
    } = "duplicate_tool_call",
    /// A content part that is not as the documentation says.
    InvalidPart {
        /// 0-based position in the list of parts.
        position: usize,
        /// The key that is wrong, missing or unknown.
        key: Value,
    } = "invalid_part",
    /// A tool call that is not as the documentation says.
    InvalidToolCall {
        /// 0-based position in the list of calls.
        position: usize,
        /// The key that is wrong or missing.
        key: Value,
    } = "invalid_tool_call",
    /// A tool result that is not as the documentation says.
    InvalidToolResult {
        /// 0-based position in the list of results.
        position: usize,
        /// The key that is wrong or missing.
        key: Value,
    } = "invalid_tool_result",
    /// A term that a context cannot hold.
    UnsupportedTerm {
        /// The kind of term.
        kind: Unsupported,
        /// The path to it.
        path: Path,
    } = "unsupported_term",
    /// A value with more than [`crate::MAX_DEPTH`] levels.
    TooDeep {
        /// The number of levels allowed.
        limit: usize,
    } = "too_deep",
    /// Foreign data (attributes, snapshots, histories) that cannot be read.
    Invalid {
        /// The path to the fault.
        path: Path,
        /// A description of the expected value.
        expected: Cow<'static, str>,
    } = "invalid",
    /// More bytes to encode than [`crate::Options::most`] allows; everything encoded so far is kept.
    TooMuchWork = "too_much_work",
    /// A field of the caller that would overwrite a field of the request.
    ReservedField {
        /// The field's key.
        key: Box<str>,
    } = "reserved_field",
    /// A call that cannot take a status, because of the one it has.
    IllegalStatus {
        /// The id of the call.
        id: Box<str>,
        /// Its present status.
        from: &'static str,
        /// The status that it cannot take.
        to: &'static str,
    } = "illegal_status",
    /// An approval of arguments that the call would not run with.
    OtherArguments {
        /// The id of the call.
        id: Box<str>,
        /// The paths of the first differences.
        paths: Vec<Path>,
    } = "other_arguments",
    /// A map that is not a report on tokens.
    InvalidUsage {
        /// The key that is wrong; nil when no known key is there.
        key: Value,
    } = "invalid_usage",
    /// Tokens of a model whose price is not given.
    NoPrice {
        /// The model, as far as it is known.
        model: Option<Box<str>>,
    } = "no_price",
    /// A report on tokens without a message of the model.
    NoAssistantMessage = "no_assistant_message",
    /// A budget that cannot be met.
    CannotFit {
        /// The tokens that remain when as much as possible is hidden.
        least: u64,
    } = "cannot_fit",
    /// Pins that leave a budget no room.
    PinsTooLong {
        /// Their names.
        pins: Vec<Box<str>>,
        /// The tokens that remain when as much as possible is hidden.
        least: u64,
    } = "pins_too_long",
    /// Something to pin that the conversation does not have.
    UnknownPin {
        /// Its name.
        pin: Box<str>,
    } = "unknown_pin",
    /// One pin too many.
    TooManyPins {
        /// The most pins allowed.
        most: usize,
    } = "too_many_pins",
    /// Iterations that cannot be compacted: the current turn, pending calls, or iterations that do not exist.
    NotCompactable {
        /// The first and the last.
        range: (u64, u64),
        /// The first and the last that may be compacted, if any.
        allowed: Option<(u64, u64)>,
    } = "not_compactable",
    /// A summary that is not shorter than the iterations it replaces.
    SummaryTooLong {
        /// Its tokens.
        tokens: u64,
        /// The tokens of those iterations.
        replaced: u64,
    } = "summary_too_long",
    /// A feature that this build of the library left out.
    FeatureMissing {
        /// The Cargo feature to enable.
        feature: Box<str>,
    } = "feature_missing",
    /// A pattern that is not a regular expression.
    InvalidPattern {
        /// The pattern.
        pattern: Box<str>,
        /// The problem, in the words of the compiler of patterns.
        problem: Box<str>,
    } = "invalid_pattern",
    /// Text that is not a handle.
    UnknownHandle {
        /// The text.
        handle: Box<str>,
    } = "unknown_handle",
    /// A handle to a text that is gone, as after a rewind.
    HandleGone {
        /// The handle.
        handle: Box<str>,
    } = "handle_gone",
    /// An iteration number that the context does not have.
    UnknownIteration {
        /// The number asked for.
        number: i64,
        /// The first and the last iteration.
        range: (u64, u64),
    } = "unknown_iteration",
    /// A trace that would have too many bytes.
    TraceTooLarge {
        /// The most bytes that it may have.
        most: usize,
    } = "trace_too_large",
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
