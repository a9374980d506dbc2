//! Which thinking a request has to do without: models that check it refuse it behind another system prompt, other tools or other
//! messages than those it was made on.
//!
//! The notes of requests say what an answer was made on. Where nothing is noted, as in an import, that is the log as it is. Equal
//! inputs leave out the same thinking, so requests are compared with all of theirs. Masks are not kept with notes: thinking that was
//! made under other ones is left out, whatever they met.

use std::collections::HashSet;
use std::sync::Arc;

use crate::context::cause::{changed_view, Cause};
use crate::context::inputs::{digest_masks, is_same_tools};
use crate::context::Context;
use crate::error::Error;
use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::provider::options::Options;
use crate::request::body::Body;
use crate::request::fingerprint::is_all;
use crate::request::slice::{compare, Slice};
use crate::tokens::Method;
use crate::value::Value;
use crate::view::checking::{Checking, Unbound};
use crate::view::cover::cover_over;
use crate::view::{Stretch, View};

/// What the answers of some iterations were made on, beside the log.
struct Epoch<'a> {
    first: u64,
    last: u64,
    view: Option<&'a Arc<View>>,
    from: Option<u64>,
    max_result_bytes: Option<usize>,
    /// The system prompt, the tools or the masks are others than those of the next request.
    is_foreign: bool,
}

impl Context {
    /// Returns the iterations whose thinking the next request has to do without.
    pub(super) fn find_unbound(&self, options: &Options<'_>) -> Result<Unbound, Error> {
        self.find_unbound_behind(None, options)
    }

    /// Returns the same for a request with a system prompt that has this digest, else the log's.
    fn find_unbound_behind(
        &self,
        system: Option<Value>,
        options: &Options<'_>,
    ) -> Result<Unbound, Error> {
        let Some(checking) = Checking::of(options.provider, options.model) else {
            return Ok(Unbound::default());
        };
        let system = system.unwrap_or_else(|| self.inputs.digest_of(self.log.system.as_ref()));
        // Elements that go back as they were imported may be written otherwise as soon as anything is shown otherwise.
        let anew = Options {
            cache: true,
            ..options.clone()
        };
        let mut now = None;
        let mut found = HashSet::new();
        for epoch in self.epochs(system) {
            if self.is_asked_alike(&epoch, options) {
                continue;
            }
            let stretches = self.stretches(epoch.first, epoch.last);
            let shown = stretches.filter_map(|stretch| match stretch {
                Stretch::Iteration(iteration, _) => Some(iteration),
                Stretch::Cover(..) => None,
            });
            let thinking = shown.filter(|iteration| checking.binds_any_of(iteration));
            let thinking: Vec<&Iteration> = thinking.collect();
            let Some(first) = thinking.first() else {
                continue;
            };
            let differs_at = self.known_change(&epoch, options);
            let mut valid = 0;
            if first.number <= differs_at {
                let next = match &now {
                    Some(next) => next,
                    None => now.insert(Body::unchecked(self, &anew).lay_out()?.0),
                };
                let mut failed = Ok(());
                // What stands before an answer is the same as before each earlier one.
                valid = thinking.partition_point(|iteration| {
                    if iteration.number > differs_at {
                        return false;
                    }
                    let holds = self.still_begins(iteration, &epoch, &anew, next);
                    let holds = holds.map_err(|error| failed = Err(error));
                    holds.unwrap_or(false)
                });
                failed?;
            }
            let lost = thinking.iter().skip(valid);
            found.extend(lost.map(|iteration| iteration.number));
        }
        Ok(Unbound::new(checking, found))
    }

    /// Returns the tokens of the thinking that the next request has to do without, and that the last one did not leave out.
    pub(super) fn count_lost_thinking(&self, options: &Options<'_>) -> Result<u64, Error> {
        let next = self.find_unbound(options)?;
        if next.is_empty() {
            return Ok(0);
        }
        let last = self.last_answer().map(|(last, _)| last);
        let asked = last.and_then(|last| Some((last.number, self.as_asked(last, false)?)));
        let before = match &asked {
            Some((number, context)) => context.find_unbound_of(*number, options)?,
            None => Unbound::default(),
        };
        let is_new = |(number, _): &(u64, Checking)| before.of(*number).is_none();
        let lost = next
            .numbers()
            .filter(is_new)
            .flat_map(|(number, checking)| {
                let entries = self.log.get_numbered(number).into_iter();
                let entries = entries.flat_map(Iteration::entries);
                entries.filter(move |entry| checking.binds_any(&entry.message))
            });
        Ok(lost
            .map(|entry| entry.message.count(Method::Estimate).thinking)
            .sum())
    }

    /// Returns the iterations whose thinking the request of an iteration had to do without, with what was noted of that request.
    fn find_unbound_of(&self, number: u64, options: &Options<'_>) -> Result<Unbound, Error> {
        let (from, max_result_bytes) = self.noted_range(number);
        let options = Options {
            from,
            max_result_bytes,
            ..options.clone()
        };
        let noted = self.inputs.systems.of(number);
        self.find_unbound_behind(noted.map(|(_, system)| system.clone()), &options)
    }

