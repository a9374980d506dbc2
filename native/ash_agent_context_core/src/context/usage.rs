//! Sums up the providers' reports on a conversation and its price; an answer without a price is an error.

use crate::context::Context;
use crate::error::Error;
use crate::log::exchange::Entry;
use crate::log::provider::Provider;
use crate::log::reply::Reply;
use crate::prices::bill::{Bill, Report};
use crate::prices::list::Prices;
use crate::prices::rates::{Money, Rates};
use crate::prices::usage::Usage;
use crate::tokens::Method;
use crate::value::time::Time;

/// The prices of what requests cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Accounting<'a> {
    /// Prices of models.
    pub prices: Option<&'a Prices>,
    /// The model that was asked, for answers that name none or one without a price.
    pub model: Option<&'a str>,
    /// The first iteration with a row.
    pub since: u64,
}

impl Context {
    /// Keeps a provider's report with the last message of the model.
    ///
    /// # Errors
    /// [`Error::NoAssistantMessage`].
    pub(crate) fn add_report(&self, report: &Report, at: Time) -> Result<Self, Error> {
        let mut back = self.log.iterations_back();
        let spoken = back.find(|iteration| iteration.has_assistant());
        let number = spoken.ok_or(Error::NoAssistantMessage)?.number;
        let last = report.usage;
        // The copy goes on from what is counted here.
        let estimate = self.estimate_up_to(number);
        let mut next = self.clone();
        next.log.change_iteration(number, |iteration| {
            iteration.report(|before| before.plus(report, estimate));
            iteration.add_to_checkpoint(last);
        });
        for later in number.saturating_add(1)..=self.current_iteration() {
            // There are only a few: the model has not spoken in them.
            next.log.change_iteration(later, |later| {
                later.reported = Some(number);
                later.add_to_checkpoint(last);
            });
        }
        next.log.usage = next.log.usage.plus(last);
        next.log.updated_at = at;
        Ok(next)
    }

    /// Returns [`Method::Estimate`] of the view up to the last message of an iteration's model.
    fn estimate_up_to(&self, number: u64) -> u64 {
        let all = self.tokens(Method::Estimate);
        let behind = self.view_tokens(Method::Estimate, number.saturating_add(1), u64::MAX);
        let shown = self
            .log
            .get_numbered(number)
            .filter(|_| !self.hides(number));
        let results = shown.map(|iteration| {
            // Late results may have come with them.
            let late = iteration.entries().rev();
            let late = late.take_while(|entry| entry.message.is_arrival());
            let last = iteration.entries().rev();
            let last = last.filter(|entry| !entry.message.is_arrival()).take(1);
            let tokens = late.chain(last).map(|entry| {
                let rendering = self.rendering(number).behind(entry.slots);
                let exchange = entry.exchange.as_deref();
                let tokens = exchange.map(|exchange| {
                    exchange.tokens(Method::Estimate, &entry.message.calls, rendering)
                });
                tokens.unwrap_or_default()
            });
            tokens.sum::<u64>()
        });
        all.total()
            .saturating_sub(behind.total())
            .saturating_sub(results.unwrap_or_default())
    }

    /// Returns the sum of all that providers reported.
    #[must_use]
    pub const fn usage(&self) -> Usage {
        self.log.usage
    }

    /// Returns the price of the answers from an iteration on, in 10^-12 US dollars. `asked` is the model that was asked for,
    /// where an answer names none or one without a price.
    ///
    /// # Errors
    /// [`Error::NoPrice`]
    ///
    /// # Complexity
    /// O(messages from that iteration on)
    pub fn sum_spending(
        &self,
        prices: &Prices,
        asked: Option<&str>,
        since: u64,
    ) -> Result<u64, Error> {
        let mut sum: u64 = 0;
        for iteration in self.log.between(since, u64::MAX) {
            for entry in iteration.entries() {
                let cost = prices.cost(entry, asked, iteration.started_at);
                let cost = cost.map_err(|model| Error::NoPrice {
                    model: model.map(Into::into),
                })?;
                sum = sum.saturating_add(cost.map_or(0, Money::total));
            }
        }
        Ok(sum)
    }
}

impl Prices {
    /// Returns the price of an answer whose tokens were reported: by the model that it names or by the one that was asked
    /// for. `opened` is when its iteration began, for an answer whose request is not known.
    ///
    /// # Errors
    /// The name of a model without a price, as far as it is known.
    pub fn cost<'e>(
        &self,
        entry: &'e Entry,
        asked: Option<&'e str>,
        opened: Time,
    ) -> Result<Option<Money>, Option<&'e str>> {
        let Some(reported) = entry.usage.as_deref() else {
            return Ok(None);
        };
        let reply = entry.message.reply.as_deref();
        let named = reply.and_then(|reply| reply.model.as_deref());
        let provider = reply.and_then(|reply| reply.provider).map(Provider::name);
        let at = reply.and_then(|reply| reply.requested_at).unwrap_or(opened);
        let rates = self.find_for(reply, asked, at).ok_or(named.or(asked))?;
        let cost = |bill: &Bill| {
            let other = bill.model.as_deref();
            let other = other.and_then(|model| self.find(provider, [Some(model), None], at));
            other.unwrap_or(rates).cost(bill)
        };
        let bills = reported.bills();
        let cost = bills.iter().map(cost).fold(Money::default(), Money::plus);
        Ok(Some(cost))
    }

    /// Returns the prices of the model that a reply names, or of the one that was asked for.
    pub(crate) fn find_for(
        &self,
        reply: Option<&Reply>,
        asked: Option<&str>,
        at: Time,
    ) -> Option<&Rates> {
        let named = reply.and_then(|reply| reply.model.as_deref());
        let provider = reply.and_then(|reply| reply.provider).map(Provider::name);
        self.find(provider, [named, asked], at)
    }
}

impl<'p> Accounting<'p> {
    /// Returns the prices of the model that answered, or that was asked.
    pub(crate) fn rates(&self, entry: &Entry, opened: Time) -> Option<&'p Rates> {
        let reply = entry.message.reply.as_deref();
        let at = reply.and_then(|reply| reply.requested_at).unwrap_or(opened);
        self.prices?.find_for(reply, self.model, at)
    }

    /// Returns the prices of the model that is asked.
    pub(crate) fn find_rates(&self, provider: Provider, at: Time) -> Option<&'p Rates> {
        let name = Some(provider.name());
        self.prices?.find(name, [self.model, None], at)
    }
}
