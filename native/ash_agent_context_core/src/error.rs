//! The errors of operations, as data.

use std::borrow::Cow;
use std::fmt;

use crate::fault::Fault;
use crate::reason::{Detail, Reason};
use crate::value::word::words;
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

/// The reason why an operation was refused. Its context is unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A result for an id that no call of the current iteration has.
    UnknownToolCall {
        /// The id of the result.
        id: Box<str>,
        /// The ids that wait for a result.
        pending: Vec<Box<str>>,
    },
    /// A result for a call that has one.
    ToolCallAlreadyAnswered {
        /// The id of the result.
        id: Box<str>,
        /// The ids that wait for a result.
        pending: Vec<Box<str>>,
    },
    /// Two results for one call in one list.
    DuplicateToolResult {
        /// The id that stands twice.
        id: Box<str>,
    },
    /// An empty list of results.
    NoToolResults {
        /// The ids that wait for a result.
        pending: Vec<Box<str>>,
    },
    /// Results although no call waits for one.
    NoPendingToolCalls {
        /// The ids of the results.
        given: Vec<Box<str>>,
    },
    /// A message, or a request, while calls wait for their results.
    PendingToolCalls {
        /// The ids that wait for a result.
        ids: Vec<Box<str>>,
    },
    /// Two calls of one message with the same id.
    DuplicateToolCall {
        /// The id that stands twice.
        id: Box<str>,
    },
    /// A content part that is not as the documentation says.
    InvalidPart {
        /// 0-based position in the list of parts.
        position: usize,
        /// The key that is wrong, missing or unknown.
        key: Value,
    },
    /// A tool call that is not as the documentation says.
    InvalidToolCall {
        /// 0-based position in the list of calls.
        position: usize,
        /// The key that is wrong or missing.
        key: Value,
    },
    /// A tool result that is not as the documentation says.
    InvalidToolResult {
        /// 0-based position in the list of results.
        position: usize,
        /// The key that is wrong or missing.
        key: Value,
    },
    /// A term that a context cannot hold.
    UnsupportedTerm {
        /// The kind of term.
        kind: Unsupported,
        /// The path to it.
        path: Path,
    },
    /// A value with more than [`crate::MAX_DEPTH`] levels.
    TooDeep {
        /// The number of levels allowed.
        limit: usize,
    },
    /// Foreign data (attributes, snapshots, histories) that cannot be read.
    Invalid {
        /// The path to the fault.
        path: Path,
        /// A description of the expected value.
        expected: Cow<'static, str>,
    },
    /// More bytes to encode than [`crate::Options::most`] allows; everything encoded so far is kept.
    TooMuchWork,
    /// A field of the caller that would overwrite a field of the request.
    ReservedField {
        /// The field's key.
        key: Box<str>,
    },
    /// A call that cannot take a status, because of the one it has.
    IllegalStatus {
        /// The id of the call.
        id: Box<str>,
        /// Its present status.
        from: &'static str,
        /// The status that it cannot take.
        to: &'static str,
    },
    /// An approval of arguments that the call would not run with.
    OtherArguments {
        /// The id of the call.
        id: Box<str>,
        /// The paths of the first differences.
        paths: Vec<Path>,
    },
    /// A map that is not a report on tokens.
    InvalidUsage {
        /// The key that is wrong; nil when no known key is there.
        key: Value,
    },
    /// Tokens of a model whose price is not given.
    NoPrice {
        /// The model, as far as it is known.
        model: Option<Box<str>>,
    },
    /// A report on tokens without a message of the model.
    NoAssistantMessage,
    /// A budget that cannot be met.
    CannotFit {
        /// The tokens that remain when as much as possible is hidden.
        least: u64,
    },
    /// Pins that leave a budget no room.
    PinsTooLong {
        /// Their names.
        pins: Vec<Box<str>>,
        /// The tokens that remain when as much as possible is hidden.
        least: u64,
    },
    /// Something to pin that the conversation does not have.
    UnknownPin {
        /// Its name.
        pin: Box<str>,
    },
    /// One pin too many.
    TooManyPins {
        /// The most pins allowed.
        most: usize,
    },
    /// Iterations that cannot be compacted: the current turn, pending calls, or iterations that do not exist.
    NotCompactable {
        /// The number of the first.
        first: u64,
        /// The number of the last.
        last: u64,
        /// The numbers that may be compacted, if any.
        allowed: Option<(u64, u64)>,
    },
    /// A summary that is not shorter than the iterations it replaces.
    SummaryTooLong {
        /// Its tokens.
        tokens: u64,
        /// The tokens of those iterations.
        replaced: u64,
    },
    /// A feature that this build of the library left out.
    FeatureMissing {
        /// The Cargo feature to enable.
        feature: &'static str,
    },
    /// A pattern that is not a regular expression.
    InvalidPattern {
        /// The pattern.
        pattern: Box<str>,
        /// The problem, in the words of the compiler of patterns.
        problem: Box<str>,
    },
    /// Text that is not a handle.
    UnknownHandle {
        /// The text.
        handle: Box<str>,
    },
    /// A handle to a text that is gone, as after a rewind.
    HandleGone {
        /// The handle.
        handle: Box<str>,
    },
    /// A response that cannot be added: it failed, or is still open.
    Response(Fault),
    /// An iteration number that the context does not have.
    UnknownIteration {
        /// The number asked for.
        number: i64,
        /// The number of the first iteration.
        first: u64,
        /// The number of the last iteration.
        last: u64,
    },
    /// A trace that would have too many bytes.
    TraceTooLarge {
        /// The most bytes that it may have.
        most: usize,
    },
}

