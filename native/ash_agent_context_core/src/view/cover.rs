//! Covers: ranges of iterations that are not shown.

use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use crate::log::message::Message;
use crate::value::{steps, Size};
use crate::view::verdict::Verdict;

/// Iterations that are not shown, up to a last one. `Covers` has the number of the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cover {
    /// The number of the last iteration.
    pub last: u64,
    /// The message in their place.
    pub summary: Option<Arc<Message>>,
    /// A note in their place that only says how to get them back.
    pub note: Option<Arc<Message>>,
    /// The verdict of a check on the summary.
    pub verdict: Option<Arc<Verdict>>,
    /// The summary and the verdict without the masks of the view, if these take something out of them.
    pub(crate) unmasked: Option<Arc<Unmasked>>,
    /// True if a policy chose to hide them.
    pub by_policy: bool,
    /// The number of their messages in the log.
    pub(crate) messages: usize,
}

/// A summary and its verdict before they were masked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unmasked {
    pub summary: Option<Arc<Message>>,
    pub verdict: Option<Arc<Verdict>>,
}

impl Cover {
    /// Returns the message that a model reads in their place.
    #[must_use]
    pub fn replacement(&self) -> Option<&Message> {
        self.summary.as_deref().or(self.note.as_deref())
    }

    /// Returns true if a model sees the same in the place of the same iterations, given that both begin with the same one.
    pub(crate) fn looks_as(&self, other: &Self) -> bool {
        self.last == other.last && self.replacement() == other.replacement()
    }

    /// Restores the texts without masks.
    pub(crate) fn unmask(&mut self) {
        if let Some(unmasked) = self.unmasked.take() {
            self.summary.clone_from(&unmasked.summary);
            self.verdict.clone_from(&unmasked.verdict);
        }
    }

    pub(crate) fn size(&self) -> Size {
        let unmasked = self.unmasked.as_deref();
        let verdicts = [Some(&self.verdict), unmasked.map(|of| &of.verdict)];
        let messages = [
            self.replacement(),
            unmasked.and_then(|of| of.summary.as_deref()),
        ];
        let verdicts = verdicts.into_iter().flatten().flatten();
        let own = Size::new(10, verdicts.map(|verdict| verdict.bytes()).sum());
        own.plus(messages.into_iter().flatten().map(Message::size).sum())
    }
}

/// Covers by the number of their first iteration; they do not overlap.
pub(crate) type Covers = RedBlackTreeMapSync<u64, Cover>;

/// Returns the cover over an iteration, with the number of its first.
pub(crate) fn cover_over(covers: &Covers, number: u64) -> Option<(u64, &Cover)> {
    steps::count(1);
    let (first, cover) = covers.range(..=number).next_back()?;
    (cover.last >= number).then_some((*first, cover))
}
