//! Forecasts how much the next request will read from the provider's cache, by the bytes that it shares with the last one.

use crate::context::cache::{find_least, predict, Worth};
use crate::context::cause::{Cause, RequestChange};
use crate::context::inputs::is_same_tools;
use crate::context::rewound::Rewound;
use crate::context::usage::Accounting;
use crate::context::Context;
use crate::error::Error;
use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::log::provider::Provider;
use crate::prices::rates::{Rates, Unit};
use crate::prices::usage::Usage;
use crate::provider::facts::Cache;
use crate::provider::options::Options;
use crate::request::body::Body;
use crate::request::fingerprint::{find_differing, is_all, SentItem};
use crate::request::slice::{compare, Slice};
use crate::tokens::Method;
use crate::value::time::Time;
use crate::value::{json, Value};

/// A loss of less than this part is none.
const NEARLY: u64 = 50;

/// The forecast for the next request at the provider's cache.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forecast {
    /// The bytes of its system prompt and messages.
    pub bytes: u64,
    /// The number of bytes from the start that it shares with the last request.
    pub same_bytes: u64,
    /// Its tokens.
    pub tokens: u64,
    /// The tokens that will be read from the cache.
    pub read: u64,
    /// The tokens that will be written to the cache.
    pub written: u64,
    /// The tokens that will be neither.
    pub fresh: u64,
    /// The parts of the last request that will not be read, with the reasons, in the order of the request.
    pub breaks: Vec<ExpectedBreak>,
    /// The tokens of the model's thinking that the last request had or that came since, and that it has to do without.
    pub dropped_thinking: u64,
    /// The cost of the request without its answer, in 10^-12 US dollars.
    pub cost: Option<u64>,
    /// The cost of the request with the longest answer, if a limit of that was noted with the request.
    pub most_cost: Option<u64>,
}

/// A reason why the next request cannot read all that the last one left in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedBreak {
    /// The cause of the change.
    pub cause: Cause,
    /// The first iteration that it changes; `None` for a change before all of them.
    pub iteration: Option<u64>,
    /// The tokens after it that could have been read.
    pub tokens: u64,
}

/// The last request, as far as it is known, in comparison with the next one.
struct LastRequest<'c> {
    answer: Option<(&'c Iteration, &'c Entry)>,
    /// True if other models answered since.
    is_earlier: bool,
    usage: Usage,
    provider: Option<Provider>,
    /// The conversation as it was then, as far as it is left.
    context: Context,
    /// Its number of tokens.
    tokens: u64,
    /// The first iteration of the request that a rewind took back.
    rewound: Option<u64>,
    /// True if its masks are known, so that its bytes are those that were sent.
    has_masks: bool,
    bytes: u64,
    same_bytes: u64,
    /// The iteration of the first byte that differs.
    differs_at: Option<u64>,
}

