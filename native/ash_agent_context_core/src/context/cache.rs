//! Knowledge of a provider's cache before the next request: how long it keeps a request, whether that time is over, and
//! whether the request begins otherwise than the one before it.

use std::sync::Arc;

use chrono::TimeDelta;

use crate::context::cause::{Cause, Request, RequestChange};
use crate::context::inputs::{digest, digest_masks};
use crate::context::Context;
use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::log::provider::Provider;
use crate::log::reply::Reply;
use crate::log::Log;
use crate::prices::bill::{Count, Reported};
use crate::prices::list::strip_date;
use crate::prices::usage::Usage;
use crate::provider::facts::Cache;
use crate::value::time::Time;
use crate::value::Value;
use crate::view::View;

/// Most models do not cache requests of fewer tokens.
const LEAST: u64 = 1024;

/// So many answers are searched for the last one that wrote to the cache.
pub(crate) const LOOKED_THROUGH: usize = 64;

/// So many answers tell whether a conversation goes on.
const TRIALS: usize = 5;

/// What reading a token saves, and writing one costs beyond an ordinary token, of a thousand; and the loss that is risked of each.
const SAVED: i128 = 900;
const PAID: i128 = 250;
const RISKED: i128 = 18;

/// Most tokens have so many bytes of a request, or more.
const BYTES: u64 = 4;

/// What is worth being written to the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Worth {
    /// Everything.
    All,
    /// So many tokens of so many.
    UpTo(u64, u64),
    /// Nothing but the system prompt.
    Nothing,
}

/// Counting more positions since the last request would change nothing.
const MOST_POSITIONS: usize = 1_000;

impl Context {
    /// Returns the newest answer of a model, with its iteration.
    pub(crate) fn last_answer(&self) -> Option<(&Iteration, &Entry)> {
        let mut back = self.log.iterations_back();
        back.find_map(|iteration| {
            let mut entries = iteration.entries().rev();
            Some((iteration, entries.find(|entry| entry.is_model())?))
        })
    }

    /// Returns the id that its provider gave the newest answer.
    #[must_use]
    pub fn last_response_id(&self) -> Option<&str> {
        let (_, entry) = self.last_answer()?;
        entry.message.reply.as_deref()?.id.as_deref()
    }

    /// Returns true if the provider surely has nothing in its cache any more, or never had, where it says how long it keeps
    /// it.
    #[must_use]
    pub fn has_cold_cache(&self, at: Time) -> bool {
        self.last_answer()
            .is_some_and(|(_, entry)| self.is_cold(entry, at))
    }

    /// Returns the same of what a request and its answer left there.
    pub(crate) fn is_cold(&self, entry: &Entry, at: Time) -> bool {
        let reply = entry.message.reply.as_deref();
        let provider = reply.and_then(|reply| reply.provider);
        // The longest time is assumed where the last write is not known.
        let for_an_hour = self.wrote_for_an_hour() != Some(false);
        let Some(lifetime) = provider.and_then(|of| lifetime(of, for_an_hour)) else {
            return false;
        };
        let reported = entry.usage.as_deref();
        if reported.is_some_and(|reported| reported.last.cached + reported.last.written == 0) {
            return true; // nothing is marked, or it is too short
        }
        let ended = reply.and_then(Reply::ended_at);
        // A request that was cut off read the rest.
        let later = self.rewound().filter(|cut| cut.provider == provider);
        let ended = ended.max(later.and_then(|cut| cut.ended_at));
        ended.is_some_and(|ended| at.signed_duration_since(ended) > lifetime)
    }

    /// Returns true if the last write stays for an hour; `None` where nothing was written.
    pub(crate) fn wrote_for_an_hour(&self) -> Option<bool> {
        let back = self.log.iterations_back().take(LOOKED_THROUGH);
        let entries = back.flat_map(|iteration| iteration.entries().rev());
        let mut reports = entries.filter_map(|entry| entry.usage.as_deref());
        let written = reports.find(|reported| reported.last.written > 0)?;
        Some(keeps_for_an_hour(written))
    }

