//! What happens while a response comes in.

use crate::call::ToolCall;
use crate::part::Part;
use crate::usage::Usage;

use super::fault::Fault;

/// Something new in a response, for people who watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// More of a text.
    Text {
        /// The 0-based position of the part among the message's parts.
        part: usize,
        /// What came, whole characters.
        text: Box<str>,
    },
    /// More of the model's reasoning.
    Thinking {
        /// The 0-based position of the part among the message's parts.
        part: usize,
        /// What came, whole characters.
        text: Box<str>,
    },
    /// A call whose arguments are to come.
    CallStarted {
        /// The 0-based position of the call among the message's calls.
        position: usize,
        /// The tool's name.
        name: Box<str>,
    },
    /// More of the text of a call's arguments.
    CallArguments {
        /// The 0-based position of the call among the message's calls.
        position: usize,
        /// What came.
        json: Box<str>,
    },
    /// A complete call.
    Call(ToolCall),
    /// A part that came as a whole.
    Part(Part),
    /// What the provider counted so far.
    Usage(Usage),
    /// Why the model stopped.
    Finish(Finish),
    /// Why the response failed; nothing comes after it.
    Error(Fault),
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// It said what it had to say.
    Stop,
    /// It wants tools to be run.
    ToolCalls,
    /// It reached a limit of tokens.
    Length,
    /// A filter of the provider stopped it.
    ContentFilter,
    /// It does not want to answer.
    Refusal,
    /// It goes on when it is asked again with what it said.
    Pause,
    /// Something went wrong.
    Error,
}

impl Finish {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Stop,
        Self::ToolCalls,
        Self::Length,
        Self::ContentFilter,
        Self::Refusal,
        Self::Pause,
        Self::Error,
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::ContentFilter => "content_filter",
            Self::Refusal => "refusal",
            Self::Pause => "pause",
            Self::Error => "error",
        }
    }

    /// The reason of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Whether the model stopped in the middle of something.
    pub(crate) const fn breaks_off(self) -> bool {
        matches!(self, Self::Length | Self::ContentFilter | Self::Error)
    }
}
