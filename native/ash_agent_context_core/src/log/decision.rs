//! Decisions about a tool call before it runs, and where a call stands.

use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use crate::log::message::Status;
use crate::value::time::Time;
use crate::value::{Size, Value};

/// A decision about a call, kept for audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The call may run, or was answered.
    pub approved: bool,
    /// The call was a question to a person, and the result is their answer: nothing ran.
    pub answered: bool,
    /// The person or program that decided; any term of the application.
    pub by: Value,
    /// When.
    pub at: Time,
    /// Why not; nil for an approval.
    pub reason: Value,
    /// The arguments that were decided about, where the call's own are others.
    pub arguments: Option<Value>,
    /// The arguments that whoever approved wrote in the place of those.
    pub edited: Option<Value>,
    /// The digest of the name and the arguments that an approval holds for. Releases that did not bind approvals left none;
    /// theirs hold for the call as it stands.
    pub digest: Option<Box<str>>,
}

impl Decision {
    pub(crate) fn size(&self) -> Size {
        let size = self.by.size().plus(self.reason.size());
        let digest = self.digest.as_ref().map_or(0, |text| text.len());
        let arguments = self.arguments.iter().chain(&self.edited);
        let arguments: Size = arguments.map(Value::size).sum();
        size.plus(arguments).plus(Size::new(3, digest))
    }
}

/// Where a tool call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStatus {
    /// Nothing is decided, and there is no result.
    Pending,
    /// It may run; there is no result.
    Approved,
    /// It ended; a result is final.
    Ended(Status),
}

impl CallStatus {
    /// Returns the name that Elixir has for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Ended(status) => status.name(),
        }
    }
}

/// The steps of a call before its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Somebody has to decide about a run with these arguments, or with the call's own.
    Asked(Option<Value>),
    /// Somebody has to answer the question in these arguments, or in the call's own. Nothing runs.
    Question(Option<Value>),
    /// The same with arguments that a person wrote, whose approval has come to nothing.
    AskedAgain(Value),
    /// Somebody has decided.
    Decided(Decision),
}

impl Stage {
    fn size(&self) -> Size {
        match self {
            Self::Asked(arguments) | Self::Question(arguments) => {
                arguments.as_ref().map(Value::size).unwrap_or_default()
            }
            Self::AskedAgain(edited) => edited.size(),
            Self::Decided(decision) => decision.size(),
        }
    }
}

/// The decisions of an exchange by the slots of their calls. Most exchanges have none, and adding one copies no others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Decisions {
    steps: RedBlackTreeMapSync<usize, Arc<Stage>>,
    size: Size,
}

impl Decisions {
    pub fn get(&self, slot: usize) -> Option<&Decision> {
        match self.stage(slot)? {
            Stage::Decided(decision) => Some(decision),
            Stage::Asked(_) | Stage::Question(_) | Stage::AskedAgain(_) => None,
        }
    }

    pub fn is_asked(&self, slot: usize) -> bool {
        matches!(
            self.stage(slot),
            Some(Stage::Asked(_) | Stage::Question(_) | Stage::AskedAgain(_))
        )
    }

    pub fn is_question(&self, slot: usize) -> bool {
        matches!(self.stage(slot), Some(Stage::Question(_)))
    }

    pub fn asked_arguments(&self, slot: usize) -> Option<&Value> {
        match self.stage(slot)? {
            Stage::Asked(arguments) | Stage::Question(arguments) => arguments.as_ref(),
            Stage::AskedAgain(edited) => Some(edited),
            Stage::Decided(_) => None,
        }
    }

    /// Returns the arguments that a person wrote in the place of the model's.
    pub fn edited(&self, slot: usize) -> Option<&Value> {
        match self.stage(slot)? {
            Stage::Asked(_) | Stage::Question(_) => None,
            Stage::AskedAgain(edited) => Some(edited),
            Stage::Decided(decision) => decision.edited.as_ref(),
        }
    }

    fn stage(&self, slot: usize) -> Option<&Stage> {
        self.steps.get(&slot).map(|step| &**step)
    }

    pub fn set(&mut self, slot: usize, step: Stage) {
        if let Some(before) = self.steps.get(&slot) {
            self.size = self.size.minus(before.size());
        }
        self.size = self.size.plus(step.size());
        self.steps.insert_mut(slot, Arc::new(step));
    }

    /// Asks again about the decisions in some slots, with the arguments of each: whoever needed a decision before does not
    /// run without one now.
    pub fn ask_again(&mut self, of: impl Fn(usize) -> bool) {
        let slots: Vec<usize> = self.steps.keys().copied().collect();
        for slot in slots.into_iter().filter(|slot| of(*slot)) {
            if let Some(decision) = self.get(slot) {
                let shown = || Stage::Asked(decision.arguments.clone());
                let edited = decision.edited.clone();
                self.set(slot, edited.map_or_else(shown, Stage::AskedAgain));
            }
        }
    }

    pub const fn size(&self) -> Size {
        self.size
    }
}
