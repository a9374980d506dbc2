//! The outcome of an import: the conversation, and its repairs.

use crate::context::Context;
use crate::value::word::words;
use crate::value::Map;

/// An imported history.
#[derive(Debug)]
pub struct Imported {
    /// The conversation that it makes.
    pub context: Context,
    /// The repairs, in the order of the messages.
    pub repairs: Vec<Repair>,
    /// The fields of the request that are not part of the conversation, unchanged.
    pub rest: Map,
}

/// A change to a history that makes it a valid conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// The kind of change.
    pub kind: RepairKind,
    /// The 0-based position of the message (content, item) in the list that was given.
    pub message: usize,
    /// The id of the call or result.
    pub id: Option<Box<str>>,
    /// The id that the call has got, or the type of media.
    pub to: Option<Box<str>>,
}

words! {
    /// The kinds of repairs.
    pub enum RepairKind {
        /// An empty message was left out.
        DroppedEmptyMessage = "dropped_empty_message",
        /// A second result for a call was left out.
        DroppedDuplicateResult = "dropped_duplicate_result",
        /// A result without a call was left out.
        DroppedOrphanResult = "dropped_orphan_result",
        /// A result that did not directly follow its call was moved there.
        MovedResult = "moved_result",
        /// A call with the id of another call of the message got a new one.
        RenamedCall = "renamed_call",
        /// A call without a result, followed by another message, got an error as its result.
        SynthesisedResult = "synthesised_result",
        /// Media said that they are of another type than their bytes.
        CorrectedType = "corrected_type",
    }
}
