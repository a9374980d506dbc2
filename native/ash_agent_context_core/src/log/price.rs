//! What models cost.

use std::collections::HashMap;

use crate::log::exchange::Entry;
use crate::log::usage::Usage;
use crate::value::time::Time;

/// What one token costs, in 10^-12 US dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    /// Of the request, neither read from a cache nor written to one.
    pub input: u64,
    /// Of the request, read from the provider's cache.
    pub cache_read: u64,
    /// Of the request, written to the provider's cache.
    pub cache_write: u64,
    /// Of the answer.
    pub output: u64,
}

/// What a model costs from a time on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Price {
    /// The model; `None`: every model without a price of its own.
    pub model: Option<Box<str>>,
    /// From when on; `None`: since ever.
    pub valid_from: Option<Time>,
    /// What it costs.
    pub rates: Rates,
}

/// Rates, and from when on they count.
type Valid = (Option<Time>, Rates);

/// A list of prices.
#[derive(Debug, Default)]
pub struct Prices {
    /// By their models, the newest first.
    known: HashMap<Option<Box<str>>, Vec<Valid>>,
}

impl Prices {
    /// The prices in any order.
    #[must_use]
    pub fn new(list: Vec<Price>) -> Self {
        let mut known: HashMap<_, Vec<_>> = HashMap::new();
        for price in list {
            let of = known.entry(price.model).or_default();
            of.push((price.valid_from, price.rates));
        }
        for of in known.values_mut() {
            of.sort_by_key(|(valid_from, _)| std::cmp::Reverse(*valid_from));
        }
        Self { known }
    }

    /// The rates at a time for the first of these names that has any, or for all models. Providers add a date to
    /// the name that they were asked for: a name stands for itself without its date as well.
    #[must_use]
    pub fn find(&self, names: [Option<&str>; 2], at: Time) -> Option<Rates> {
        let given = names.into_iter().flatten();
        let mut names = given.flat_map(|name| [Some(name), undated(name)]).flatten();
        let found = names.find_map(|name| self.of(Some(name.into()), at));
        found.or_else(|| self.of(None, at))
    }

    fn of(&self, model: Option<Box<str>>, at: Time) -> Option<Rates> {
        let mut prices = self.known.get(&model)?.iter();
        let is_valid = |from: &Option<Time>| from.is_none_or(|from| from <= at);
        prices.find_map(|(from, rates)| is_valid(from).then_some(*rates))
    }

    /// What an answer cost, in 10^-12 US dollars, where its tokens were reported: of the model that it names or of
    /// the one that was asked for. `opened` is when its iteration began, for an answer whose request is not known.
    ///
    /// # Errors
    /// The name of a model without a price, as far as it is known.
    pub fn cost<'e>(
        &self,
        entry: &'e Entry,
        asked: Option<&'e str>,
        opened: Time,
    ) -> Result<Option<u64>, Option<&'e str>> {
        let Some(reported) = entry.usage.as_deref() else {
            return Ok(None);
        };
        let reply = entry.message.reply.as_deref();
        let named = reply.and_then(|reply| reply.model.as_deref());
        let at = reply.and_then(|reply| reply.requested_at).unwrap_or(opened);
        let rates = self.find([named, asked], at).ok_or(named.or(asked))?;
        Ok(Some(rates.cost(reported.sum)))
    }
}

impl Rates {
    fn cost(self, usage: Usage) -> u64 {
        let beside = usage.cached.saturating_add(usage.written);
        let of = |tokens: u64, rate: u64| u128::from(tokens) * u128::from(rate);
        let sums = [
            of(usage.input.saturating_sub(beside), self.input),
            of(usage.cached, self.cache_read),
            of(usage.written, self.cache_write),
            of(usage.output, self.output),
        ];
        let sum = sums.into_iter().fold(0, u128::saturating_add);
        u64::try_from(sum).unwrap_or(u64::MAX)
    }
}

/// A name without the date at its end: `-2024-08-06`, `-20240806` or `@20240806`.
fn undated(name: &str) -> Option<&str> {
    let date = |mark: char| match mark {
        '0'..='9' => '0',
        other => other,
    };
    ["-0000-00-00", "-00000000", "@00000000"]
        .into_iter()
        .find_map(|form| {
            let (model, end) = name.split_at_checked(name.len().checked_sub(form.len())?)?;
            let is_dated = !model.is_empty() && end.chars().map(date).eq(form.chars());
            is_dated.then_some(model)
        })
}
