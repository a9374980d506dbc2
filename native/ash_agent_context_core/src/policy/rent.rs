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
use crate::log::message::Message;
use crate::log::tally::RentTally;
use crate::prices::list::Prices;
use crate::prices::rates::{Rates, Unit};
use crate::tokens::Method;
use crate::value::cost::Cost;
use crate::value::time::Time;
use crate::value::word::words;
use crate::value::Size;
use crate::view::rendering::Rendering;

/// Prices of a token that is read from the cache and of one that is written to it, where none are known: those of most
/// providers, in hundredths of the price of an ordinary token.
const PRICES: (u64, u64) = (10, 125);

/// The tokens of an answer if its limit is not known, and the largest share of the window for them, as a divisor.
const ANSWER: (u64, u64) = (8_192, 4);

/// So many iterations are looked at one by one to tell what walking them costs.
const FEW: usize = 64;

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

impl RentTally {
    /// Adds an iteration with its look.
    fn add(&mut self, iteration: &Iteration, shown: Rendering<'_>, placeholder: &str) {
        for entry in iteration.entries() {
            let shown = shown.behind(entry.slots);
            if entry.is_model() {
                self.carry();
            }
            self.stand_behind(|| entry.message.tokens(Method::Estimate, shown).total());
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
            let before = self
                .behind
                .unwrap_or_default()
                .saturating_sub(self.all_saved);
            // The first ones may be cleared already.
            for saved in savings.into_iter().skip(shown.cleared).flatten() {
                self.behind.get_or_insert(0);
                self.all_saved = self.all_saved.saturating_add(saved);
                self.newest.push_back((saved, before));
                if self.newest.len() > self.keep {
                    let (saved, _) = self.newest.pop_front().unwrap_or_default();
                    self.saved = self.saved.saturating_add(saved);
                }
            }
            self.stand_behind(|| exchange.tokens(Method::Estimate, calls, shown));
        }
    }

    /// A request carries each result in vain that enough newer ones come after.
    fn carry(&mut self) {
        self.rent = self.rent.saturating_add(self.saved.into());
    }

    fn stand_behind(&mut self, count: impl FnOnce() -> u64) {
        if let Some(behind) = &mut self.behind {
            *behind = behind.saturating_add(count());
        }
    }

    fn owed(mut self, is_first: bool) -> Option<Owed> {
        self.carry();
        let behind = self.behind.unwrap_or_default().saturating_sub(self.saved);
        let (_, before) = self.newest.front().copied().unwrap_or((0, behind));
        (self.saved > 0).then(|| Owed {
            rent: self.rent,
            behind,
            newest: behind.saturating_sub(before),
            is_first,
        })
    }
}

impl Context {
    /// Clears all results but the last, if that is due. Returns the reason if it was.
    ///
    /// The rent is computed from the answers in the log, one for each request: calling it again changes nothing.
    ///
    /// # Complexity
    /// O(messages after the last call), and O(those after the first uncleared result) when the view has changed
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

    /// Returns the cost of [`Context::clear_when_due`]: of what came since the rent was last counted, unless that is much.
    #[must_use]
    pub fn due_cost(&self, keep: usize) -> Cost {
        let done = self.log.history.len();
        let known = self.tallies.count_rented(keep);
        let new = done.saturating_sub(known).saturating_add(keep);
        if known == 0 || new > FEW {
            return self.size().into();
        }
        let first = self.current_iteration().saturating_sub(new as u64);
        let walked: Size = self.log.between(first, u64::MAX).map(Iteration::size).sum();
        let system = self.system().map_or(Size::default(), Message::size);
        let counted = self.count_cost(None).unwrap_or(Cost::LONG);
        let noted = self.asked_view_cost().plus(system.into());
        Cost::from(walked).plus(counted).plus(noted)
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
    /// cleared. What completed iterations add is kept as the conversation grows.
    fn find_owed(&self, next: &Self, keep: usize, placeholder: &str) -> Option<Owed> {
        let (before, after) = (self.cleared_place(), next.cleared_place()?);
        if before.is_some_and(|before| before >= after) {
            return None; // what is cleared is not shown again
        }
        let cleared = before.map_or(0, |(iteration, _)| iteration);
        let add = |all: &mut RentTally, first: u64, last: u64| {
            let iterations = self.log.between(first.max(cleared), last);
            for iteration in iterations.filter(|iteration| !self.hides(iteration.number)) {
                all.add(iteration, self.rendering(iteration.number), placeholder);
            }
        };
        let (current, len) = (self.current_iteration(), self.log.history.len());
        let done = self.tallies.rent(keep, len, |mut done| {
            let first = self.first_number().saturating_add(done.len as u64);
            add(&mut done, first, current.saturating_sub(1));
            done.len = len;
            done
        });
        let mut all = RentTally::clone(&done);
        add(&mut all, current, current);
        all.owed(before.is_none())
    }
}
