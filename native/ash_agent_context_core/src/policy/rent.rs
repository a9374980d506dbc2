//! Clearing old results when it costs nothing, or when they have cost as much as clearing them would.
//!
//! Clearing results costs the price of everything after them once more, since the provider has to write it to its cache anew.
//! Leaving them costs the price of reading them with each request. So they are like skis that are rented or bought, and the
//! rule is the same: rent until the rent is a share of the price, then buy. The future of the conversation need not be known.
//!
//! The first clearing of a conversation waits for the whole price, since most conversations end before they have paid it. Of
//! later prices, only that of the newest results is paid again with the next clearing; everything before them is written anew
//! once, whenever that is. So this price is compared with the rent then, with bounds in case it is next to nothing or nearly
//! all.

use crate::context::Context;
use crate::log::iteration::Iteration;
use crate::prices::list::Prices;
use crate::prices::rates::{Rates, Unit};
use crate::tokens::Method;
use crate::value::time::Time;
use crate::value::word::words;
use crate::view::rendering::Rendering;

/// Prices of a token that is read from the cache and of one that is written to it, where none are known: those of most
/// providers, in hundredths of the price of an ordinary token.
const PRICES: (u64, u64) = (10, 125);

/// The tokens of an answer if its limit is not known, and the largest share of the window for them, as a divisor.
const ANSWER: (u64, u64) = (8_192, 4);

/// The bounds of the share that is paid by default after the first clearing, in thousandths.
const LATER: (u128, u128) = (250, 500);

/// The options of [`Context::clear_when_due`].
#[derive(Debug, Clone, Copy)]
pub struct Rent<'a> {
    /// The number of last results that stay.
    pub keep: usize,
    /// The share of the price of clearing that has to be paid, in thousandths; `None`: all of it for the first clearing, and
    /// then the price of the newest results, but no less than a quarter and no more than half of all.
    pub share: Option<u64>,
    /// The prices of models.
    pub prices: Option<&'a Prices>,
    /// The model that is asked, where answers name none or one without a price.
    pub model: Option<&'a str>,
    /// The tokens that a request may have; `None`: the window of the prices, if they have it, less room for the answer.
    pub window: Option<u64>,
}

words! {
    /// The reason why results are cleared.
    pub enum Due {
        /// The rent is paid.
        Paid = "paid",
        /// The provider has nothing in its cache any more.
        Cold = "cold",
        /// The next request begins otherwise anyway.
        Broken = "broken",
        /// The request would be too long.
        Window = "window",
    }
}

/// The costs of the results that could be cleared.
struct Owed {
    /// Tokens of these results that requests have carried, and that the next one would: each as often as it was sent.
    rent: u128,
    /// The tokens that stay after the first of these results.
    behind: u64,
    /// The part of them from the first uncleared result on.
    newest: u64,
    /// No results were cleared before.
    is_first: bool,
}

impl Owed {
    /// Returns the tokens whose price has to be paid, in thousandths.
    fn count_due(&self, share: Option<u64>) -> u128 {
        let part = |share| u128::from(self.behind).saturating_mul(share);
        let (least, most) = LATER;
        match share {
            Some(share) => part(share.into()),
            None if self.is_first => part(1000),
            None => (u128::from(self.newest) * 1000).clamp(part(least), part(most)),
        }
    }
}

/// The results of the view that are not cleared, oldest first.
#[derive(Default)]
struct Clearable {
    /// The tokens that clearing each of them saves.
    savings: Vec<u64>,
    /// The number of results at each request.
    requests: Vec<usize>,
    /// The tokens from the first of them on, once these are cleared; `None` before it.
    behind: Option<u64>,
    /// The number of results up to each message, and the tokens from the first one on until then.
    places: Vec<(usize, u64)>,
}

