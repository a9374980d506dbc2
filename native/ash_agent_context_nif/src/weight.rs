//! What the work of NIFs grows with, and what that comes to.

use ash_agent_context_core::Cost;
use rustler::Term;

use crate::argument::{handle, Argument};
use crate::error::NifError;
use crate::resource::ContextResource;
use crate::response::received;
use crate::scheduler::Scheduler;

/// What the work of a NIF grows with. Arguments are not told: they are counted as they are read, see `argument.rs`.
#[derive(Debug, Clone, Copy)]
pub enum Weight {
    /// Nothing. `Native` returns the bare fact, for it cannot be refused.
    Constant,
    /// Nothing but its arguments.
    Arguments,
    /// What only its function can tell, which weighs it by [`Scheduler::allow`].
    Own,
    /// It takes long or is rare, and never runs on a normal scheduler.
    Long,
    /// The bytes that a response received.
    Received,
    /// The calls of the last message.
    Calls,
    /// The current iteration.
    Iteration,
    /// The log, in which something is looked for.
    Log,
    /// The iterations that a view covers.
    View,
    /// The system prompt and what the view puts after it.
    Prompt,
    /// The metadata.
    Metadata,
    /// All data, which is copied or compared.
    Whole,
    /// The messages that are handed out.
    Messages,
    /// All texts as the view shows them.
    Texts,
    /// The facts that are found in all texts.
    Facts,
}

impl Weight {
    /// What it comes to, for the NIF's first argument.
    pub fn cost(self, first: Option<&Term<'_>>) -> Result<Cost, NifError> {
        let first = || first.copied().ok_or(NifError::Raise);
        let context = || Ok::<_, NifError>(handle::<ContextResource>(first()?)?.get());
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
            Self::Facts => context()?.receipt_cost(),
        })
    }
}