    /// Returns true if the next request surely begins otherwise than the last one: other hidden iterations, summaries or
    /// texts after the system prompt, another system prompt, other tools, another model, or another form of the answer.
    #[must_use]
    pub fn begins_anew(&self) -> bool {
        let mut changes = self.changes_of_next().into_iter();
        changes.any(|change| change.cause != Cause::Cleared)
    }

    /// Returns the newest answer of a model that is asked by this name, if other ones answered since.
    pub(crate) fn last_answer_of(
        &self,
        asked: (Provider, &str),
        before: u64,
    ) -> Option<(&Iteration, &Entry)> {
        let back = self.log.between(0, before).rev().take(LOOKED_THROUGH);
        let mut answers = back.filter_map(|iteration| {
            let mut entries = iteration.entries().rev();
            Some((iteration, entries.find(|entry| entry.is_model())?))
        });
        answers.find(|(iteration, entry)| self.is_of(iteration, entry, asked))
    }

    /// Returns whether a model that is asked by this name gave an answer, as far as that is known.
    pub(crate) fn is_of(
        &self,
        iteration: &Iteration,
        entry: &Entry,
        (provider, model): (Provider, &str),
    ) -> bool {
        if entry.provider().is_some_and(|of| of != provider) {
            return false;
        }
        let [fields, _tools] = self.inputs.request_of(iteration.number);
        let asked = fields.and_then(|(_, fields)| fields.as_map()?.get_named("model")?.as_str());
        let named = entry
            .message
            .reply
            .as_deref()
            .and_then(|reply| reply.model.as_deref());
        let is_it = |named: &str| named == model || strip_date(named) == Some(model);
        // The name of an answer may leave out where its model runs.
        let is_like =
            |named: &str| is_it(named) || named.ends_with(model) || model.ends_with(named);
        match asked {
            Some(asked) => asked == model || named.is_some_and(is_it),
            // A name without a hyphen may be an alias.
            None => named.is_none_or(|named| !named.contains('-') || is_like(named)),
        }
    }

    /// Returns the differences of the next request from the last one; none if nothing is known of the last one.
    pub(crate) fn changes_of_next(&self) -> Vec<RequestChange> {
        let last = self.last_answer();
        last.map_or_else(Vec::new, |(last, entry)| {
            self.changes_since_answer(last, entry)
        })
    }

    /// Returns the differences of the next request from the one for an answer.
    pub(crate) fn changes_since_answer(
        &self,
        last: &Iteration,
        entry: &Entry,
    ) -> Vec<RequestChange> {
        let reply = entry.message.reply.as_deref();
        let Some(reply) = reply.filter(|reply| reply.requested_at.is_some()) else {
            return Vec::new();
        };
        let next = Request {
            view: Some(self.view()),
            system: Some(digest(self.system())),
            masks: Some(self.view().and_then(View::masks).map(digest_masks)),
            ..self.noted_request(self.next_number(), None)
        };
        next.changes_since(&self.noted_request(last.number, Some(reply)))
    }

