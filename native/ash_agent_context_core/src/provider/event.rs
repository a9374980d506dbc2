//! Says what happens while a response comes in.

use crate::log::call::ToolCall;
use crate::log::part::Part;
use crate::prices::bill::Report;

use crate::fault::Fault;
use crate::log::reply::Finish;

/// Something new in a response, for people who watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// More of a text.
    Text {
        /// The 0-based position of the part among the message's parts.
        part: usize,
        /// Holds what came, whole characters.
        text: Box<str>,
    },
    /// More of the model's reasoning.
    Thinking {
        /// The 0-based position of the part among the message's parts.
        part: usize,
        /// Holds what came, whole characters.
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
        /// Holds what came.
        json: Box<str>,
    },
    /// A complete call.
    Call(ToolCall),
    /// A part that came as a whole.
    Part(Part),
    /// Stands for what the provider counted so far.
    Usage(Report),
    /// Why the model stopped.
    Finish(Finish),
    /// Why the response failed; nothing comes after it.
    Error(Fault),
}
