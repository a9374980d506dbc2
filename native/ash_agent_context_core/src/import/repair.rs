//! Says what is made of a foreign history, and what had to be repaired in it.

use crate::context::Context;
use crate::value::Map;

/// A history that was read.
#[derive(Debug)]
pub struct Imported {
    /// The conversation.
    pub context: Context,
    /// Holds what had to be changed, in the order of the messages.
    pub repairs: Vec<Repair>,
    /// The fields of the request that are not part of the conversation, as they were given.
    pub rest: Map,
}

/// A change that made a context of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// Says what was done.
    pub kind: RepairKind,
    /// 0-based position of the message (content, item) in the list that was given.
    pub message: usize,
    /// The id of the call or result.
    pub id: Option<Box<str>>,
    /// The id that the call has now.
    pub to: Option<Box<str>>,
}

/// The kinds of repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairKind {
    /// A message that says nothing was left out.
    DroppedEmptyMessage,
    /// A second result for a call was left out.
    DroppedDuplicateResult,
    /// A result without a call was left out.
    DroppedOrphanResult,
    /// A result that did not directly follow its call was moved there.
    MovedResult,
    /// A call whose id another call of the message has was given a new one.
    RenamedCall,
    /// A call without a result, followed by something else, was given an error.
    SynthesisedResult,
}

impl RepairKind {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DroppedEmptyMessage => "dropped_empty_message",
            Self::DroppedDuplicateResult => "dropped_duplicate_result",
            Self::DroppedOrphanResult => "dropped_orphan_result",
            Self::MovedResult => "moved_result",
            Self::RenamedCall => "renamed_call",
            Self::SynthesisedResult => "synthesised_result",
        }
    }
}
