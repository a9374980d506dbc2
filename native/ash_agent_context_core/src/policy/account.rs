//! The account of the provider's cache: for each request, how many tokens it should have read, how many it did, why not all of
//! them, and the cost of that.

use chrono::TimeDelta;

use crate::context::cache::{keeps_for_an_hour, lifetime, predict, LOOKED_THROUGH};
use crate::context::cause::{Cause, Request};
use crate::context::usage::Accounting;
use crate::context::Context;
use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::log::provider::Provider;
use crate::policy::diagnosis::Diagnosis;
use crate::prices::bill::Reported;
use crate::prices::rates::{Rates, Unit};
use crate::prices::usage::Usage;
use crate::value::time::Time;

/// Of ten tokens that should be read, this many make a hit.
const HIT: u64 = 9;

/// The outcome of a request at the provider's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// No request came before it.
    First,
    /// At least nine of ten tokens that should have been read were.
    Hit,
    /// It began with other bytes than the request before it.
    Broken(Cause),
    /// The time for which the provider keeps it had passed.
    Expired,
    /// A summary replaced messages of the request before it.
    Compacted,
    /// It surely began with all of the request before it, and its other fields were the same: the provider did not use its cache.
    Provider,
    /// No reason is known. Perhaps other bytes were sent than the log shows.
    Unexplained,
}

impl Outlook {
    /// Returns its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Hit => "hit",
            Self::Broken(_) => "broken",
            Self::Expired => "expired",
            Self::Compacted => "compacted",
            Self::Provider => "provider",
            Self::Unexplained => "unexplained",
        }
    }

    /// Returns the cause of the break, if it is one with a known cause.
    #[must_use]
    pub const fn cause(self) -> Option<Cause> {
        match self {
            Self::Broken(cause) => Some(cause),
            _ => None,
        }
    }
}

/// The account of one request and its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountRow {
    /// The number of its iteration.
    pub iteration: u64,
    /// The position of the answer among the messages of the iteration.
    pub position: usize,
    /// The provider that answered.
    pub provider: Option<Provider>,
    /// The model, as it names itself.
    pub model: Option<Box<str>>,
    /// The time at which it was sent.
    pub requested_at: Option<Time>,
    /// The time since the answer before it.
    pub since: Option<TimeDelta>,
    /// The reported tokens.
    pub usage: Usage,
    /// The tokens that should have been read from the cache.
    pub predicted: u64,
    /// The outcome.
    pub outlook: Outlook,
    /// The provider's own diagnosis, if it was asked for one.
    pub diagnosis: Option<Diagnosis>,
    /// The cost in 10^-12 US dollars.
    pub cost: Option<u64>,
    /// The part of the cost that came from tokens which should have been read from the cache and were not.
    pub avoidable: Option<u64>,
}

/// An answer with its iteration and the report on it.
type Answer<'a> = (&'a Iteration, &'a Entry, &'a Reported);

/// A request with its answer, and the facts about both.
struct Sent<'a> {
    iteration: &'a Iteration,
    entry: &'a Entry,
    reported: &'a Reported,
    request: Request<'a>,
    /// True if the last write stays in the cache for an hour.
    for_an_hour: bool,
}

impl Context {
    /// Returns a row for each request with reported tokens, oldest first.
    ///
    /// # Complexity
    /// O(messages from that iteration on)
    #[must_use]
    pub fn account(&self, accounting: &Accounting<'_>) -> Vec<AccountRow> {
        let mut before = self.before(accounting.since);
        let mut rows = Vec::new();
        let iterations = self.log.between(accounting.since, u64::MAX);
        for answer in iterations.flat_map(answers) {
            let sent = self.sent(answer, before.as_ref());
            rows.push(self.row(&sent, before.as_ref(), accounting));
            before = Some(sent);
        }
        rows
    }

