//! Sums up the providers' reports on a conversation and its price; an answer without a price is an error.

use crate::context::Context;
use crate::error::Error;
use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::prices::bill::{Bill, Report};
use crate::prices::list::Prices;
use crate::prices::rates::Money;
use crate::prices::usage::Usage;
use crate::tokens::Method;
use crate::value::time::Time;

impl Context {
    /// Keeps a provider's report with the last message of the model.
    ///
    /// # Errors
    /// [`Error::NoAssistantMessage`].
    pub(crate) fn add_report(&self, report: &Report, at: Time) -> Result<Self, Error> {
        let Some(number) = self
            .log
            .iterations_back()
            .find(|iteration| iteration.has_assistant())
            .map(|iteration| iteration.number)
        else {
            return Err(Error::NoAssistantMessage);
        };
        let mut next = self.clone();
        let last = report.usage;
        let estimate = self.estimate_up_to(number);
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
        let last = self.log.get_numbered(number).and_then(Iteration::last);
        let exchange = last.and_then(|last| Some((last, last.exchange.as_deref()?)));
        let results = exchange
            .filter(|_| !self.hides(number))
            .map_or(0, |(last, exchange)| {
                let calls = exchange.count_calls();
                let before = self
                    .log
                    .get_numbered(number)
                    .map_or(0, Iteration::count_calls)
                    - calls;
                let rendering = self.rendering(number).behind(before);
                exchange.tokens(Method::Estimate, &last.message.calls, rendering)
            });
        all.total()
            .saturating_sub(behind.total())
            .saturating_sub(results)
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
        let first = since.max(self.first_number());
        let numbers = first..=self.current_iteration();
        let iterations = numbers.filter_map(|number| self.log.get_numbered(number));
        let mut sum: u64 = 0;
        for iteration in iterations {
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

    /// Returns the entry with the last report.
    pub(crate) fn last_reported(&self) -> Option<&Entry> {
        let number = self.log.current.reported?;
        let iteration = self.iteration(i64::try_from(number).ok()?)?;
        let mut entries = iteration.entries().rev();
        entries.find(|entry| entry.usage.is_some())
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
        let provider = reply.and_then(|reply| reply.provider);
        let provider = provider.map(|provider| provider.name());
        let at = reply.and_then(|reply| reply.requested_at).unwrap_or(opened);
        let rates = self
            .find(provider, [named, asked], at)
            .ok_or(named.or(asked))?;
        let cost = |bill: &Bill| {
            let other = bill.model.as_deref();
            let other = other.and_then(|model| self.find(provider, [Some(model), None], at));
            other.unwrap_or(rates).cost(bill)
        };
        let bills = reported.bills();
        Ok(Some(
            bills.iter().map(cost).fold(Money::default(), Money::plus),
        ))
    }
}
