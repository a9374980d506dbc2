//! Keeping a conversation within a budget: which iterations are hidden, and which may be summarised.

use std::borrow::Cow;

use crate::context::Context;
use crate::error::Error;
use crate::tokens::Method;
use crate::value::time::Time;
use crate::view::cover::Cover;
use crate::view::pins::{Pin, Pins};
use crate::view::{self, Stretch};

/// [`Context::fit`] so often hides more to make room for the notes in place of hidden iterations.
const ROUNDS: usize = 4;

/// The options of [`Context::fit`].
#[derive(Debug, Clone, Copy)]
pub struct Fit {
    /// The tokens that the view may have, the answer included.
    pub budget: u64,
    /// Tokens that are kept free for the answer.
    pub reserve: u64,
    /// Iterations at the beginning that stay.
    pub keep_first: u64,
    /// Iterations at the end that stay.
    pub keep_last: u64,
    /// The number of the last hidden iteration is a multiple of this, where that is possible.
    pub step: u64,
    /// The method of counting tokens; `None` counts from the last report on.
    pub method: Option<Method>,
}

/// What a provider reported of a request, and what [`Method::Estimate`] counted for the same messages.
#[derive(Debug, Clone, Copy)]
struct Reported {
    length: u64,
    estimate: u64,
}

impl Reported {
    /// Returns the tokens of a view of which this many are estimated now; more estimated tokens are never fewer.
    fn carry_over(self, counted: u64) -> u64 {
        let Self { length, estimate } = self;
        if length == 0 {
            return counted; // it says nothing
        }
        if counted >= estimate {
            return length.saturating_add(counted - estimate).max(1);
        }
        let scaled = u128::from(length) * u128::from(counted);
        let scaled = scaled.div_ceil(u128::from(estimate));
        let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
        // When most of what it counted is gone, a report that was below the estimate is not believed.
        scaled.max(counted.min(length / 2)).max(counted.min(1))
    }

    /// Returns the most estimated tokens, up to these, that are allowed.
    fn most_allowed(self, allowed: u64, counted: u64) -> u64 {
        let (mut least, mut most) = (0, counted);
        while least < most {
            let middle = least + (most - least).div_ceil(2);
            match self.carry_over(middle) <= allowed {
                true => least = middle,
                false => most = middle - 1,
            }
        }
        least
    }
}

impl Context {
    /// Returns the tokens of the view: by a method, or from the last report of a provider on.
    ///
    /// A report counts everything up to its message. What [`Method::Estimate`] counts more than it did then is added. If it counts
    /// less, since parts of the view were hidden, the report shrinks by the same share: an estimate of what is gone would leave what
    /// it missed.
    ///
    /// # Complexity
    /// O(what was not counted yet)
    #[must_use]
    pub fn count_tokens(&self, method: Option<Method>) -> u64 {
        let counted = self.tokens(method.unwrap_or(Method::Estimate)).total();
        if method.is_some() {
            return counted;
        }
        let reported = self.reported();
        reported.map_or(counted, |reported| reported.carry_over(counted))
    }

    fn reported(&self) -> Option<Reported> {
        let number = self.log.current.reported?;
        let mut entries = self.log.get_numbered(number)?.entries().rev();
        let entry = entries.find(|entry| entry.usage.is_some())?;
        let (length, estimate) = entry.reported_length()?;
        Some(Reported { length, estimate })
    }

    /// Hides the oldest iterations until the view fits. Returns the range that is hidden then.
    ///
    /// The current turn stays, and so do summaries, as long as the rest can be hidden.
    ///
    /// # Errors
    /// [`Error::CannotFit`].
    ///
    /// # Complexity
    /// O(what it hides)
    pub fn fit(&self, fit: &Fit, at: Time) -> Result<(Self, Option<(u64, u64)>), Error> {
        let fitted = self.fitted(fit, at)?;
        let hidden = fitted.hidden_range();
        Ok((fitted, hidden))
    }