    /// Returns the ranges of iterations whose requests had the same inputs, oldest first.
    fn epochs(&self, system: Value) -> impl Iterator<Item = Epoch<'_>> {
        let inputs = &self.inputs;
        let mut starts = inputs.starts();
        starts.insert(self.first_number());
        let starts: Vec<u64> = starts.into_iter().collect();
        let end = self.current_iteration();
        let ends = starts.iter().skip(1).map(|next| next.saturating_sub(1));
        let ends: Vec<u64> = ends.chain([end]).collect();
        let next = self.next_number();
        let tools = inputs.tools.of(next).map(|(_, tools)| tools);
        let masks = self.view().and_then(View::masks).map(digest_masks);
        starts
            .into_iter()
            .zip(ends)
            .filter(|(first, last)| first <= last)
            .map(move |(first, last)| {
                let noted = inputs.systems.of_or_first(first);
                let is_noted = inputs.systems.of(first).is_some();
                let own_tools = inputs.tools.of_or_first(first);
                let other_system = noted.is_some_and(|noted| *noted != system);
                let other_tools = own_tools
                    .zip(tools)
                    .is_some_and(|(own, tools)| !is_same_tools(own, tools));
                let other_masks = match inputs.masks_of(first) {
                    None => !is_noted && masks.is_some(),
                    own => own != masks.as_ref(),
                };
                let (from, max_result_bytes) = self.noted_range(first);
                Epoch {
                    first,
                    last,
                    view: inputs.of(first).and_then(|(_, view)| view),
                    from,
                    max_result_bytes,
                    is_foreign: other_system || other_tools || other_masks,
                }
            })
    }

    /// Returns whether an epoch's requests surely had what the next one has.
    fn is_asked_alike(&self, epoch: &Epoch<'_>, options: &Options<'_>) -> bool {
        let is_same_view = match (epoch.view, &self.view) {
            (None, None) => true,
            (Some(own), Some(next)) => Arc::ptr_eq(own, next),
            _ => false,
        };
        is_same_view
            && !epoch.is_foreign
            && epoch.from == options.from
            && epoch.max_result_bytes == options.max_result_bytes
    }

    /// Returns the first iteration that is known to look otherwise than in an epoch's requests, without writing any.
    fn known_change(&self, epoch: &Epoch<'_>, options: &Options<'_>) -> u64 {
        let plain = View::default();
        let own = epoch.view.map_or(&plain, |view| view);
        let next = self.view().unwrap_or(&plain);
        let shown = epoch.from.max(options.from).unwrap_or_default();
        let changes = changed_view(Some(own), Some(next)).into_iter();
        let places = changes.filter_map(|change| match change.cause {
            Cause::Block => Some(0),
            Cause::Hidden | Cause::Summarized => change.iteration.filter(|first| *first >= shown),
            Cause::Cleared => self.first_cleared(own, next, shown),
            _ => None,
        });
        let first = places.min().unwrap_or(u64::MAX);
        if epoch.is_foreign {
            0
        } else {
            first
        }
    }

    /// Returns the first iteration near the place where the results that one of two views clears begin whose results only one clears.
    fn first_cleared(&self, own: &View, next: &View, shown: u64) -> Option<u64> {
        const NEAR: u64 = 64;
        let places = [own, next].map(|view| view.cleared());
        let places = places.map(|place| place.map_or((0, 0), |one| (one.iteration, one.calls)));
        let (from, to) = (places.into_iter().min()?, places.into_iter().max()?);
        let first = from.0.max(shown).max(self.first_number());
        let is_cleared = |iteration: &Iteration| {
            let number = iteration.number;
            let calls = iteration.count_calls();
            let start = if number == from.0 { from.1 } else { 0 };
            let end = if number == to.0 { to.1 } else { calls };
            let hidden = |view: &View| cover_over(&view.covers, number).is_some();
            start < end.min(calls) && !hidden(own) && !hidden(next)
        };
        let numbers = first..=to.0.min(first.saturating_add(NEAR));
        let mut near = numbers.filter_map(|number| self.log.get_numbered(number));
        near.find(|iteration| is_cleared(iteration))
            .map(|iteration| iteration.number)
    }

    /// Returns whether what stood before an iteration's last answer is what stands before it in the next request.
    fn still_begins(
        &self,
        iteration: &Iteration,
        epoch: &Epoch<'_>,
        options: &Options<'_>,
        next: &[Slice<'_>],
    ) -> Result<bool, Error> {
        let number = i64::try_from(iteration.number).unwrap_or(i64::MAX);
        let mut log = self.log.rewind(number)?;
        let before = iteration.entries().rposition(Entry::is_model);
        log.keep_entries(before.unwrap_or_default());
        let before = |view, from, max_result_bytes| {
            let context = self.shown_as_asked(log.clone(), iteration.number, view);
            let options = Options {
                from,
                max_result_bytes,
                ..options.clone()
            };
            let (slices, _) = Body::unchecked(&context, &options).lay_out()?;
            let bytes = slices.iter().map(Slice::len).sum::<u64>();
            Ok((bytes, compare(&slices, next).0))
        };
        let (bytes, same) = before(epoch.view, epoch.from, epoch.max_result_bytes)?;
        if !is_all(bytes, same) {
            return Ok(false);
        }
        // The next request may have more in front of the answer that begins alike.
        let (now, _) = before(self.view.as_ref(), options.from, options.max_result_bytes)?;
        Ok(now == bytes)
    }
}