words! {
    /// Terms that cannot be stored.
    pub enum Unsupported {
        /// A list whose tail is not a list.
        ImproperList = "improper_list",
        /// A bitstring whose size is not a multiple of 8.
        Bitstring = "bitstring",
    }
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

    /// Returns the reason that callers match on. That of [`Self::Response`] is the fault's own.
    #[must_use]
    pub fn reason(&self) -> Reason<'_> {
        use Detail::{Count, Number, Path, Paths, Range, Texts, Value, Word};
        let (text, count) = (Detail::text, Detail::count);
        let range = |(first, last)| Range(first, last);
        let (name, details) = match self {
            Self::UnknownToolCall { id, pending } => {
                ("unknown_tool_call", vec![text(id), Texts(pending)])
            }
            Self::ToolCallAlreadyAnswered { id, pending } => {
                ("tool_call_already_answered", vec![text(id), Texts(pending)])
            }
            Self::DuplicateToolResult { id } => ("duplicate_tool_result", vec![text(id)]),
            Self::NoToolResults { pending } => ("no_tool_results", vec![Texts(pending)]),
            Self::NoPendingToolCalls { given } => ("no_pending_tool_calls", vec![Texts(given)]),
            Self::PendingToolCalls { ids } => ("pending_tool_calls", vec![Texts(ids)]),
            Self::DuplicateToolCall { id } => ("duplicate_tool_call", vec![text(id)]),
            Self::InvalidPart { position, key } => {
                ("invalid_part", vec![count(*position), Value(key)])
            }
            Self::InvalidToolCall { position, key } => {
                ("invalid_tool_call", vec![count(*position), Value(key)])
            }
            Self::InvalidToolResult { position, key } => {
                ("invalid_tool_result", vec![count(*position), Value(key)])
            }
            Self::UnsupportedTerm { kind, path } => {
                ("unsupported_term", vec![Word(kind.name()), Path(path)])
            }
            Self::TooDeep { limit } => ("too_deep", vec![count(*limit)]),
            Self::Invalid { path, expected } => ("invalid", vec![Path(path), text(expected)]),
            Self::TooMuchWork => ("too_much_work", Vec::new()),
            Self::ReservedField { key } => ("reserved_field", vec![text(key)]),
            Self::IllegalStatus { id, from, to } => {
                ("illegal_status", vec![text(id), Word(from), Word(to)])
            }
            Self::OtherArguments { id, paths } => ("other_arguments", vec![text(id), Paths(paths)]),
            Self::InvalidUsage { key } => ("invalid_usage", vec![Value(key)]),
            Self::NoPrice { model } => {
                ("no_price", vec![Detail::text_or_nothing(model.as_deref())])
            }
            Self::NoAssistantMessage => ("no_assistant_message", Vec::new()),
            Self::PinsTooLong { pins, least } => {
                ("pins_too_long", vec![Texts(pins), Count(*least)])
            }
            Self::UnknownPin { pin } => ("unknown_pin", vec![text(pin)]),
            Self::TooManyPins { most } => ("too_many_pins", vec![count(*most)]),
            Self::CannotFit { least } => ("cannot_fit", vec![Count(*least)]),
            Self::NotCompactable {
                first,
                last,
                allowed,
            } => (
                "not_compactable",
                vec![Range(*first, *last), allowed.map_or(Detail::Nothing, range)],
            ),
            Self::SummaryTooLong { tokens, replaced } => {
                ("summary_too_long", vec![Count(*tokens), Count(*replaced)])
            }
            Self::FeatureMissing { feature } => ("feature_missing", vec![text(feature)]),
            Self::InvalidPattern { pattern, problem } => {
                ("invalid_pattern", vec![text(pattern), text(problem)])
            }
            Self::UnknownHandle { handle } => ("unknown_handle", vec![text(handle)]),
            Self::HandleGone { handle } => ("handle_gone", vec![text(handle)]),
            Self::Response(fault) => return fault.reason(),
            Self::UnknownIteration {
                number,
                first,
                last,
            } => (
                "unknown_iteration",
                vec![Number(*number), Range(*first, *last)],
            ),
            Self::TraceTooLarge { most } => ("trace_too_large", vec![count(*most)]),
        };
        Reason::new(name, details)
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