impl Context {
    /// Returns how many tokens the next request will read from the provider's cache and write to it, and their cost.
    ///
    /// Bytes are exact; tokens are estimated from the last reports.
    ///
    /// # Errors
    /// As [`Context::encode_request`].
    ///
    /// # Complexity
    /// O(new bytes + messages)
    pub fn forecast(
        &self,
        options: &Options<'_>,
        accounting: &Accounting<'_>,
        at: Time,
    ) -> Result<Forecast, Error> {
        self.log.check_nothing_pending()?;
        self.check_from(options)?;
        let (next, marks) = Body::new(self, options).lay_out()?;
        let mut forecast = Forecast {
            bytes: next.iter().map(Slice::len).sum(),
            tokens: self.count_with_tools(),
            dropped_thinking: self.count_lost_thinking(options)?,
            ..Forecast::default()
        };
        let newest = self.last_answer();
        let entry = newest.map(|(_, entry)| entry);
        let asked = options.model.map(|model| (options.provider, model));
        let is_other =
            |(iteration, entry)| asked.is_some_and(|asked| !self.is_of(iteration, entry, asked));
        // Each model has a cache of its own, which may still have an earlier request.
        let other = asked.filter(|_| newest.is_some_and(is_other));
        let earlier = other.and_then(|asked| self.last_answer_of(asked, u64::MAX));
        let mut last = self.last_request(options, earlier)?;
        if let Some(last) = &mut last {
            let (mut earlier, _) = Body::new(&last.context, options).lay_out()?;
            let stand_in = options.provider.facts().stand_in.as_bytes();
            let is_made_up = |slice: &Slice<'_>| slice.shown_bytes() == stand_in;
            if last.rewound.is_some() && earlier.last().is_some_and(is_made_up) {
                earlier.pop(); // something else followed
            }
            (last.same_bytes, last.differs_at) = compare(&earlier, &next);
            last.bytes = earlier.iter().map(Slice::len).sum();
            forecast.same_bytes = last.same_bytes;
            (forecast.read, forecast.breaks) = last.reckon(self, options.provider, at, &marks);
        }
        if let (Some(_), None, Some(last)) = (other, earlier, &last) {
            let tokens = last.predict(u64::MAX);
            let (cause, iteration) = (Cause::Model, None);
            forecast.breaks = vec![ExpectedBreak {
                cause,
                iteration,
                tokens,
            }];
            forecast.read = 0;
        }
        let reply = entry.and_then(|entry| entry.message.reply.as_deref());
        let answering = reply.and_then(|reply| reply.model.as_deref());
        let model = options.model.or(answering);
        let cache = &options.provider.facts().cache;
        let rates = entry
            .filter(|_| other.is_none())
            .and_then(|entry| accounting.rates(entry, at));
        let rates = rates.or_else(|| accounting.find_rates(options.provider, at));
        let priced = rates.and_then(|rates| rates.cache_minimum);
        let least = options.cache_minimum.or(priced);
        let least = least.unwrap_or_else(|| find_least(cache, model));
        let writes = match (cache, &last) {
            (Cache::Marked { .. }, _) => !marks.is_empty(),
            (Cache::Rounded { .. }, Some(last)) => last.usage.written > 0,
            _ => false,
        };
        let reads = writes || !matches!(cache, Cache::Marked { .. });
        let worth = if options.cache {
            let before = last.as_ref().map_or(0, |last| last.bytes);
            self.find_worth(forecast.bytes.saturating_sub(before))
        } else {
            Worth::All
        };
        let most = match (worth, &last) {
            (Worth::All, _) | (_, None) => u64::MAX,
            (Worth::UpTo(..), Some(last)) => {
                let mark = marks.last().map_or(0, |mark| u128::from(*mark));
                let tokens = u128::from(last.tokens) * mark / u128::from(last.bytes.max(1));
                u64::try_from(tokens).unwrap_or(u64::MAX)
            }
            (Worth::Nothing, Some(_)) => 0,
        };
        forecast.split(writes, reads, least, most);
        forecast.cost =
            rates.map(|rates| forecast.price(rates, self.wrote_for_an_hour() == Some(true)));
        let rate = rates.and_then(|rates| rates.rate(Unit::Output, forecast.tokens));
        let answer = rate.zip(self.inputs.most_output(self.next_number()));
        let answer = answer.map(|(rate, most)| rate.saturating_mul(most));
        forecast.most_cost = forecast
            .cost
            .zip(answer)
            .map(|(cost, answer)| cost.saturating_add(answer));
        Ok(forecast)
    }

    /// Returns the tokens of the next request, with those of tools that the last report has not counted.
    fn count_with_tools(&self) -> u64 {
        let tokens = self.count_tokens(None);
        let tools = |number| {
            let [_fields, tools] = self.inputs.request_of(number);
            tools.map(|(_since, tools)| tools)
        };
        let size = |tools: &Value| match tools {
            Value::List(none) if none.is_empty() => 0,
            tools => Method::Estimate.text(json::write(tools).as_bytes()),
        };
        let Some(next) = tools(self.next_number()) else {
            return tokens;
        };
        match self.log.current.reported.map(tools) {
            None => tokens.saturating_add(size(next)),
            // Which tools the report counts is not known.
            Some(None) => tokens,
            Some(Some(before)) if is_same_tools(before, next) => tokens,
            Some(Some(before)) => tokens
                .saturating_add(size(next))
                .saturating_sub(size(before)),
        }
    }