impl Clearable {
    /// Adds an iteration, with its look before and after the clearing.
    fn add(&mut self, iteration: &Iteration, [shown, next]: [Rendering<'_>; 2], placeholder: &str) {
        for entry in iteration.entries() {
            let [shown, next] = [shown, next].map(|look| look.behind(entry.slots));
            if entry.is_model() {
                self.requests.push(self.savings.len());
            }
            self.stand_behind(|| entry.message.tokens(Method::Estimate, next).total());
            let Some(exchange) = entry.exchange.as_deref() else {
                continue;
            };
            let calls = &*entry.message.calls;
            let cleared = Rendering {
                cleared: usize::MAX,
                placeholder,
                ..shown
            };
            let looks = [shown, cleared];
            let savings = exchange.count_savings(Method::Estimate, calls, looks);
            // The first ones may be cleared already.
            let savings = savings.into_iter().skip(shown.cleared).flatten();
            self.savings.extend(savings);
            if !self.savings.is_empty() {
                let before = *self.behind.get_or_insert(0);
                self.places.push((self.savings.len(), before));
            }
            self.stand_behind(|| exchange.tokens(Method::Estimate, calls, next));
        }
    }

    fn stand_behind(&mut self, count: impl FnOnce() -> u64) {
        if let Some(behind) = &mut self.behind {
            *behind = behind.saturating_add(count());
        }
    }

    /// Returns how many of them may be cleared.
    fn count(&self, keep: usize) -> usize {
        self.savings.len().saturating_sub(keep)
    }

    /// Returns the tokens from the first result on that stays.
    fn count_newest(&self, keep: usize) -> u64 {
        let old = self.count(keep);
        let place = self.places.partition_point(|(count, _)| *count <= old);
        let behind = self.behind.unwrap_or_default();
        let before = self.places.get(place).map_or(behind, |(_, before)| *before);
        behind.saturating_sub(before)
    }

    /// Returns the tokens that requests carried although they could have been cleared then.
    fn sum_rent(&self, keep: usize) -> u128 {
        let old = self.savings.iter().take(self.count(keep));
        let rents = old.enumerate().map(|(index, saved)| {
            // A request carries a result in vain when enough newer ones come after it.
            let needed = index.saturating_add(keep);
            let before = self.requests.partition_point(|count| *count <= needed);
            let carried = self.requests.len().saturating_sub(before);
            u128::from(*saved).saturating_mul(carried as u128)
        });
        rents.fold(0, u128::saturating_add)
    }
}

impl Context {
    /// Clears all results but the last, if that is due. Returns the reason if it was.
    ///
    /// The rent is computed from the answers in the log, one for each request: calling it again changes nothing.
    ///
    /// # Complexity
    /// O(messages after the first uncleared result)
    #[must_use]
    pub fn clear_when_due(&self, rent: &Rent<'_>, at: Time) -> (Self, Option<Due>) {
        let placeholder = self.placeholder();
        let next = self.clear_results(rent.keep, placeholder, true, at);
        let due = self
            .find_owed(&next, rent.keep, placeholder)
            .and_then(|owed| self.find_due(rent, &owed, at));
        match due {
            Some(_) => (next, due),
            None => (self.clone(), None),
        }
    }

    fn find_due(&self, rent: &Rent<'_>, owed: &Owed, at: Time) -> Option<Due> {
        let rates = self.current_rates(rent, at);
        let tokens = self.count_tokens(None);
        let (read, write) = rates.map_or(PRICES, |rates| self.cache_prices(rates, tokens));
        let due = owed.count_due(rent.share);
        let price = u128::from(write.saturating_sub(read)).saturating_mul(due);
        let paid = u128::from(read).saturating_mul(owed.rent);
        match () {
            () if self.has_cold_cache(at) => Some(Due::Cold),
            () if self.begins_anew() => Some(Due::Broken),
            () if paid.saturating_mul(1000) >= price => Some(Due::Paid),
            () if self.is_beyond_window(rent, at) => Some(Due::Window),
            () => None,
        }
    }

    /// Returns the prices of the model that answered last, or of the one that is asked.
    pub(crate) fn current_rates<'p>(&self, rent: &Rent<'p>, at: Time) -> Option<&'p Rates> {
        let last = self.last_answer();
        let reply = last.and_then(|(_, entry)| entry.message.reply.as_deref());
        rent.prices?.find_for(reply, rent.model, at)
    }

    /// Returns true if a request is too long, as far as the window is known. The window of a price has to hold the answer as
    /// well.
    pub(crate) fn is_beyond_window(&self, rent: &Rent<'_>, at: Time) -> bool {
        let priced = || {
            let window = self.current_rates(rent, at)?.context_window?;
            let asked = self.inputs.most_output(self.next_number());
            // A provider refuses a request with a higher limit than the window, however short it is.
            let asked = asked.filter(|most| *most < window);
            let (most, part) = ANSWER;
            Some(window - asked.unwrap_or(most.min(window / part)))
        };
        let limit = rent.window.or_else(priced);
        limit.is_some_and(|most| self.count_tokens(None) > most)
    }

    fn cache_prices(&self, rates: &Rates, tokens: u64) -> (u64, u64) {
        let written = match self.wrote_for_an_hour() == Some(true) {
            true => Unit::CacheWriteHour,
            false => Unit::CacheWrite,
        };
        let rate = |unit| rates.rate(unit, tokens).unwrap_or_default();
        (rate(Unit::CacheRead), rate(written))
    }

    /// Returns the costs of the results that could be cleared, if there are any; `next` is the conversation with them
    /// cleared.
    fn find_owed(&self, next: &Self, keep: usize, placeholder: &str) -> Option<Owed> {
        let (before, after) = (self.cleared_place(), next.cleared_place()?);
        if before.is_some_and(|before| before >= after) {
            return None; // what is cleared is not shown again
        }
        let first = before.map_or(0, |(iteration, _)| iteration);
        let iterations = self.log.between(first, u64::MAX);
        let mut all = Clearable::default();
        for iteration in iterations.filter(|iteration| !self.hides(iteration.number)) {
            let looks = [self, next].map(|context| context.rendering(iteration.number));
            all.add(iteration, looks, placeholder);
        }
        all.requests.push(all.savings.len());
        let saved: u64 = all.savings.iter().take(all.count(keep)).sum();
        (saved > 0).then(|| Owed {
            rent: all.sum_rent(keep),
            behind: all.behind.unwrap_or_default(),
            newest: all.count_newest(keep),
            is_first: before.is_none(),
        })
    }
}
