//! Lists of prices, and which price is meant by a name.

use regex::Regex;

use crate::prices::rates::Rates;
use crate::value::time::Time;

/// Which names are meant.
#[derive(Debug, Clone)]
pub enum Names {
    /// All that have no price of their own.
    Any,
    /// This one, and as which the provider answers: with a date at its end.
    Named(Box<str>),
    /// This one, in any case of its letters, as all that follow.
    Equals(Box<str>),
    /// That begin so.
    StartsWith(Box<str>),
    /// That end so.
    EndsWith(Box<str>),
    /// That hold this.
    Contains(Box<str>),
    /// That a pattern is found in.
    Pattern(Regex),
    /// One of several.
    Or(Vec<Names>),
    /// All of several.
    And(Vec<Names>),
}

impl Names {
    /// Returns whether a name is meant, as it is and in small letters.
    fn has(&self, name: &str, small: &str) -> bool {
        match self {
            Self::Any => false,
            Self::Named(known) => **known == *name,
            Self::Equals(known) => **known == *small,
            Self::StartsWith(start) => small.starts_with(&**start),
            Self::EndsWith(end) => small.ends_with(&**end),
            Self::Contains(part) => small.contains(&**part),
            Self::Pattern(pattern) => pattern.is_match(small),
            Self::Or(some) => some.iter().any(|names| names.has(name, small)),
            Self::And(all) => all.iter().all(|names| names.has(name, small)),
        }
    }

    const fn is_any(&self) -> bool {
        matches!(self, Self::Any)
    }
}

/// The prices of some models.
#[derive(Debug, Clone)]
pub struct Model {
    /// Which ones.
    pub names: Names,
    /// From different times on; of those that are valid, the last counts.
    pub rates: Vec<Rates>,
}

/// The models of a provider.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    /// The provider; `None`: of any.
    pub provider: Option<Box<str>>,
    /// Other names of the provider.
    pub providers: Option<Names>,
    /// Names of models that are this provider's, where nobody says whose they are.
    pub models_match: Option<Names>,
    /// Whose models it offers as well.
    pub fallback: Vec<Box<str>>,
    /// The first that is meant counts.
    pub models: Vec<Model>,
}

/// A list of prices.
#[derive(Debug, Default)]
pub struct Prices {
    offers: Vec<Offer>,
    /// Who is asked, whatever answers say.
    provider: Option<Box<str>>,
}

impl Prices {
    /// The offers in the order in which they are looked through.
    #[must_use]
    pub const fn new(offers: Vec<Offer>, provider: Option<Box<str>>) -> Self {
        Self { offers, provider }
    }

    /// The prices at a time for the first of these names that has any, or for all models. Providers add a date to the
    /// name that they were asked for: a name stands for itself without its date as well.
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
        let mut names = given
            .flat_map(|name| [Some(name), strip_date(name)])
            .flatten();
        let found = names.find_map(|name| self.of(named, name, at));
        let any = || {
            let offers = self.offers.iter().filter(|offer| offer.provider.is_none());
            let mut offers = named.into_iter().chain(offers);
            offers.find_map(|offer| offer.find(|names| names.is_any(), at))
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
        let mut offers = named
            .into_iter()
            .chain(fallback)
            .chain(everyones)
            .chain(owners);
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

/// A name without the date at its end: `-2024-08-06`, `-20240806` or `@20240806`.
fn strip_date(name: &str) -> Option<&str> {
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
