//! Forecasts how much the next request will read from the provider's cache, by the bytes that it shares with the last one.

use std::cmp::Ordering;

use crate::context::cache::predict;
use crate::context::cause::{Cause, Change};
use crate::context::Context;
use crate::error::Error;
use crate::log::price::{Rates, Unit};
use crate::log::provider::Provider;
use crate::log::usage::Usage;
use crate::provider;
use crate::provider::options::Options;
use crate::provider::writer;
use crate::request::account::Accounting;
use crate::request::body::Body;
use crate::request::slice::Slice;
use crate::tokens::Method;
use crate::value::time::Time;

/// Requests of fewer tokens are not cached by most models.
const LEAST: u64 = 1024;

/// The same for models of Anthropic by words in their names, as Anthropic gives them.
const LEAST_OF: [(&str, u64); 9] = [
    ("opus-5", 512),
    ("opus-4-5", 4096),
    ("opus-4-6", 4096),
    ("opus-4-7", 4096),
    ("haiku-4-5", 4096),
    ("mythos", 4096),
    ("haiku-3", 2048),
    ("3-haiku", 2048),
    ("3-5-haiku", 2048),
];

/// From each mark, Anthropic looks back through so many blocks of content for what it has in its cache.
const LOOKED_BACK: usize = 20;

/// The forecast for the next request at the provider's cache.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forecast {
    /// The bytes of its system prompt and messages.
    pub bytes: u64,
    /// How many of them, from the first, it shares with the last request.
    pub same_bytes: u64,
    /// Its tokens.
    pub tokens: u64,
    /// How many of them will be read from the cache.
    pub read: u64,
    /// How many will be written to it.
    pub written: u64,
    /// How many will be neither.
    pub fresh: u64,
    /// The parts of the last request that will not be read, and why, in the order of the request.
    pub breaks: Vec<ExpectedBreak>,
    /// The cost of the request without its answer, in 10^-12 US dollars.
    pub cost: Option<u64>,
}

/// Something that keeps the next request from reading what the last one left in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedBreak {
    /// The cause itself.
    pub cause: Cause,
    /// The first iteration that it changes; `None` where it stands before all of them.
    pub iteration: Option<u64>,
    /// The tokens after it that could have been read.
    pub tokens: u64,
}

/// The last request beside the next one.
struct Last<'a> {
    usage: Usage,
    provider: Option<Provider>,
    /// The conversation as it was then.
    context: &'a Context,
    bytes: u64,
    same_bytes: u64,
    /// `true` if it is known to have had tools.
    has_tools: bool,
    /// `true` if its masks are at hand, so that its bytes are those that were sent.
    has_masks: bool,
    /// The iteration of the first byte that is not the same.
    differs_at: Option<u64>,
}

impl Context {
    /// Returns what the next request will read and write at the provider's cache, and what it costs.
    ///
    /// Bytes are exact, tokens are reckoned from the last reports.
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
        let room = provider::room(options.provider);
        let (next, marks) = Body::new(self, room, options).lay_out()?;
        let mut forecast = Forecast {
            bytes: next.iter().map(Slice::len).sum(),
            tokens: self.count_tokens(None),
            ..Forecast::default()
        };
        let before = self.as_last_asked();
        let entry = self.last_answer().map(|(_, entry)| entry);
        let reported = entry.and_then(|entry| entry.usage.as_deref());
        if let (Some(before), Some(entry), Some(reported)) = (&before, entry, reported) {
            let (earlier, _) = Body::new(before, room, options).lay_out()?;
            let (same_bytes, differs_at) = compare(&earlier, &next);
            let last = Last {
                usage: reported.last,
                provider: entry
                    .message
                    .reply
                    .as_deref()
                    .and_then(|reply| reply.provider),
                context: before,
                bytes: earlier.iter().map(Slice::len).sum(),
                same_bytes,
                has_tools: self.had_tools(),
                has_masks: self.has_asked_masks(),
                differs_at,
            };
            forecast.same_bytes = same_bytes;
            (forecast.read, forecast.breaks) = last.reckon(self, options.provider, at, &marks);
        }
        let reply = entry.and_then(|entry| entry.message.reply.as_deref());
        let model = options
            .model
            .or_else(|| reply.and_then(|reply| reply.model.as_deref()));
        let rules = CacheRules {
            provider: options.provider,
            is_marked: !marks.is_empty(),
            least: find_least(options.provider, model),
        };
        forecast.split(&rules, reported.map(|reported| &reported.last));
        let rates = entry.and_then(|entry| accounting.rates(entry, at));
        let rates = rates.or_else(|| accounting.find_rates(options.provider, at));
        forecast.cost =
            rates.map(|rates| forecast.price(rates, self.wrote_for_an_hour() == Some(true)));
        Ok(forecast)
    }
}

