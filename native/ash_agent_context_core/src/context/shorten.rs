//! Shortens a view for a request that is too long, by the smallest step that helps. The log keeps everything, and the view
//! keeps each step with its cause, so that it can be undone.

use std::sync::Arc;

use crate::context::rent::Rent;
use crate::context::Context;
use crate::tokens::Method;
use crate::value::time::Time;
use crate::view::shortening::{self, Pressure, Shortening, ShorteningKind};
use crate::view::{Cleared, CLEARED};

/// The limit of an index in thousandths of the tokens that it stands for, where the view has none of its own.
const INDEX: usize = 30;

/// The outcome for a request that may be too long.
#[derive(Debug, Clone)]
pub enum Shortened {
    /// It fits into the model's window.
    Fits,
    /// A step made the view shorter.
    Shorter(Box<Context>, Shortening),
    /// There is no further step.
    Exhausted,
}

impl Context {
    /// Takes the next step that makes the view shorter: clears the results that renting would, then all but one, then hides
    /// the iterations before the turn with an index of their facts, then those of the turn. If the window is the cause, it
    /// does so only for a request that does not fit.
    ///
    /// # Complexity
    /// O(the log)
    #[must_use]
    pub fn shorten(&self, cause: Pressure, rent: &Rent<'_>, at: Time) -> Shortened {
        if cause == Pressure::Window && !self.is_beyond_window(rent, at) {
            return Shortened::Fits;
        }
        let before = self.count_tokens(Some(Method::Estimate));
        let turn = self.turn();
        let mut steps = (0..4).filter_map(|step| match step {
            0 => self.clear_step(rent.keep, cause, at),
            1 => self.clear_step(1, cause, at),
            2 => self.hide_step(self.first_number(), turn.checked_sub(1)?, cause, at),
            // The user's message stays, and so do the results of the last calls.
            _ => {
                let last = self.current_iteration().checked_sub(2)?;
                self.hide_step(turn + 1, last, cause, at)
            }
        });
        let is_shorter = |next: &Self| next.count_tokens(Some(Method::Estimate)) < before;
        match steps.find(|(next, _)| is_shorter(next)) {
            Some((next, step)) => Shortened::Shorter(Box::new(next), step),
            None => Shortened::Exhausted,
        }
    }

    /// Returns the steps by which the view became shorter, oldest first.
    #[must_use]
    pub fn shortenings(&self) -> &[Shortening] {
        self.view().map_or(&[], |view| &view.shortenings)
    }

    /// Notes that a summary took the place of iterations because a request was too long.
    #[must_use]
    pub fn note_summarized(&self, first: u64, last: u64, cause: Pressure, at: Time) -> Self {
        let mut next = self.clone();
        next.add_shortening(Shortening {
            kind: ShorteningKind::Summarized,
            cause,
            iteration: self.current_iteration(),
            first,
            last,
            before: None,
        });
        next.log.updated_at = at;
        next
    }

    /// Shows the iterations of a range that are hidden, for a summary of them; other summaries stay.
    ///
    /// # Complexity
    /// O(the range)
    #[must_use]
    pub fn reveal(&self, first: u64, last: u64, at: Time) -> Self {
        let mut next = self.clone();
        let covers = self.view().into_iter().flat_map(|view| view.covers());
        let hidden = covers.filter(|(_, cover)| cover.summary.is_none());
        for (start, cover) in hidden {
            next.uncover(start.max(first), cover.last.min(last));
        }
        next.log.updated_at = at;
        next
    }

    fn add_shortening(&mut self, step: Shortening) {
        self.change_view(|view| {
            view.shortenings = shortening::add(&view.shortenings, step).into();
            view.resize();
        });
    }

    fn clear_step(&self, keep: usize, cause: Pressure, at: Time) -> Option<(Self, Shortening)> {
        let cleared = |context: &Self| context.view()?.cleared.clone();
        let (own, place) = (cleared(self), |context: &Self| {
            cleared(context).map(|all| (all.iteration, all.calls))
        });
        let placeholder = own.as_deref().map_or(CLEARED, |all| &all.placeholder);
        let mut next = self.clear_tool_results(keep, placeholder, at);
        let before = place(self);
        // Results that are already cleared stay cleared.
        let (iteration, calls) = place(&next).filter(|next| before < Some(*next))?;
        let step = Shortening {
            kind: ShorteningKind::Cleared,
            cause,
            iteration: self.current_iteration(),
            first: before.map_or(self.first_number(), |(iteration, _)| iteration),
            last: iteration.saturating_sub(u64::from(calls == 0)),
            before,
        };
        next.add_shortening(step);
        Some((next, step))
    }

    fn hide_step(
        &self,
        first: u64,
        last: u64,
        cause: Pressure,
        at: Time,
    ) -> Option<(Self, Shortening)> {
        let mut shown = (first..=last).filter(|number| !self.hides(*number));
        let first = shown.next()?;
        let last = shown.next_back().unwrap_or(first);
        let mut next = match self.view().is_some_and(|view| view.index > 0) {
            true => self.clone(),
            false => self.put_index(Some(INDEX), None, at),
        };
        next.hide(first, last);
        let step = Shortening {
            kind: ShorteningKind::Hidden,
            cause,
            iteration: self.current_iteration(),
            first,
            last,
            before: None,
        };
        next.add_shortening(step);
        next.log.updated_at = at;
        Some((next, step))
    }

    /// Undoes a step: shows its iterations again, or the results that it and later steps cleared. Nothing changes if the
    /// view has no such step.
    #[must_use]
    pub fn undo(&self, kind: ShorteningKind, first: u64, last: u64, at: Time) -> Self {
        let is_it = |step: &&Shortening| (step.kind, step.first, step.last) == (kind, first, last);
        let Some(step) = self.shortenings().iter().rfind(is_it).copied() else {
            return self.clone();
        };
        if kind != ShorteningKind::Cleared {
            return self.expand(first, last, at);
        }
        let mut next = self.clone();
        next.change_view(|view| {
            let mut steps = view.shortenings.to_vec();
            let cleared = view.cleared.take();
            let own = cleared.as_deref().map(|one| (one.iteration, one.calls));
            let place = shortening::take_back(&mut steps, own, &step);
            let moved = |cleared: Arc<Cleared>| Some(Arc::new(cleared.moved_to(place?)));
            view.cleared = cleared.and_then(moved);
            view.shortenings = steps.into();
            view.resize();
        });
        next.tallies = Default::default();
        next.log.updated_at = at;
        next
    }

    /// Removes the steps without effect.
    pub(crate) fn retain_shortenings(&mut self) {
        let newest = self.current_iteration();
        if !self.shortenings().is_empty() {
            self.change_view(|view| {
                let mut steps = view.shortenings.to_vec();
                shortening::retain(&mut steps, &view.covers, newest);
                view.shortenings = steps.into();
                view.resize();
            });
        }
    }
}