    fn fitted(&self, fit: &Fit, at: Time) -> Result<Self, Error> {
        let allowed = fit.budget.saturating_sub(fit.reserve);
        if self.count_tokens(fit.method) <= allowed {
            return Ok(self.clone());
        }
        let (first, last) = self.may_hide(fit.keep_first, fit.keep_last);
        let method = fit.method.unwrap_or(Method::Estimate);
        let counted = self.tokens(method).total();
        let reported = self.reported().filter(|_| fit.method.is_none());
        let most = reported.map_or(allowed, |reported| reported.most_allowed(allowed, counted));
        let mut needed = counted.saturating_sub(most);
        // The note in place of hidden iterations takes tokens, too.
        for _ in 0..ROUNDS {
            let Some(boundary) = self.boundary(first, last, needed, method) else {
                break;
            };
            let step = fit.step.max(1);
            let boundary = boundary.div_ceil(step).saturating_mul(step).min(last);
            let next = self.changed(at, |next| {
                next.hide(first, boundary);
                next.note_chosen(first, boundary);
            });
            let left = next.tokens(method).total();
            if left <= most {
                return Ok(next);
            }
            needed = needed.saturating_add(left - most);
        }
        // All that may be hidden, without the summaries, and with as little as possible in its place.
        let next = self.changed(at, |next| {
            if first <= last {
                next.put_hidden(first, last);
                next.note_chosen(first, last);
                next.tell_least(first, last);
            }
        });
        let least = next.count_tokens(fit.method);
        if least <= allowed {
            return Ok(next);
        }
        let pins: Vec<Box<str>> = self.pins().map(Pin::name).collect();
        if !pins.is_empty() && self.with_pins(Pins::default(), at).fitted(fit, at).is_ok() {
            return Err(Error::PinsTooLong { pins, least });
        }
        Err(Error::CannotFit { least })
    }

    /// Leaves only a handle and pins in the place of hidden iterations in a range.
    fn tell_least(&mut self, first: u64, last: u64) {
        let hidden = self.cover(last);
        let hidden = hidden.filter(|(_, cover)| cover.summary.is_none());
        let Some((start, end)) = hidden.map(|(start, cover)| (start, cover.last)) else {
            return;
        };
        let before = self.range_tokens(start.min(first), end);
        let note = self.least_note(start, end);
        self.change_cover(start, |cover| cover.note = note);
        self.retally(start.min(first), end, before);
    }

    /// Returns the summary over an iteration, with the number of its first.
    fn summary_over(&self, number: u64) -> Option<(u64, &Cover)> {
        let cover = self.cover(number);
        cover.filter(|(_, cover)| cover.summary.is_some())
    }

    /// Returns the iteration up to which enough tokens can be hidden, leaving summaries.
    fn boundary(&self, first: u64, last: u64, needed: u64, method: Method) -> Option<u64> {
        let mut hidden = 0;
        for stretch in self.stretches(first, last) {
            if let Stretch::Iteration(iteration, rendering) = stretch {
                hidden += iteration.tokens(method, rendering).total();
                if hidden >= needed {
                    return Some(iteration.number);
                }
            }
        }
        None
    }

    /// Returns the range that may be hidden: all but the first, the last, the current turn, and iterations that share a
    /// summary with them. It is empty if the second number is smaller than the first.
    fn may_hide(&self, keep_first: u64, keep_last: u64) -> (u64, u64) {
        let first = self.first_number().saturating_add(keep_first);
        let last = self.current_iteration().saturating_sub(keep_last);
        let last = last.min(self.log.current.turn.saturating_sub(1));
        self.without_cut_summaries(first, last)
    }

    /// Returns a range without the summaries that reach out of it.
    fn without_cut_summaries(&self, first: u64, last: u64) -> (u64, u64) {
        let cut_first = self.summary_over(first).filter(|(start, _)| *start < first);
        let cut_last = self
            .summary_over(last)
            .filter(|(_, cover)| cover.last > last);
        (
            cut_first.map_or(first, |(_, cover)| cover.last.saturating_add(1)),
            cut_last.map_or(last, |(start, _)| start.saturating_sub(1)),
        )
    }

    /// Returns the range from the first hidden iteration to the last.
    fn hidden_range(&self) -> Option<(u64, u64)> {
        let mut hidden = self.covers().filter(|(_, cover)| cover.summary.is_none());
        let (first, cover) = hidden.next()?;
        let last = hidden.last().map_or(cover.last, |(_, cover)| cover.last);
        Some((first, last))
    }

    /// Returns the number of the last iteration with a message; an empty one shows nothing.
    fn last_with_messages(&self) -> u64 {
        let is_empty = self.current().last().is_none();
        self.current_iteration().saturating_sub(u64::from(is_empty))
    }

    /// Shows only the last so many iterations with messages.
    ///
    /// # Complexity
    /// O(what it hides)
    #[must_use]
    pub fn keep_last_iterations(&self, count: u64, at: Time) -> Self {
        let last = self.last_with_messages().saturating_sub(count.max(1));
        self.hide_range(self.first_number(), last, at)
    }

    /// Hides iterations that began before a time; the last one with messages stays.
    ///
    /// # Complexity
    /// O(n)
    #[must_use]
    pub fn hide_iterations_before(&self, before: Time, at: Time) -> Self {
        let end = self.last_with_messages();
        let all = self.iterations().take_while(|one| one.number < end);
        let all: Vec<_> = all
            .map(|one| (one.number, one.started_at < before))
            .collect();
        self.changed(at, |next| {
            for run in all.chunk_by(|one, other| one.1 == other.1) {
                if let (Some((first, true)), Some((last, _))) = (run.first(), run.last()) {
                    next.hide_all(*first, *last);
                }
            }
        })
    }