/// The facts that decide whether a provider caches a request.
struct CacheRules {
    provider: Provider,
    is_marked: bool,
    /// The tokens of the shortest request that it caches.
    least: u64,
}

fn find_least(provider: Provider, model: Option<&str>) -> u64 {
    let is_anthropics = needs_mark(provider);
    let model = model.filter(|_| is_anthropics).unwrap_or_default();
    // Bedrock and others write versions with dots.
    let model = model.replace('.', "-");
    let known = LEAST_OF.iter().find(|(word, _)| model.contains(word));
    known.map_or(LEAST, |(_, least)| *least)
}

/// Anthropic and Bedrock cache nothing without a mark.
const fn needs_mark(provider: Provider) -> bool {
    matches!(provider, Provider::Anthropic | Provider::Bedrock)
}

impl Forecast {
    /// Says what of the tokens is read, written and neither.
    fn split(&mut self, rules: &CacheRules, last: Option<&Usage>) {
        let writes = match rules.provider {
            Provider::Anthropic | Provider::Bedrock => rules.is_marked,
            Provider::OpenAiChat | Provider::OpenAiResponses => {
                last.is_some_and(|last| last.written > 0)
            }
            _ => false,
        };
        if needs_mark(rules.provider) && !rules.is_marked || self.read < rules.least {
            self.read = 0;
        }
        self.read = self.read.min(self.tokens);
        let rest = self.tokens - self.read;
        match writes && self.tokens >= rules.least {
            true => self.written = rest,
            false => self.fresh = rest,
        }
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

impl Last<'_> {
    /// The tokens that will be read, and why no more.
    fn reckon(
        &self,
        next: &Context,
        provider: Provider,
        at: Time,
        marks: &[u64],
    ) -> (u64, Vec<ExpectedBreak>) {
        let all = predict(self.provider, &self.usage, u64::MAX);
        let is_whole = self.bytes - self.same_bytes <= writer::CLOSE.len() as u64;
        let mut changes = next.changes_of_next();
        let is_elsewhere = self.provider.is_some_and(|last| last != provider);
        if is_elsewhere && changes.iter().all(|change| change.cause != Cause::Model) {
            let cause = Cause::Model;
            let iteration = None;
            changes.insert(0, Change { cause, iteration });
        }
        // Whatever a view does that changes no byte breaks nothing.
        let is_unsure = |cause| cause == Cause::Masked && !self.has_masks;
        changes.retain(|change| {
            !is_whole || stands_elsewhere(change.cause) || is_unsure(change.cause)
        });
        if !is_whole && changes.iter().all(|change| stands_elsewhere(change.cause)) {
            changes.push(Change {
                cause: Cause::Other,
                iteration: self.differs_at,
            });
        }
        let breaks = changes.iter().map(|change| {
            let kept = predict(self.provider, &self.usage, self.count_before(change));
            ExpectedBreak {
                cause: change.cause,
                iteration: change.iteration,
                tokens: all.saturating_sub(kept),
            }
        });
        let mut breaks: Vec<ExpectedBreak> = breaks.collect();
        if needs_mark(provider) && next.count_new_blocks() > LOOKED_BACK {
            // A breakpoint that both requests have is found without looking back.
            let both = marks.iter().filter(|mark| **mark <= self.same_bytes);
            let kept = both.max().map_or(0, |mark| self.count_within(*mark));
            breaks.push(ExpectedBreak {
                cause: Cause::LookBack,
                iteration: next.last_answer().map(|(last, _)| last.number),
                tokens: all.saturating_sub(predict(self.provider, &self.usage, kept)),
            });
        }
        if next.has_cold_cache(at) && all > 0 {
            breaks.push(ExpectedBreak {
                cause: Cause::Expired,
                iteration: None,
                tokens: all,
            });
        }
        let lost = breaks
            .iter()
            .map(|one| one.tokens)
            .max()
            .unwrap_or_default();
        (all.saturating_sub(lost), breaks)
    }

    /// The tokens of the last request before a change.
    fn count_before(&self, change: &Change) -> u64 {
        let counted = self.context.tokens(Method::Estimate);
        let messages = counted.total();
        match change.cause {
            Cause::Model | Cause::Tools | Cause::Output => 0,
            // The tools stand before it. Anthropic reads them alone only where they have a mark of their own.
            Cause::SystemPrompt | Cause::Block => match self.provider {
                Some(Provider::Anthropic | Provider::Bedrock) => 0,
                _ if !self.has_tools => 0,
                _ => self.usage.input.saturating_sub(messages),
            },
            Cause::Fields => {
                let after = messages.saturating_sub(counted.system);
                self.usage.input.saturating_sub(after)
            }
            // Where they are not at hand any more, what they changed is not known.
            Cause::Masked if !self.has_masks => 0,
            _ => self.count_within(self.same_bytes),
        }
    }

    /// The tokens of the last request within so many of its bytes.
    fn count_within(&self, bytes: u64) -> u64 {
        let messages = self.context.tokens(Method::Estimate).total();
        let after = self.bytes.saturating_sub(bytes);
        let after = u128::from(messages) * u128::from(after) / u128::from(self.bytes.max(1));
        let after = u64::try_from(after).unwrap_or(u64::MAX);
        self.usage.input.saturating_sub(after)
    }
}

/// Returns whether a cause is seen elsewhere than in messages.
const fn stands_elsewhere(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::Model | Cause::Tools | Cause::Output | Cause::SystemPrompt | Cause::Fields
    )
}

