//! Shortens a view for a request that is too long, by the smallest step that helps. The log keeps everything, and the view
//! keeps each step with its cause, so that it can be undone.

use std::sync::Arc;

use crate::context::Context;
use crate::log::exchange::Exchange;
use crate::policy::rent::Rent;
use crate::tokens::Method;
use crate::value::time::Time;
use crate::view::rendering::Look;
use crate::view::shortening::{self, Pressure, Shortening, ShorteningKind};
use crate::view::Cleared;

/// The limit of an index in thousandths of the tokens that it stands for, where the view has none of its own.
const INDEX: usize = 30;

/// A result is not shortened to fewer bytes.
const LEAST: usize = 2_000;

/// The part of the longest result that is left by a step: more if nobody has to be asked whether it is short enough.
const PARTS: [(Pressure, usize); 2] = [(Pressure::Window, 2), (Pressure::Overflow, 4)];

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
    /// the iterations before the turn with an index of their facts, then those of the turn, and then shortens long results.
    /// Results that the model has not seen are cleared last. If the window is the cause, it does so only for a request that
    /// does not fit.
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
        let unseen = self.count_unseen();
        // Whoever keeps none means these, too.
        let keep = match rent.keep {
            0 => 0,
            keep => keep.max(unseen),
        };
        let mut steps = (0..6).filter_map(|step| match step {
            0 => self.clear_step(keep, cause, at),
            1 => self.clear_step(unseen.max(1), cause, at),
            2 => self.hide_step(self.first_number(), turn.checked_sub(1)?, cause, at),
            // The user's message stays, and so do the results of the last calls.
            3 => {
                let last = self.current_iteration().checked_sub(2)?;
                self.hide_step(turn + 1, last, cause, at)
            }
            4 => self.shorten_step(cause, at),
            _ => self.clear_step(1, cause, at),
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
        let step = self.step(ShorteningKind::Summarized, cause, (first, last));
        self.changed(at, |next| next.add_shortening(step))
    }

    /// Shows the iterations of a range that are hidden, for a summary of them; other summaries stay.
    ///
    /// # Complexity
    /// O(the range)
    #[must_use]
    pub fn reveal(&self, first: u64, last: u64, at: Time) -> Self {
        let hidden = self.covers().filter(|(_, cover)| cover.summary.is_none());
        self.changed(at, |next| {
            hidden.for_each(|(start, cover)| next.uncover(start.max(first), cover.last.min(last)));
        })
    }

    fn step(&self, kind: ShorteningKind, cause: Pressure, (first, last): (u64, u64)) -> Shortening {
        Shortening {
            kind,
            cause,
            iteration: self.current_iteration(),
            first,
            last,
            before: None,
        }
    }
    fn add_shortening(&mut self, step: Shortening) {
        self.change_view(|view| {
            view.shortenings = shortening::add(&view.shortenings, step).into();
            view.resize();
        });
    }

    fn clear_step(&self, keep: usize, cause: Pressure, at: Time) -> Option<(Self, Shortening)> {
        let mut next = self.clear_results(keep, self.placeholder(), true, at);
        let before = self.cleared_place();
        // Results that are already cleared stay cleared.
        let (iteration, calls) = next.cleared_place().filter(|next| before < Some(*next))?;
        let first = before.map_or(self.first_number(), |(iteration, _)| iteration);
        let last = iteration.saturating_sub(u64::from(calls == 0));
        let step = Shortening {
            before,
            ..self.step(ShorteningKind::Cleared, cause, (first, last))
        };
        next.add_shortening(step);
        Some((next, step))
    }

    /// Returns how many results there are after the last answer.
    fn count_unseen(&self) -> usize {
        let last = self.last_answer();
        let exchange = last.and_then(|(_, entry)| entry.exchange.as_deref());
        exchange.map_or(0, Exchange::count_filled)
    }

    /// Returns the results of the view that a limit would shorten, each with the number of its iteration and its bytes.
    fn whole_results(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        let shown = self.iterations().filter(|one| !self.hides(one.number));
        shown.flat_map(|iteration| {
            let look = self.rendering(iteration.number).at_most(0);
            iteration.entries().flat_map(move |entry| {
                let look = look.behind(entry.slots);
                let outcomes = entry.exchange.iter().flat_map(|of| of.outcomes());
                let outcomes = outcomes.enumerate();
                outcomes.filter_map(move |(slot, outcome)| {
                    let outcome = outcome.filter(|of| look.result(slot, of) == Look::Shortened)?;
                    Some((iteration.number, outcome.longest()))
                })
            })
        })
    }

    fn shorten_step(&self, cause: Pressure, at: Time) -> Option<(Self, Shortening)> {
        let before = self.view().and_then(|view| view.max_result_bytes);
        let (_, longest) = self.whole_results().max_by_key(|(_, bytes)| *bytes)?;
        let longest = longest.min(before.unwrap_or(usize::MAX));
        let (_, part) = PARTS.into_iter().find(|(of, _)| *of == cause)?;
        let most = Some(longest / part).filter(|most| *most >= LEAST)?;
        let mut long = self.whole_results().filter(|(_, bytes)| *bytes > most);
        let (first, _) = long.next()?;
        let last = long.last().map_or(first, |(last, _)| last);
        let mut steps = self.shortenings().to_vec();
        let mut step = Shortening {
            before: before.map(|most| (self.current_iteration(), most)),
            ..self.step(ShorteningKind::Shortened, cause, (first, last))
        };
        // Several for one request are one.
        let is_same = |of: &Shortening| {
            (of.kind, of.cause, of.iteration) == (step.kind, step.cause, step.iteration)
        };
        if let Some(earlier) = steps.pop_if(|of| is_same(of)) {
            step.before = earlier.before;
        }
        let mut next = self.clone();
        next.change_most(Some(most), shortening::add(&steps, step));
        next.log.updated_at = at;
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
        next.note_chosen(first, last);
        let step = self.step(ShorteningKind::Hidden, cause, (first, last));
        next.add_shortening(step);
        next.log.updated_at = at;
        Some((next, step))
    }

    /// Undoes a step: shows its iterations again, or the results that it and later steps cleared. Nothing changes if the
    /// view has no such step.
    #[must_use]
    pub fn undo(&self, kind: ShorteningKind, first: u64, last: u64, at: Time) -> Self {
        let is_it = |step: &Shortening| (step.kind, step.first, step.last) == (kind, first, last);
        let mut steps = self.shortenings().to_vec();
        let Some(from) = steps.iter().rposition(is_it) else {
            return self.clone();
        };
        let Some(step) = steps.get(from).copied() else {
            return self.clone();
        };
        match kind {
            ShorteningKind::Cleared => {}
            ShorteningKind::Shortened => {
                shortening::take_shortened(&mut steps, from);
                return self.changed(at, |next| next.change_most(step.most_before(), steps));
            }
            _ => return self.expand(first, last, at),
        }
        let place = shortening::take_back(&mut steps, self.cleared_place(), &step);
        let cleared = place.map(|place| Arc::new(Cleared::at(place, self.placeholder())));
        self.changed(at, |next| {
            next.change_looks(|view| {
                (view.cleared, view.shortenings) = (cleared, steps.into());
                view.resize();
            });
        })
    }

    /// Removes the steps without effect.
    pub(crate) fn retain_shortenings(&mut self) {
        let newest = self.current_iteration();
        if !self.shortenings().is_empty() {
            self.change_view(|view| {
                view.retain_shortenings(newest);
                view.resize();
            });
        }
    }
}
