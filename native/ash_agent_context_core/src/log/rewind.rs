//! Going back: an iteration becomes the current one again, and what was counted after it is counted anew.

use std::sync::Arc;

use crate::error::Error;
use crate::log::iteration::{Checkpoint, Iteration};
use crate::log::provider::Provider;
use crate::log::Log;
use crate::value::Size;

/// Iterations from one checkpoint to the next. A rewind recounts all after the last one.
const CHECKPOINT: u64 = 16;

impl Log {
    /// Returns the conversation as it was at the end of an iteration.
    ///
    /// # Errors
    /// [`Error::UnknownIteration`]
    ///
    /// # Complexity
    /// O(log n)
    pub fn rewind(&self, to: i64) -> Result<Self, Error> {
        let index = self.index(to);
        let index = index.filter(|index| *index <= self.history.len());
        let index = index.ok_or_else(|| self.unknown_iteration(to))?;
        let mut next = self.clone();
        if index < self.history.len() {
            let after = self.history.get(index + 1).unwrap_or(&self.current);
            let held_by = after.held_by();
            next.cut(index);
            next.forget_wire(held_by, true);
            next.updated_at = next.current.completed_at.unwrap_or(self.updated_at);
        }
        Ok(next)
    }

    /// Drops all but the first messages of the current iteration.
    pub(crate) fn keep_entries(&mut self, count: usize) {
        let mut kept = Iteration::new(self.current.number, self.current.started_at);
        let last = self.history.len().checked_sub(1);
        let last = last.and_then(|index| self.history.get(index));
        kept.reported = last.and_then(|last| last.reported);
        kept.turn = self.current.turn;
        for entry in self.current.entries_from(0, count) {
            kept.push_entry(entry.clone());
        }
        self.change_current(|current| *current = kept);
    }

    /// Drops the imported form of elements that also held something that is gone: they are written anew by the rules.
    pub(crate) fn forget_wire(&mut self, held_by: Option<Provider>, in_current: bool) {
        let Some(provider) = held_by else { return };
        let mut found = false;
        if in_current {
            self.update_current(|current| found = current.forget_wire(provider));
        }
        for index in (0..self.history.len()).rev() {
            if found {
                return;
            }
            if let Some(mut iteration) = self.history.get(index).cloned() {
                found = iteration.forget_wire(provider);
                self.history.set(index, iteration);
            }
        }
    }

    /// Returns the size of what [`Log::rewind`] counts anew.
    #[must_use]
    pub fn rewind_size(&self, to: i64) -> Size {
        let Some(index) = self.index(to) else {
            return Size::default();
        };
        let counted = index.saturating_sub(2 * CHECKPOINT as usize)..=index;
        let iterations = counted.filter_map(|at| self.history.get(at));
        let walked = iterations.map(|one| one.count_messages() + 3 * one.count_calls());
        Size::new(walked.sum(), 0)
    }

    /// Makes a completed iteration the current one again.
    pub(crate) fn cut(&mut self, index: usize) {
        let Some(last) = self.history.get(index).cloned() else {
            return;
        };
        self.waits = self.waits_up_to(last.number);
        let weight = self.weight();
        let back = (0..=index).rev();
        let since = back.take_while(|at| self.checkpoint(*at).is_none());
        let since = index + 1 - since.count();
        let start = since.checked_sub(1).and_then(|at| self.checkpoint(at));
        let mut sum = start.cloned().unwrap_or_default();
        for iteration in (since..=index).filter_map(|at| self.history.get(at)) {
            sum.messages += iteration.count_messages();
            sum.size = sum.size.plus(iteration.size());
            sum.usage = sum.usage.plus(iteration.usage());
            let entries = iteration.entries().enumerate();
            for (index, entry) in entries.filter(|(_, entry)| !entry.repeats_call()) {
                sum.ids.join_again(&entry.message, iteration.number, index);
            }
        }
        self.ids = sum.ids;
        self.messages = sum.messages;
        self.size = sum.size.plus(self.noted);
        self.usage = sum.usage;
        self.history.truncate(index);
        self.current = Arc::new(last);
        self.unseen = if self.history.holds_more() { weight } else { 0 };
        // Whoever has the other token keeps more alive than this context.
        self.begin_generation();
    }

    /// Returns the counts up to the end of an iteration, at every sixteenth.
    pub(super) fn checkpoint_after(&self, last: &Iteration) -> Option<Arc<Checkpoint>> {
        last.number.is_multiple_of(CHECKPOINT).then(|| {
            Arc::new(Checkpoint {
                ids: self.ids.clone(),
                messages: self.messages,
                size: self.size.minus(self.noted),
                usage: self.usage,
            })
        })
    }

    fn checkpoint(&self, index: usize) -> Option<&Checkpoint> {
        self.history.get(index)?.checkpoint.as_deref()
    }
}
