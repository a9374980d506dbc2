//! The events of a response that is coming in.

use crate::log::call::ToolCall;
use crate::log::part::Part;
use crate::prices::bill::Report;

use crate::fault::Fault;
use crate::log::reply::Finish;

/// A change of a response, for people who watch it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// More of a text.
    Text {
        /// The 0-based position of the part among the message's parts.
        part: usize,
        /// The new text: whole characters.
        text: Box<str>,
    },
    /// More of the model's reasoning.
    Thinking {
        /// The 0-based position of the part among the message's parts.
        part: usize,
        /// The new text: whole characters.
        text: Box<str>,
    },
    /// A call began; its arguments are to come.
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
        /// The new text.
        json: Box<str>,
    },
    /// A complete call.
    Call(ToolCall),
    /// A part that came as a whole.
    Part(Part),
    /// The provider's count so far.
    Usage(Report),
    /// The reason why the model stopped.
    Finish(Finish),
    /// The reason why the response failed. No event follows it.
    Error(Fault),
}
