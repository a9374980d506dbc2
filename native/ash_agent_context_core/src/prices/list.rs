//! Lists of prices, and how a model's name leads to its price.

use regex::Regex;

use crate::prices::rates::Rates;
use crate::value::time::Time;

/// A test of a name with the text of its rule, both in lower case.
pub type NameTest = fn(&str, &str) -> bool;

/// A rule for names.
#[derive(Debug, Clone)]
pub enum Names {
    /// Every name that has no price of its own.
    Any,
    /// This name, also with a date at its end, as providers answer.
    Named(Box<str>),
    /// Names that pass a test with this text, in upper or lower case, like all rules below.
    Test(NameTest, Box<str>),
    /// Names in which a pattern is found.
    Pattern(Regex),
    /// Names for which one of these rules holds.
    Or(Vec<Names>),
    /// Names for which all of these rules hold.
    And(Vec<Names>),
}

impl Names {
    /// Returns whether the rule holds for a name; `small` is the name in lower case.
    fn has(&self, name: &str, small: &str) -> bool {
        match self {
            Self::Any => false,
            Self::Named(known) => **known == *name,
            Self::Test(passes, text) => passes(small, text),
            Self::Pattern(pattern) => pattern.is_match(small),
            Self::Or(some) => some.iter().any(|names| names.has(name, small)),
            Self::And(all) => all.iter().all(|names| names.has(name, small)),
        }
    }
}

/// The prices of the models with certain names.
#[derive(Debug, Clone)]
pub struct Model {
    /// The rule for their names.
    pub names: Names,
    /// The rates from different times on; of those that are valid, the last counts.
    pub rates: Vec<Rates>,
}

/// The models of a provider.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    /// The provider; `None` for any.
    pub provider: Option<Box<str>>,
    /// The rule for other names of the provider.
    pub providers: Option<Names>,
    /// The rule for models that are this provider's if an answer does not name one.
    pub models_match: Option<Names>,
    /// Providers whose models it offers as well.
    pub fallback: Vec<Box<str>>,
    /// Its models; the first whose rule holds counts.
    pub models: Vec<Model>,
}

/// A list of prices.
#[derive(Debug, Default)]
pub struct Prices {
    offers: Vec<Offer>,
    /// The provider to pay, whatever answers say.
    provider: Option<Box<str>>,
}

impl Prices {
    /// Returns a list of these offers, which are searched in this order.
    #[must_use]
    pub const fn new(offers: Vec<Offer>, provider: Option<Box<str>>) -> Self {
        Self { offers, provider }
    }

    /// Returns the prices at a time for the first of these names that has any, or for all models. Providers append a date to the
    /// name in a request, so a name is tried without its date as well.
    #[must_use]
    pub fn find(
        &self,
        provider: Option<&str>,
        names: [Option<&str>; 2],
        at: Time,
    ) -> Option<&Rates> {
        let provider = self.provider.as_deref().or(provider);
        let named = provider.and_then(|provider| self.offer(provider));
        let given = names.into_iter().flatten();
        let names = given.flat_map(|name| [Some(name), strip_date(name)]);
        let mut names = names.flatten();
        let found = names.find_map(|name| self.of(named, name, at));
        let any = || {
            let offers = self.offers.iter().filter(|offer| offer.provider.is_none());
            let mut offers = named.into_iter().chain(offers);
            offers.find_map(|offer| offer.find(|names| matches!(names, Names::Any), at))
        };
        found.or_else(any)
    }

    fn offer(&self, provider: &str) -> Option<&Offer> {
        let small = provider.to_lowercase();
        let mut offers = self.offers.iter();
        let known = offers.find(|offer| offer.provider.as_deref() == Some(&*small));
        known.or_else(|| {
            let is_meant = |offer: &&Offer| {
                let names = offer.providers.as_ref();
                names.is_some_and(|names| names.has(provider, &small))
            };
            self.offers.iter().find(is_meant)
        })
    }

    fn of<'p>(&'p self, named: Option<&'p Offer>, name: &str, at: Time) -> Option<&'p Rates> {
        let small = name.to_lowercase();
        let is_meant = |names: &Names| names.has(name, &small);
        let fallback = named.into_iter().flat_map(|offer| &offer.fallback);
        let fallback = fallback.filter_map(|provider| self.offer(provider));
        let everyones = self.offers.iter().filter(|offer| offer.provider.is_none());
        let owners = self.offers.iter().filter(|offer| {
            self.provider.is_none() && offer.models_match.as_ref().is_some_and(is_meant)
        });
        let offers = named.into_iter().chain(fallback);
        let mut offers = offers.chain(everyones).chain(owners);
        offers.find_map(|offer| offer.find(is_meant, at))
    }
}

impl Offer {
    fn find(&self, is_meant: impl Fn(&Names) -> bool, at: Time) -> Option<&Rates> {
        let mut models = self.models.iter().filter(|model| is_meant(&model.names));
        models.find_map(|model| {
            let mut rates = model.rates.iter().rev();
            rates.find(|rates| rates.valid_from.is_none_or(|from| from <= at))
        })
    }
}

/// Returns a name without the date at its end: `-2024-08-06`, `-20240806` or `@20240806`.
pub(crate) fn strip_date(name: &str) -> Option<&str> {
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
