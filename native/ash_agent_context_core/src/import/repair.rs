//! Says what is made of a foreign history, and what had to be repaired in it.

use crate::context::Context;
use crate::value::word::words;
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

words! {
    /// The kinds of repairs.
    pub enum RepairKind {
        /// A message that says nothing was left out.
        DroppedEmptyMessage = "dropped_empty_message",
        /// A second result for a call was left out.
        DroppedDuplicateResult = "dropped_duplicate_result",
        /// A result without a call was left out.
        DroppedOrphanResult = "dropped_orphan_result",
        /// A result that did not directly follow its call was moved there.
        MovedResult = "moved_result",
        /// A call whose id another call of the message has was given a new one.
        RenamedCall = "renamed_call",
        /// A call without a result, followed by something else, was given an error.
        SynthesisedResult = "synthesised_result",
    }
}