    /// Returns the last request before an iteration.
    fn before(&self, number: u64) -> Option<Sent<'_>> {
        let mut back = self.log.between(0, number.checked_sub(1)?).rev();
        let last = back.find_map(|iteration| answers(iteration).next_back())?;
        let mut before = self.sent(last, None);
        if before.reported.last.written == 0 {
            let mut earlier = back.take(LOOKED_THROUGH).flat_map(answers);
            let wrote = earlier.find(|(.., reported)| reported.last.written > 0);
            before.for_an_hour = wrote.is_some_and(|(.., reported)| keeps_for_an_hour(reported));
        }
        Some(before)
    }

    fn sent<'a>(
        &'a self,
        (iteration, entry, reported): Answer<'a>,
        before: Option<&Sent<'_>>,
    ) -> Sent<'a> {
        let reply = entry.message.reply.as_deref();
        Sent {
            iteration,
            entry,
            reported,
            request: self.noted_request(iteration.number, reply),
            for_an_hour: match reported.last.written > 0 {
                true => keeps_for_an_hour(reported),
                false => before.is_some_and(|before| before.for_an_hour),
            },
        }
    }

    /// Returns whether all fields of both requests are known, and nothing that was sent before has changed.
    fn is_same_beside(&self, before: &Sent<'_>, next: &Sent<'_>) -> bool {
        before.request.is_known()
            && before.request.is_alike_beside(&next.request)
            && self.surely_continues(before.iteration, next.iteration)
    }

    fn row(
        &self,
        sent: &Sent<'_>,
        before: Option<&Sent<'_>>,
        accounting: &Accounting<'_>,
    ) -> AccountRow {
        let Sent {
            iteration,
            entry,
            reported,
            ..
        } = *sent;
        let reply = entry.message.reply.as_deref();
        let requested_at = reply.and_then(|reply| reply.requested_at);
        let both = requested_at
            .zip(before.and_then(|before| before.entry.message.reply.as_deref()?.ended_at()));
        let since = both.map(|(asked, ended)| asked.signed_duration_since(ended));
        let usage = reported.sum;
        let predicted = before.map_or(0, Sent::predict);
        let outlook = match before {
            Some(before) if predicted > 0 => {
                let outlook = before.judge(&sent.request, predicted, usage.cached, since);
                match outlook {
                    Outlook::Unexplained if self.is_same_beside(before, sent) => Outlook::Provider,
                    outlook => outlook,
                }
            }
            _ => Outlook::First,
        };
        let opened = iteration.started_at;
        let cost = accounting.prices.and_then(|prices| {
            let cost = prices.cost(entry, accounting.model, opened).ok()??;
            Some(cost.total())
        });
        let rates = accounting.rates(entry, opened);
        let lost = match outlook {
            Outlook::First | Outlook::Hit => 0,
            _ => predicted.saturating_sub(usage.cached),
        };
        let for_an_hour = keeps_for_an_hour(reported);
        let [fields, _tools] = sent.request.beside;
        let fields = fields.and_then(|(_, fields)| fields.as_map());
        let diagnosis = reply.and_then(|reply| Diagnosis::read(reply, fields));
        AccountRow {
            iteration: iteration.number,
            position: entry.position,
            provider: sent.request.provider,
            model: sent.request.model.map(Into::into),
            requested_at,
            since,
            usage,
            predicted,
            outlook,
            // The first request has none to compare with.
            diagnosis: diagnosis.filter(|_| before.is_some()),
            cost,
            avoidable: rates.map(|rates| price_of_losing(rates, lost, &usage, for_an_hour)),
        }
    }
}

/// Returns the answers of an iteration with reported tokens.
fn answers(iteration: &Iteration) -> impl DoubleEndedIterator<Item = Answer<'_>> {
    let answers = iteration.entries().filter(|entry| entry.is_model());
    let reported =
        answers.filter_map(move |entry| Some((iteration, entry, entry.usage.as_deref()?)));
    reported.filter(|(.., reported)| reported.sum.input > 0)
}

impl Sent<'_> {
    /// Returns the tokens that the next request reads if it begins with this one.
    fn predict(&self) -> u64 {
        predict(self.request.provider, &self.reported.last, u64::MAX)
    }

    fn judge(
        &self,
        next: &Request<'_>,
        predicted: u64,
        read: u64,
        since: Option<TimeDelta>,
    ) -> Outlook {
        if read.saturating_mul(10) >= predicted.saturating_mul(HIT) {
            return Outlook::Hit;
        }
        let is_expired = || Some(since? > lifetime(self.request.provider?, self.for_an_hour)?);
        let change = next.changes_since(&self.request).first().copied();
        match change.map(|change| change.cause) {
            Some(Cause::Summarized) => Outlook::Compacted,
            Some(cause) => Outlook::Broken(cause),
            None if is_expired() == Some(true) => Outlook::Expired,
            None => Outlook::Unexplained,
        }
    }
}

/// Returns the extra cost of tokens that were written to the cache, or sent uncached, instead of being read from it.
fn price_of_losing(rates: &Rates, lost: u64, usage: &Usage, for_an_hour: bool) -> u64 {
    let rate = |unit| rates.rate(unit, usage.input).unwrap_or_default();
    let paid = match (usage.written > 0, for_an_hour) {
        (true, true) => rate(Unit::CacheWriteHour),
        (true, false) => rate(Unit::CacheWrite),
        (false, _) => rate(Unit::Input),
    };
    lost.saturating_mul(paid.saturating_sub(rate(Unit::CacheRead)))
}