    /// Returns the last request, or the one for an earlier answer.
    fn last_request<'c>(
        &'c self,
        options: &Options<'_>,
        earlier: Option<(&'c Iteration, &'c Entry)>,
    ) -> Result<Option<LastRequest<'c>>, Error> {
        let answer = earlier.or_else(|| self.last_answer());
        let known = if let Some(cut) = self.rewound().filter(|_| earlier.is_none()) {
            let (context, first) = self.as_cut_off(&cut, options)?;
            let tokens = context.count_tokens(None);
            Some((cut.usage, cut.provider, context, tokens, Some(first)))
        } else {
            answer.and_then(|(last, entry)| {
                let usage = entry.usage.as_deref()?.last;
                let asked = self.as_asked(last, false)?;
                Some((usage, entry.provider(), asked, usage.input, None))
            })
        };
        let last = |(usage, provider, context, tokens, rewound)| LastRequest {
            answer,
            is_earlier: earlier.is_some(),
            usage,
            provider,
            context,
            tokens,
            rewound,
            has_masks: self.has_asked_masks(),
            bytes: 0,
            same_bytes: 0,
            differs_at: None,
        };
        Ok(known.map(last))
    }

    /// Returns the part that the next request shares with the one that a rewind cut off, and the first iteration after it.
    fn as_cut_off(&self, cut: &Rewound<'_>, options: &Options<'_>) -> Result<(Self, u64), Error> {
        let items = self.list_sent_items(self.next_number(), options)?;
        let differing = find_differing(&items, &cut.pieces).and_then(|(at, _)| items.get(at));
        // Both have all up to the iteration of the rewind.
        let first = cut.number.saturating_add(1);
        let place = differing.map(|SentItem { place, .. }| {
            let of_result = usize::from(place.call.is_some());
            (place.iteration, place.position.saturating_sub(of_result))
        });
        let (number, position) = match place {
            Some(place) => place.max((first, 0)),
            None => (self.next_number(), usize::MAX),
        };
        let mut log = self.log.clone();
        if let Some(iteration) = self.log.get_numbered(number) {
            log = log.rewind(i64::try_from(number).unwrap_or(i64::MAX))?;
            log.keep_entries(count_before(iteration, position, self.leads(iteration)));
        }
        let context = self.shown_as_asked(log, cut.number, self.view.as_ref());
        Ok((context, number))
    }
}

/// Returns how many entries of an iteration stand before a position; `leads`: a system prompt is the first of them.
fn count_before(iteration: &Iteration, position: usize, leads: bool) -> usize {
    let mut next = usize::from(leads);
    let before = iteration.entries().take_while(|entry| {
        let start = next;
        let exchange = entry.exchange.as_deref();
        next += 1 + usize::from(exchange.is_some_and(|exchange| exchange.count_filled() > 0));
        start < position
    });
    before.count()
}

impl Forecast {
    /// Sets the tokens that are read, written and neither; at most the first `most` are written.
    fn split(&mut self, writes: bool, reads: bool, least: u64, most: u64) {
        if !reads || self.read < least {
            self.read = 0;
        }
        self.read = self.read.min(self.tokens);
        let up_to = self.tokens.min(most);
        if writes && up_to >= least {
            self.written = up_to.saturating_sub(self.read);
        }
        self.fresh = self.tokens - self.read - self.written;
    }

    fn price(&self, rates: &Rates, for_an_hour: bool) -> u64 {
        let rate = |unit| rates.rate(unit, self.tokens).unwrap_or_default();
        let write = match for_an_hour {
            true => Unit::CacheWriteHour,
            false => Unit::CacheWrite,
        };
        let parts = [
            (self.read, Unit::CacheRead),
            (self.written, write),
            (self.fresh, Unit::Input),
        ];
        let prices = parts.map(|(tokens, unit)| tokens.saturating_mul(rate(unit)));
        prices.into_iter().fold(0, u64::saturating_add)
    }
}