    /// Shows only the iterations of a range. Messages that are added later are shown, too.
    ///
    /// # Errors
    /// [`Error::PendingToolCalls`] when the range leaves out the current iteration and calls wait in it.
    pub fn iteration_range(&self, first: u64, last: u64, at: Time) -> Result<Self, Error> {
        let (start, end) = (self.first_number(), self.last_with_messages());
        let current = self.current_iteration();
        if last < current || current < first {
            self.log.check_nothing_pending()?;
        }
        Ok(self.changed(at, |next| {
            if last < end {
                next.hide_all(last.saturating_add(1).max(start), end);
            }
            if first > start {
                next.hide_all(start, (first - 1).min(end));
            }
        }))
    }

    /// Hides the iterations of a range, also those of the current turn. An empty iteration shows nothing: the next message
    /// goes there.
    ///
    /// # Errors
    /// [`Error::PendingToolCalls`] when the range has the current iteration and calls wait in it.
    pub fn hide_iterations(&self, first: u64, last: u64, at: Time) -> Result<Self, Error> {
        if (first..=last).contains(&self.current_iteration()) {
            self.log.check_nothing_pending()?;
        }
        let first = first.max(self.first_number());
        Ok(self.hide_range(first, last.min(self.last_with_messages()), at))
    }

    /// Hides a range, summaries that lie within it included; one that reaches out of it stays.
    fn hide_all(&mut self, first: u64, last: u64) {
        let (first, last) = self.without_cut_summaries(first, last);
        if first <= last {
            self.put_hidden(first, last);
        }
    }

    /// Returns the range that a compaction may take: of the given range or of all iterations, those before the current turn
    /// that have no pending calls and are not hidden; summaries in it are taken as a whole.
    ///
    /// # Errors
    /// [`Error::NotCompactable`] when a range is asked for that is not all of that kind.
    pub fn compactable(
        &self,
        range: Option<(u64, u64)>,
        keep_first: u64,
        keep_last: u64,
    ) -> Result<Option<(u64, u64)>, Error> {
        let (first, last) = self.may_hide(keep_first, keep_last);
        let allowed = (first <= last).then_some((first, last));
        let (first, last) = match (range, allowed) {
            (None, None) => return Ok(None),
            (None, Some(all)) => all,
            (Some(asked), Some(all))
                if all.0 <= asked.0 && asked.0 <= asked.1 && asked.1 <= all.1 =>
            {
                asked
            }
            (Some(range), allowed) => return Err(Error::NotCompactable { range, allowed }),
        };
        let summary = |number| self.summary_over(number);
        let first = summary(first).map_or(first, |(start, _)| start);
        let last = summary(last).map_or(last, |(_, cover)| cover.last);
        let has_messages = self.messages_between(first, last).next().is_some();
        Ok(has_messages.then_some((first, last)))
    }

    /// Like [`Context::compactable`] for a summary: one that stands alone is not made again.
    ///
    /// # Errors
    /// As [`Context::compactable`].
    pub fn summarizable(
        &self,
        range: Option<(u64, u64)>,
        keep_first: u64,
        keep_last: u64,
    ) -> Result<Option<(u64, u64)>, Error> {
        let range = self.compactable(range, keep_first, keep_last)?;
        let is_new = |(first, last): &(u64, u64)| {
            self.stretches(*first, *last).any(|stretch| match stretch {
                Stretch::Iteration(iteration, _) => iteration.entries().len() > 0,
                Stretch::Cover(..) => false,
            })
        };
        Ok(range.filter(is_new))
    }

    /// Hides a range that [`Context::compactable`] returned, as a policy chose.
    #[must_use]
    pub fn drop_range(&self, first: u64, last: u64, at: Time) -> Self {
        let hidden = self.hide_range(first, last, at);
        hidden.changed(at, |next| next.note_chosen(first, last))
    }

    fn hide_range(&self, first: u64, last: u64, at: Time) -> Self {
        self.changed(at, |next| next.hide_all(first, last))
    }

    /// Returns the summary that stands for an iteration, as the view shows it.
    #[must_use]
    pub fn summary(&self, number: u64) -> Option<Cow<'_, [u8]>> {
        let (_, cover) = self.cover(number)?;
        let text = view::summary_text(cover.summary.as_deref()?)?;
        Some(match self.masks() {
            None => text.into(),
            Some(masks) => masks.bytes(text).into_vec().into(),
        })
    }
}
