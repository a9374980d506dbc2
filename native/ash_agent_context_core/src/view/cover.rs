//! Iterations that are not shown.

use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use crate::log::message::Message;
use crate::value::{steps, Size};
use crate::view::verdict::Verdict;

/// Iterations that are not shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cover {
    /// The number of the last.
    pub last: u64,
    /// Holds what stands in their place.
    pub summary: Option<Arc<Message>>,
    /// Where nothing stands in their place but how to get them back.
    pub note: Option<Arc<Message>>,
    /// The verdict of a check on the summary.
    pub verdict: Option<Arc<Verdict>>,
    /// Their messages in the log.
    pub(crate) messages: usize,
}

impl Cover {
    /// Returns what a model reads in their place.
    #[must_use]
    pub fn replacement(&self) -> Option<&Message> {
        self.summary.as_deref().or(self.note.as_deref())
    }

    /// Returns whether a model sees the same in the place of the same iterations, if both begin with the same one.
    pub(crate) fn looks_as(&self, other: &Self) -> bool {
        self.last == other.last && self.replacement() == other.replacement()
    }

    pub(super) fn size(&self) -> Size {
        let verdict = self.verdict.as_deref().map_or(0, Verdict::bytes);
        let own = Size::new(10, verdict);
        self.replacement()
            .map_or(own, |shown| shown.size().plus(own))
    }
}

/// Covers by the number of their first iteration; they do not overlap.
pub(crate) type Covers = RedBlackTreeMapSync<u64, Cover>;

/// The cover over an iteration, with the number of its first.
pub(crate) fn cover_over(covers: &Covers, number: u64) -> Option<(u64, &Cover)> {
    steps::count(1);
    let (first, cover) = covers.range(..=number).next_back()?;
    (cover.last >= number).then_some((*first, cover))
}
