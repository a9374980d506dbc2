//! The weights of NIFs: the data that their work grows with, and its cost.

use ash_agent_context_core::{Context, Cost};
use rustler::Term;

use crate::argument::Argument;
use crate::error::NifError;
use crate::response::received;
use crate::scheduler::Scheduler;

/// The data that the work of a NIF grows with. Arguments are counted as they are read, see `argument.rs`.
#[derive(Debug, Clone, Copy)]
pub enum Weight {
    /// None. `Native` returns the bare fact, for it cannot be refused.
    Constant,
    /// Only its arguments.
    Arguments,
    /// Its function weighs the data itself, by [`Scheduler::allow`].
    Own,
    /// Any: it takes long or is rare, and never runs on a normal scheduler.
    Long,
    /// The bytes that a response received.
    Received,
    /// The calls of the last message.
    Calls,
    /// The current iteration.
    Iteration,
    /// The log, which is searched.
    Log,
    /// The iterations that a view covers.
    View,
    /// The system prompt and the texts that the view puts after it.
    Prompt,
    /// The metadata.
    Metadata,
    /// All data, which is copied or compared.
    Whole,
    /// The messages that are handed out or walked as the view shows them.
    Messages,
    /// All texts as the view shows them.
    Texts,
    /// All texts, which are searched for words.
    Words,
    /// The facts that are found in all texts.
    Facts,
}

impl Weight {
    /// Returns the cost of this data for the NIF's first argument.
    pub fn cost(self, first: Option<&Term<'_>>) -> Result<Cost, NifError> {
        let first = || first.copied().ok_or(NifError::Raise);
        let context = || <&Context>::read(first()?, Scheduler::Dirty);
        Ok(match self {
            Self::Constant | Self::Arguments | Self::Own => Cost::default(),
            Self::Long => Cost::LONG,
            Self::Received => received(Argument::read(first()?, Scheduler::Dirty)?).into(),
            Self::Calls => context()?.append_cost(),
            Self::Iteration => context()?.current().size().into(),
            Self::Log => context()?.find_call_cost(),
            Self::View => context()?.view_cost(),
            Self::Prompt => context()?.system_prompt_cost(),
            Self::Metadata => Cost::handing_out(context()?.metadata().size()),
            Self::Whole => context()?.size().into(),
            Self::Messages => context()?.messages_cost(),
            Self::Texts => context()?.recall_cost(),
            Self::Words => context()?.search_cost(),
            Self::Facts => context()?.receipt_cost(),
        })
    }
}
