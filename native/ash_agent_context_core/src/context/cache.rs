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
use crate::prices::usage::Usage;
use crate::provider::facts::Cache;
use crate::value::time::Time;
use crate::value::Value;
use crate::view::View;

/// So many answers are searched for the last one that wrote to the cache.
pub(crate) const LOOKED_THROUGH: usize = 64;

/// Counting more blocks since the last request would change nothing.
const MOST_BLOCKS: usize = 1_000;

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
        let Some((_, entry)) = self.last_answer() else {
            return false;
        };
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

    /// Returns the differences of the next request from the last one; none if nothing is known of the last one.
    pub(crate) fn changes_of_next(&self) -> Vec<RequestChange> {
        let Some((last, entry)) = self.last_answer() else {
            return Vec::new();
        };
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

    /// Returns how many blocks of content were added since the last request: the parts and calls of its answer, their
    /// results, and messages of people.
    pub(crate) fn count_new_blocks(&self) -> usize {
        let mut blocks = 0;
        for iteration in self.log.iterations_back() {
            for entry in iteration.entries().rev() {
                // Each call has a block of its own, and so has its result.
                let message = &entry.message;
                blocks += message.content.count_parts() + 2 * message.calls.len();
                if entry.is_model() || blocks > MOST_BLOCKS {
                    return blocks;
                }
            }
        }
        blocks
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