/// How many bytes two lists share from the first on, and to which iteration the next one belongs.
pub(super) fn compare(before: &[Slice<'_>], next: &[Slice<'_>]) -> (u64, Option<u64>) {
    let (mut old, mut new) = (before.iter(), next.iter());
    let mut left: [&[u8]; 2] = [&[], &[]];
    let (mut same, mut number) = (0, None);
    loop {
        let [a, b] = &mut left;
        if a.is_empty() {
            match old.next() {
                Some(slice) => *a = slice.shown_bytes(),
                None => return (same, None),
            }
        }
        if b.is_empty() {
            match new.next() {
                Some(slice) => (*b, number) = (slice.shown_bytes(), Some(slice.number)),
                None => return (same, number),
            }
        }
        let len = a.len().min(b.len());
        let ((old_part, old_rest), (new_part, new_rest)) = (a.split_at(len), b.split_at(len));
        // The kept values are mostly the same.
        let is_one = std::ptr::eq(old_part.as_ptr(), new_part.as_ptr());
        if !is_one && old_part.cmp(new_part) != Ordering::Equal {
            let pairs = old_part.iter().zip(new_part);
            let shared = pairs.take_while(|(old, new)| old == new).count();
            return (same + shared as u64, number);
        }
        same += len as u64;
        (*a, *b) = (old_rest, new_rest);
    }
}