    /// Returns what the last answers reported, newest first.
    pub(crate) fn last_usages(&self) -> impl Iterator<Item = Usage> + '_ {
        let back = self.log.iterations_back().take(LOOKED_THROUGH);
        let entries = back.flat_map(|iteration| iteration.entries().rev());
        let reports = entries.filter_map(|entry| entry.usage.as_deref());
        reports.map(|reported| reported.last)
    }

    /// Returns the tokens of the request for the last answer of an iteration, as reported.
    pub(crate) fn count_asked(&self, number: u64) -> Option<u64> {
        let mut entries = self.log.get_numbered(number)?.entries().rev();
        let answer = entries.find(|entry| entry.is_model())?;
        Some(answer.usage.as_deref()?.last.input)
    }

    /// Returns what the next request should write to the cache. Nobody knows whether another one will follow to read it. So the
    /// first answers have to cover it: by what reading has saved, and by a share of all tokens. Later everything is written,
    /// unless this has cost more than it saved. `new`: the bytes that the last request did not have.
    pub(crate) fn find_worth(&self, new: u64) -> Worth {
        let mut reports = self.last_usages();
        let Some(last) = reports.next() else {
            return Worth::All;
        };
        let usage = self.usage();
        let saved = SAVED * i128::from(usage.cached) + RISKED * i128::from(usage.input);
        let paid = PAID * i128::from(usage.written);
        if reports.nth(TRIALS - 2).is_some() {
            // The last write may still be read.
            return match saved + PAID * i128::from(last.written) >= paid {
                true => Worth::All,
                false => Worth::Nothing,
            };
        }
        let read = last.cached.saturating_add(last.written);
        // What is new is only estimated.
        let tokens = self
            .count_tokens(None)
            .max(last.input.saturating_add(new / BYTES));
        let covered = saved - paid + SAVED * i128::from(read) + RISKED * i128::from(tokens);
        let most = i128::from(read) + covered.max(RISKED * i128::from(tokens)) / PAID;
        match u64::try_from(most).unwrap_or(u64::MAX) {
            most if most >= tokens => Worth::All,
            most => Worth::UpTo(most, tokens),
        }
    }

    /// Returns how many positions a request has beyond the one for an answer, as its provider counts them: parts and calls of
    /// answers, results, and messages of people. `until`: the request for the answer there, or the next request.
    pub(crate) fn count_positions(
        &self,
        provider: Provider,
        from: (u64, usize),
        until: Option<(u64, usize)>,
    ) -> usize {
        let as_run =
            matches!(provider.facts().cache, Cache::Marked { counts_runs, .. } if counts_runs);
        let last = until.map_or(u64::MAX, |(number, _)| number);
        let mut count = 0;
        for iteration in self.log.between(from.0, last) {
            for entry in iteration.entries() {
                let place = (iteration.number, entry.position);
                if place < from || count > MOST_POSITIONS {
                    continue;
                }
                if until.is_some_and(|until| place >= until) {
                    return count;
                }
                let calls = entry.message.calls.len();
                if entry.message.is_arrival() {
                    count += 1;
                    continue;
                }
                // The results stand behind the calls.
                let calls = if as_run { calls.min(1) } else { calls };
                count += entry.message.content.count_parts() + 2 * calls;
            }
        }
        count
    }

    /// Returns the iterations of the first result that was not cleared in the last request, if its view is known, and of that which is
    /// not in the next one.
    pub(crate) fn first_uncleared(&self) -> [Option<u64>; 2] {
        let first = |view: Option<&View>| {
            let cleared = view.and_then(View::cleared)?;
            let iteration = self.log.get_numbered(cleared.iteration);
            let is_all = iteration.is_some_and(|of| of.count_calls() <= cleared.calls);
            Some(cleared.iteration.saturating_add(u64::from(is_all)))
        };
        let own = first(self.view());
        let last = self.last_answer();
        let asked = last.and_then(|(last, _)| self.inputs.of(last.number));
        let last = asked.map(|(_, view)| first(view.map(|view| &**view)));
        [last.unwrap_or(own), own]
    }

    /// Returns true if the last request is known to have had tools.
    pub(crate) fn had_tools(&self) -> bool {
        let last = self.last_answer();
        let noted = last.and_then(|(last, _)| self.inputs.tools.of(last.number));
        matches!(noted, Some((_, Value::List(tools))) if !tools.is_empty())
    }

    /// Returns true if the masks of the last request are known.
    pub(crate) fn has_asked_masks(&self) -> bool {
        let last = self.last_answer();
        let today = self.view().and_then(|view| view.masks.as_ref());
        last.is_some_and(|(last, _)| self.inputs.masks_at_hand(last.number, today).is_some())
    }

    /// Returns the conversation that the last answer of an iteration was asked of, as far as that is known: with the system
    /// prompt of today, and with the masks of today unless those of the last request are known. `under_last`: under
    /// the view of the request before, if there was one.
    ///
    /// # Complexity
    /// O(log n), or O(the log) where the masks of today hold for notes and summaries that were made under others
    #[must_use]
    pub fn as_asked(&self, iteration: &Iteration, under_last: bool) -> Option<Self> {
        let own = self.inputs.of(iteration.number)?;
        let last = self.inputs.of(iteration.number.saturating_sub(1));
        let (_, view) = last.filter(|_| under_last).unwrap_or(own);
        let before = iteration.entries().rposition(Entry::is_model)?;
        let reply = iteration.entry(before)?.message.reply.as_deref();
        reply.filter(|reply| reply.requested_at.is_some())?;
        let number = i64::try_from(iteration.number).ok()?;
        let mut log = self.log.rewind(number).ok()?;
        log.keep_entries(before);
        Some(self.shown_as_asked(log, iteration.number, view))
    }

    /// Returns an earlier log under a view, with the masks of an iteration's request.
    pub(crate) fn shown_as_asked(&self, log: Log, number: u64, view: Option<&Arc<View>>) -> Self {
        let mut next = self.with(log);
        next.tallies = Default::default();
        next.view = view.cloned();
        let today = self.view().and_then(|view| view.masks.as_ref());
        let masks = match self.inputs.masks_at_hand(number, today) {
            Some(masks) => masks.cloned(),
            None => today.cloned(),
        };
        if next.view.is_some() || masks.is_some() {
            let digest = masks.as_deref().map(digest_masks);
            // Notes and summaries may have been made under other masks, which a stored view does not have.
            let is_masked = digest.is_none() || digest.as_ref() == self.inputs.masks_of(number);
            next.change_view(|view| view.masks = masks);
            if !is_masked {
                next.mask_covers(None);
            }
            next.show_system();
        }
        next
    }

    /// Returns the number of the iteration that the next request belongs to.
    pub(crate) fn next_number(&self) -> u64 {
        match self.is_closed() {
            true => self.current_iteration().saturating_add(1),
            false => self.current_iteration(),
        }
    }
}

