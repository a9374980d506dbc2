//! What is known of a provider's cache before the next request: how long it keeps a request, whether that time is over, and
//! whether the request begins otherwise than the one before it.

use chrono::TimeDelta;

use crate::context::Context;
use crate::log::bill::{Count, Report, Reported};
use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::log::provider::Provider;
use crate::value::time::Time;
use crate::value::Value;
use crate::view::View;

/// How many answers are looked through for the last one that wrote to the cache.
const LOOKED_THROUGH: usize = 64;

/// Whoever is asked: another one has another cache.
const ASKED: [&str; 3] = ["provider", "server", "model"];

/// Fields of a body that say which form the answer has. Providers put them before the messages.
const FORMS: [&str; 6] = [
    "response_format",
    "text",
    "format",
    "output_format",
    "output_config",
    "outputConfig",
];

/// Fields after whose change Anthropic reads no message from its cache.
const OF_ANTHROPIC: [&str; 2] = ["thinking", "tool_choice"];

impl Context {
    /// The newest answer of a model, with its iteration.
    pub(crate) fn last_answer(&self) -> Option<(&Iteration, &Entry)> {
        let mut back = self.log.iterations_back();
        back.find_map(|iteration| {
            let mut entries = iteration.entries().rev();
            Some((iteration, entries.find(|entry| entry.is_model())?))
        })
    }

    /// Tells whether the provider surely has nothing in its cache any more, or never had. Only Anthropic and Bedrock say
    /// how long they keep it; each request that reads it begins that time anew.
    #[must_use]
    pub fn has_cold_cache(&self, at: Time) -> bool {
        let Some((_, entry)) = self.last_answer() else {
            return false;
        };
        let reply = entry.message.reply.as_deref();
        let provider = reply.and_then(|reply| reply.provider);
        if !matches!(provider, Some(Provider::Anthropic | Provider::Bedrock)) {
            return false;
        }
        let reported = entry.usage.as_deref();
        if reported.is_some_and(|reported| reported.last.cached + reported.last.written == 0) {
            return true; // nothing is marked, or it is too short
        }
        let ended = reply.and_then(|reply| reply.received_at.or(reply.requested_at));
        ended.is_some_and(|ended| at.signed_duration_since(ended) > self.cache_lifetime())
    }

    /// How long Anthropic and Bedrock keep what was written last; the longest time where that is not known.
    pub(crate) fn cache_lifetime(&self) -> TimeDelta {
        let back = self.log.iterations_back().take(LOOKED_THROUGH);
        let entries = back.flat_map(|iteration| iteration.entries().rev());
        let mut reports = entries.filter_map(|entry| entry.usage.as_deref());
        let written = reports.find(|reported| reported.last.written > 0);
        match written.is_some_and(|reported| !keeps_for_an_hour(reported)) {
            true => TimeDelta::minutes(5),
            false => TimeDelta::hours(1),
        }
    }

    /// Tells whether the next request surely begins otherwise than the last one: other hidden iterations, summaries or
    /// blocks, other tools, another model, or another form of the answer.
    #[must_use]
    pub fn begins_anew(&self) -> bool {
        let Some((last, entry)) = self.last_answer() else {
            return false;
        };
        let reply = entry.message.reply.as_deref();
        if reply.is_none_or(|reply| reply.requested_at.is_none()) {
            return false; // nothing is known of its request
        }
        let before = self.asked.of(last.number);
        if before.is_some_and(|(_, view)| !View::begin_alike(view.map(|view| &**view), self.view()))
        {
            return true;
        }
        let before = self.asked.request_of(last.number);
        let next = self.asked.request_of(self.next_number());
        let mut notes = before.into_iter().zip(next);
        let (fields, tools) = (notes.next(), notes.next());
        let is_anthropic = reply.and_then(|reply| reply.provider) == Some(Provider::Anthropic);
        changed(tools).is_some()
            || changed(fields)
                .is_some_and(|(before, next)| ask_otherwise(before, next, is_anthropic))
    }

    /// The number of the iteration that the next request belongs to.
    pub(crate) fn next_number(&self) -> u64 {
        match self.is_closed() {
            true => self.current_iteration().saturating_add(1),
            false => self.current_iteration(),
        }
    }
}

/// A note of two requests, with the iterations since which it holds.
type Notes<'a> = Option<(Option<(u64, &'a Value)>, Option<(u64, &'a Value)>)>;

/// Both values, where they are known and not the same.
fn changed<'a>(notes: Notes<'a>) -> Option<(&'a Value, &'a Value)> {
    let (before, next) = notes?;
    let ((since, before), (later, next)) = (before?, next?);
    (since != later && before != next).then_some((before, next))
}

/// Tells whether fields that stand before all messages, or decide who is asked, are not the same.
fn ask_otherwise(before: &Value, next: &Value, is_anthropic: bool) -> bool {
    let field = |of: &'_ Value, name: &str| match of {
        Value::Map(map) => map.get_named(name).cloned(),
        _ => None,
    };
    let differs = |before: &Value, next: &Value, names: &[&str]| {
        let mut names = names.iter();
        names.any(|name| field(before, name) != field(next, name))
    };
    let bodies = [before, next].map(|fields| field(fields, "body").unwrap_or(Value::Nil));
    let [before_body, next_body] = &bodies;
    differs(before, next, &ASKED)
        || differs(before_body, next_body, &FORMS)
        || is_anthropic && differs(before_body, next_body, &OF_ANTHROPIC)
}

/// Tells whether some of what was written to the cache stays for an hour.
fn keeps_for_an_hour(reported: &Reported) -> bool {
    let report = Report {
        usage: reported.last,
        bills: reported.bills.clone(),
    };
    report.count(Count::WrittenHour) > 0
}
