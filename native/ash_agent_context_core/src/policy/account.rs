//! The account of the provider's cache: for each request, how many tokens it should have read, how many it did, why not all of
//! them, and the cost of that.

use std::convert::Infallible;

use chrono::TimeDelta;

use crate::context::cache::{find_least, keeps_for_an_hour, lifetime, predict, LOOKED_THROUGH};
use crate::context::cause::{Cause, Request};
use crate::context::usage::Accounting;
use crate::context::Context;
use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::log::part::PartKind;
use crate::log::provider::Provider;
use crate::policy::diagnosis::Diagnosis;
use crate::prices::bill::Reported;
use crate::prices::rates::{Rates, Unit};
use crate::prices::usage::Usage;
use crate::provider::facts::{kind_of, Cache};
use crate::provider::options::Options;
use crate::value::cost::Cost;
use crate::value::time::Time;
use crate::view::cover::Cover;
use crate::view::View;

/// Of ten tokens that should be read, this many make a hit.
const HIT: u64 = 9;

/// The beginning of the type of a provider's own summary.
const COMPACTION: &str = "compaction";

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
    /// A summary replaced messages of the request before it, or its provider did that with its own.
    Compacted,
    /// A policy cleared results of the request before it, since that is cheaper in the end.
    Cleared,
    /// A policy hid iterations of the request before it, so that it stays within a limit.
    Hidden,
    /// Nobody asked the provider to keep anything, although it keeps nothing else.
    Unasked,
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
            Self::Cleared => "cleared",
            Self::Hidden => "hidden",
            Self::Unasked => "unasked",
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
        let always = |_| Ok::<(), Infallible>(());
        match self.try_account(accounting, always) {
            Ok(rows) => rows,
            Err(never) => match never {},
        }
    }

    /// Does the same, or ends with the error of `allow`, which gets the cost of making two requests again, as a row without a cause may
    /// do.
    ///
    /// # Errors
    /// Those of `allow`.
    pub fn try_account<E>(
        &self,
        accounting: &Accounting<'_>,
        allow: impl Fn(Cost) -> Result<(), E>,
    ) -> Result<Vec<AccountRow>, E> {
        let mut before = self.before(accounting.since, |_| true);
        let mut rows = Vec::new();
        let iterations = self.log.between(accounting.since, u64::MAX);
        for answer in iterations.flat_map(answers) {
            let sent = self.sent(answer, before.as_ref());
            rows.push(self.row(&sent, before.as_ref(), accounting, &allow)?);
            before = Some(sent);
        }
        Ok(rows)
    }

    /// Returns the cost of [`Context::account`] from an iteration on, without making requests again.
    #[must_use]
    pub fn account_cost(&self, since: u64) -> Cost {
        let rows = self.current_iteration().saturating_sub(since);
        if rows > LOOKED_THROUGH as u64 {
            return self.find_call_cost();
        }
        let iterations = self.log.between(since.saturating_sub(1), u64::MAX);
        let read = iterations.map(|iteration| iteration.size().terms + LOOKED_THROUGH);
        Cost::steps(read.sum())
    }

    /// Returns the last request before an iteration, of those that an answer is such a one of.
    fn before(&self, number: u64, is_meant: impl Fn(&Answer<'_>) -> bool) -> Option<Sent<'_>> {
        let mut behind = number;
        let mut reported_before = std::iter::from_fn(move || {
            let last = self.log.get_numbered(behind.checked_sub(1)?)?;
            behind = last.reported?;
            self.log.get_numbered(behind)
        });
        let mut back = reported_before.by_ref().take(LOOKED_THROUGH);
        let last =
            back.find_map(|iteration| answers(iteration).rfind(|answer| is_meant(answer)))?;
        let mut before = self.sent(last, None);
        if before.reported.last.written == 0 {
            let mut earlier = reported_before.take(LOOKED_THROUGH).flat_map(answers);
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

    /// Returns whether a provider that counts each block does not look back as far as the end of the last request.
    fn is_out_of_sight(&self, before: &Sent<'_>, next: &Sent<'_>) -> bool {
        let [from, until] = [before, next].map(|sent| (sent.iteration.number, sent.entry.position));
        let look_back = before
            .request
            .provider
            .and_then(|of| match of.facts().cache {
                Cache::Marked { look_back, .. } => Some(look_back),
                _ => None,
            });
        // Servers that speak a provider's format may count otherwise than the provider.
        look_back
            .is_some_and(|most| self.count_positions(Provider::Bedrock, from, Some(until)) >= most)
    }

    fn row<E>(
        &self,
        sent: &Sent<'_>,
        before: Option<&Sent<'_>>,
        accounting: &Accounting<'_>,
        allow: impl Fn(Cost) -> Result<(), E>,
    ) -> Result<AccountRow, E> {
        let Sent {
            iteration,
            entry,
            reported,
            ..
        } = *sent;
        let reply = entry.message.reply.as_deref();
        let requested_at = reply.and_then(|reply| reply.requested_at);
        let both = requested_at.zip(before.and_then(Sent::ended_at));
        let since = both.map(|(asked, ended)| asked.signed_duration_since(ended));
        let usage = reported.sum;
        // Each model has a cache of its own, which may have an earlier request.
        let is_switched = before.is_some_and(|before| sent.request.is_of_other(&before.request));
        let is_own = |answer: &Answer<'_>| {
            let earlier = self.sent(*answer, None);
            !sent.request.is_of_other(&earlier.request)
        };
        let earlier = is_switched.then(|| self.before(iteration.number, is_own));
        let compared = earlier.as_ref().map_or(before, Option::as_ref);
        let predicted = compared.map_or(0, Sent::predict);
        let outlook = match compared {
            Some(last) if predicted > 0 => {
                let idle = requested_at
                    .zip(last.ended_at())
                    .map(|(asked, ended)| asked - ended);
                match last.judge(&sent.request, predicted, usage.cached, idle) {
                    Outlook::Unexplained if is_switched => Outlook::Broken(Cause::Model),
                    Outlook::Unexplained if last.is_compacted() => Outlook::Compacted,
                    Outlook::Unexplained if self.is_out_of_sight(last, sent) => {
                        Outlook::Broken(Cause::LookBack)
                    }
                    Outlook::Unexplained => {
                        let provider = sent.request.provider.unwrap_or_default();
                        allow(self.encode_cost(&Options::new(provider)).times(2))?;
                        match self.is_same_beside(last, sent) {
                            true => Outlook::Provider,
                            false => Outlook::Unexplained,
                        }
                    }
                    outlook => outlook,
                }
            }
            _ if sent.is_unasked() => Outlook::Unasked,
            _ if is_switched => Outlook::Broken(Cause::Model),
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
            Outlook::Cleared | Outlook::Hidden | Outlook::Broken(Cause::Model) => 0,
            Outlook::Compacted if compared.is_some_and(Sent::is_compacted) => 0,
            _ => predicted.saturating_sub(usage.cached),
        };
        let for_an_hour = keeps_for_an_hour(reported);
        let [fields, _tools] = sent.request.beside;
        let fields = fields.and_then(|(_, fields)| fields.as_map());
        let diagnosis = reply.and_then(|reply| Diagnosis::read(reply, fields));
        Ok(AccountRow {
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
            avoidable: rates.map(
                |rates| match before.filter(|_| outlook == Outlook::Unasked) {
                    Some(before) => before.price_of_silence(sent, rates, since),
                    None => price_of_losing(rates, lost, &usage, for_an_hour),
                },
            ),
        })
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

    /// Returns the time of its answer.
    fn ended_at(&self) -> Option<Time> {
        self.entry.message.reply.as_deref()?.ended_at()
    }

    /// Returns whether its provider replaced messages by a summary of its own in the answer.
    fn is_compacted(&self) -> bool {
        let parts = self.entry.message.content.parts();
        parts.iter().any(|part| match &part.kind {
            PartKind::ProviderBlock { data, .. } => kind_of(data).starts_with(COMPACTION),
            _ => false,
        })
    }

    /// Returns whether the provider keeps nothing that is not asked for, and was not asked, although the request was long enough.
    fn is_unasked(&self) -> bool {
        let usage = self.reported.sum;
        let [fields, _tools] = self.request.beside;
        let is_asked = fields.is_some_and(|(_, of)| {
            of.as_map()
                .is_some_and(|of| of.get_named("cache").is_some())
        });
        let provider = self.request.provider;
        let marked = provider.is_some_and(|of| matches!(of.facts().cache, Cache::Marked { .. }));
        let least = provider.map_or(0, |of| find_least(&of.facts().cache, self.request.model));
        marked && !is_asked && usage.cached + usage.written == 0 && usage.input >= least
    }

    /// Returns how much less the next request would have cost, had both been asked to be kept.
    fn price_of_silence(&self, next: &Sent<'_>, rates: &Rates, since: Option<TimeDelta>) -> u64 {
        let is_kept = || Some(since? <= lifetime(self.request.provider?, false)?);
        if is_kept() != Some(true) || !next.request.changes_since(&self.request).is_empty() {
            return 0;
        }
        let usage = next.reported.sum;
        let rate = |unit| rates.rate(unit, usage.input).unwrap_or_default();
        let read = usage.input.min(self.reported.last.input);
        let saved = read.saturating_mul(rate(Unit::Input).saturating_sub(rate(Unit::CacheRead)));
        let more = rate(Unit::CacheWrite).saturating_sub(rate(Unit::Input));
        saved.saturating_sub((usage.input - read).saturating_mul(more))
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
        let cleared = next.view.flatten().and_then(View::cleared);
        let is_over = |number, (first, cover): (u64, &Cover)| {
            first <= number && number <= cover.last && cover.by_policy
        };
        let is_chosen = || {
            let number = change?.iteration?;
            Some(next.view??.covers().any(|cover| is_over(number, cover)))
        };
        match change.map(|change| change.cause) {
            Some(Cause::Summarized) => Outlook::Compacted,
            Some(Cause::Cleared) if cleared.is_some_and(|of| of.by_policy) => Outlook::Cleared,
            Some(Cause::Hidden) if is_chosen() == Some(true) => Outlook::Hidden,
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