impl LastRequest<'_> {
    /// Returns how many of its tokens the provider reads from its cache, at most `most`.
    fn predict(&self, most: u64) -> u64 {
        predict(self.provider, &self.usage, most)
    }

    /// Returns how many positions the next request has beyond this one.
    fn count_positions(&self, next: &Context, provider: Provider) -> usize {
        let place = self
            .answer
            .map(|(last, entry)| (last.number, entry.position));
        place.map_or(0, |from| next.count_positions(provider, from, None))
    }

    /// Returns the tokens that will be read, and the reasons why no more will.
    fn reckon(
        &self,
        next: &Context,
        provider: Provider,
        at: Time,
        marks: &[u64],
    ) -> (u64, Vec<ExpectedBreak>) {
        let all = self.predict(u64::MAX);
        let is_whole = is_all(self.bytes, self.same_bytes);
        let changes = |(last, entry)| next.changes_since_answer(last, entry);
        let mut changes = self.answer.map_or_else(Vec::new, changes);
        changes.retain(|change| !self.is_earlier || change.cause != Cause::Model);
        let is_elsewhere = self.provider.is_some_and(|last| last != provider);
        if is_elsewhere && changes.iter().all(|change| change.cause != Cause::Model) {
            changes.insert(0, RequestChange::everywhere(Cause::Model));
        }
        // A change of the view that changes no byte breaks nothing.
        let is_unsure = |cause| cause == Cause::Masked && !self.has_masks;
        changes.retain(|change| {
            !is_whole || stands_elsewhere(change.cause) || is_unsure(change.cause)
        });
        if !is_whole && changes.iter().all(|change| stands_elsewhere(change.cause)) {
            changes.push(RequestChange {
                cause: Cause::Other,
                iteration: self.differs_at,
            });
        }
        // `kept`: the tokens of the request before the break.
        let expect = |cause, iteration, kept| ExpectedBreak {
            cause,
            iteration,
            tokens: all.saturating_sub(self.predict(kept)),
        };
        let breaks = changes.iter().map(|change| {
            let kept = self.count_before(change, next);
            expect(change.cause, change.iteration, kept)
        });
        let mut breaks: Vec<ExpectedBreak> = breaks.collect();
        let rewound = self
            .rewound
            .map(|_| expect(Cause::Rewound, self.rewound, self.tokens));
        breaks.extend(rewound.filter(|rewound| rewound.tokens > 0));
        match provider.facts().cache {
            Cache::Marked { look_back, .. }
                if self.count_positions(next, provider) >= look_back =>
            {
                // A breakpoint in both requests is found without looking back. At the end of the last one, it is inside its last
                // element.
                let both = marks.iter().filter(|mark| **mark <= self.same_bytes);
                let kept = both.max().map_or(0, |mark| self.count_within(*mark));
                let last = self.answer.map(|(last, _)| last.number);
                let lost = expect(Cause::LookBack, last, kept);
                breaks.extend(Some(lost).filter(|lost| lost.tokens.saturating_mul(NEARLY) > all));
            }
            _ => {}
        }
        let is_cold = |(_, entry)| next.is_cold(entry, at);
        if self.answer.is_some_and(is_cold) && all > 0 {
            breaks.push(expect(Cause::Expired, None, 0));
        }
        let lost = breaks.iter().map(|one| one.tokens).max();
        (all.saturating_sub(lost.unwrap_or_default()), breaks)
    }

    /// Returns the tokens of the last request before a change.
    fn count_before(&self, change: &RequestChange, next: &Context) -> u64 {
        let counted = self.context.tokens(Method::Estimate);
        let all = self.tokens;
        let messages = counted.total();
        match change.cause {
            Cause::Model | Cause::Tools | Cause::Output => 0,
            // The tools come before it. Where marks are needed, the tools are read alone only if they have a mark of their own.
            Cause::SystemPrompt | Cause::Block => {
                let cache = self.provider.map(|of| &of.facts().cache);
                match cache {
                    Some(Cache::Marked { .. }) => 0,
                    _ if !next.had_tools() => 0,
                    _ => all.saturating_sub(messages),
                }
            }
            Cause::Fields => {
                let after = messages.saturating_sub(counted.system);
                all.saturating_sub(after)
            }
            // Without the earlier masks, the tokens that they changed are unknown.
            Cause::Masked if !self.has_masks => 0,
            _ => self.count_within(self.same_bytes),
        }
    }

    /// Returns the tokens of the last request within its first `bytes`.
    fn count_within(&self, bytes: u64) -> u64 {
        let messages = self.context.tokens(Method::Estimate).total();
        let after = self.bytes.saturating_sub(bytes);
        let after = u128::from(messages) * u128::from(after) / u128::from(self.bytes.max(1));
        let after = u64::try_from(after).unwrap_or(u64::MAX);
        self.tokens.saturating_sub(after)
    }
}

/// Returns whether a cause lies outside the messages.
const fn stands_elsewhere(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::Model | Cause::Tools | Cause::Output | Cause::SystemPrompt | Cause::Fields
    )
}