/// Returns whether a model is known to keep in its provider's cache what is marked there. It needs no mark, or may refuse one, if not.
#[must_use]
pub fn caches(provider: Provider, model: &str) -> bool {
    matches!(provider.facts().cache, Cache::Marked { knows, .. } if knows(model))
}

/// Returns how long a provider keeps a request in its cache, if it says so.
pub(crate) fn lifetime(provider: Provider, for_an_hour: bool) -> Option<TimeDelta> {
    let Cache::Marked {
        minutes, longest, ..
    } = &provider.facts().cache
    else {
        return None;
    };
    let minutes = if for_an_hour { longest } else { minutes };
    Some(TimeDelta::minutes(*minutes))
}

/// Returns the tokens of the shortest request that a provider caches.
pub(crate) fn find_least(cache: &Cache, model: Option<&str>) -> u64 {
    let Cache::Marked { least, .. } = cache else {
        return LEAST;
    };
    // Bedrock and others write versions with dots.
    let model = model.unwrap_or_default().replace('.', "-");
    let mut tables = least.iter().flat_map(|table| table.iter());
    let known = tables.find(|(word, _)| model.contains(word));
    known.map_or(LEAST, |(_, least)| *least)
}

/// Returns how many tokens a provider reads from its cache for a request that begins as one with this usage did, up to so
/// many.
pub(crate) fn predict(provider: Option<Provider>, usage: &Usage, most: u64) -> u64 {
    match provider.map(|provider| &provider.facts().cache) {
        Some(Cache::Rounded { least, block }) if usage.written == 0 => {
            match usage.input.min(most) {
                input if input >= *least => input / block * block,
                _ => 0,
            }
        }
        _ => usage.cached.saturating_add(usage.written).min(most),
    }
}

/// Returns true if some of the tokens written to the cache stay for an hour.
pub(crate) fn keeps_for_an_hour(reported: &Reported) -> bool {
    let bills = reported.bills();
    bills.iter().any(|bill| bill.count(Count::WrittenHour) > 0)
}
