//! Reads the prices that an application lists.

use std::cmp::Reverse;

use crate::error::{each, Error};
use crate::prices::bill::Term;
use crate::prices::list::{Model, Names, Offer, Prices};
use crate::prices::rates::{Factor, Rate, Rates, Unit};
use crate::value::time;
use crate::value::Value;

/// The highest price of one unit, so that a million tokens of it fit into 64 bits.
pub const MOST: u64 = 1_000_000_000_000;

/// Reads a list of prices that an application gives, maps with atoms for keys.
///
/// # Errors
/// [`Error::Invalid`] with the place of what is wrong.
pub fn read_list(list: &Value) -> Result<Prices, Error> {
    let Value::List(list) = list else {
        return Err(Error::invalid(Vec::new(), "a list of prices"));
    };
    let mut offers: Vec<Offer> = Vec::new();
    for (provider, model) in each(list, read_price)? {
        match offers.iter_mut().find(|offer| offer.provider == provider) {
            Some(offer) => offer.models.push(model),
            None => offers.push(Offer {
                provider,
                models: vec![model],
                ..Offer::default()
            }),
        }
    }
    // The first of a name whose time has come counts: the latest, and of two for one time that which is listed later.
    for Offer { models, .. } in &mut offers {
        models.reverse();
        models.sort_by_key(|model| Reverse(model.rates.first().and_then(|rates| rates.valid_from)));
    }
    Ok(Prices::new(offers, None))
}

/// Returns an error at a key of a price.
fn wrong(key: &str, expected: &'static str) -> Error {
    Error::invalid(vec![Value::atom(key)], expected)
}

/// Reads the value of a key that may be left out.
fn given<T>(
    key: &str,
    value: &Value,
    expected: &'static str,
    read: impl FnOnce(&Value) -> Option<T>,
) -> Result<Option<T>, Error> {
    match value {
        Value::Nil => Ok(None),
        value => read(value).map(Some).ok_or_else(|| wrong(key, expected)),
    }
}

fn read_price(price: &Value) -> Result<(Option<Box<str>>, Model), Error> {
    let Value::Map(map) = price else {
        let expected = "a map with a :model and its prices";
        return Err(Error::invalid(Vec::new(), expected));
    };
    let (mut provider, mut names, mut steps) = (None, None, None);
    let mut rates = Rates::default();
    for (key, value) in map.iter() {
        let name = key.as_name().unwrap_or_default();
        match name {
            "model" => {
                names = Some(match value {
                    Value::Atom(any) if **any == *"any" => Names::Any,
                    value => {
                        Names::Named(value.as_str().ok_or_else(|| wrong("model", NAME))?.into())
                    }
                });
            }
            "provider" => {
                let name = given(name, value, "a provider's name", |value| {
                    Some(value.as_name()?.to_lowercase().into())
                })?;
                provider = name.or(provider);
            }
            "valid_from" => {
                let time = given(name, value, "a date or a time", time::from_value)?;
                rates.valid_from = time.or(rates.valid_from);
            }
            "context_window" => {
                let tokens = given(name, value, TOKENS, Value::as_count)?;
                rates.context_window = tokens.or(rates.context_window);
            }
            "cache_minimum" => {
                let tokens = given(name, value, TOKENS, Value::as_count)?;
                rates.cache_minimum = tokens.or(rates.cache_minimum);
            }
            "factors" => {
                rates.factors = read_factors(value).map_err(|error| error.within(key.clone()))?
            }
            "steps" => steps = Some(value),
            _ => {
                let unit = Unit::from_name(name);
                let unit = unit.ok_or_else(|| Error::invalid(vec![key.clone()], KEY))?;
                rates.rates.push(Rate {
                    unit,
                    base: read_rate(value).ok_or_else(|| wrong(name, RATE))?,
                    steps: Vec::new(),
                });
            }
        }
    }
    for needed in [Unit::Input, Unit::Output] {
        if !rates.rates.iter().any(|rate| rate.unit == needed) {
            return Err(wrong(needed.name(), RATE));
        }
    }
    if let Some(steps) = steps {
        read_steps(steps, &mut rates.rates).map_err(|error| error.within(Value::atom("steps")))?;
    }
    let names = names.ok_or_else(|| wrong("model", NAME))?;
    let rates = vec![rates];
    Ok((provider, Model { names, rates }))
}

const NAME: &str = "a model's name, or :any";
const KEY: &str = "a key of a price";
const TOKENS: &str = "a number of tokens";
const RATE: &str = "a whole number of 10^-12 US dollars, at most 10^12";

fn read_rate(value: &Value) -> Option<u64> {
    value.as_count().filter(|rate| *rate <= MOST)
}

/// Reads `[%{above: 200_000, input: 6_000_000}]`: the prices in requests of more tokens, for all of their tokens.
fn read_steps(given: &Value, rates: &mut [Rate]) -> Result<(), Error> {
    let Value::List(steps) = given else {
        let expected = "a list of maps with :above and prices";
        return Err(Error::invalid(Vec::new(), expected));
    };
    each(steps, |step| {
        let above = step
            .as_map()
            .and_then(|map| Some((map, map.get_named("above")?.as_count()?)));
        let (map, above) = above.ok_or_else(|| wrong("above", TOKENS))?;
        for (key, value) in map.iter() {
            let name = key.as_name().unwrap_or_default();
            if name == "above" {
                continue;
            }
            let unit = Unit::from_name(name).ok_or_else(|| wrong(name, KEY))?;
            let of = rates.iter_mut().find(|rate| rate.unit == unit);
            let of = of.ok_or_else(|| wrong(name, "what has a price for short requests, too"))?;
            let rate = read_rate(value).ok_or_else(|| wrong(name, RATE))?;
            of.steps.push((above, rate));
            of.steps.sort_unstable();
        }
        Ok(())
    })?;
    Ok(())
}

/// Reads `%{service_tier: %{"batch" => {1, 2}}}`.
fn read_factors(given: &Value) -> Result<Vec<Factor>, Error> {
    let expected = "a map such as %{service_tier: %{\"batch\" => {1, 2}}}";
    let wrong = || Error::invalid(Vec::new(), expected);
    let Value::Map(terms) = given else {
        return Err(wrong());
    };
    let mut factors = Vec::new();
    for (key, words) in terms.iter() {
        let name = key.as_name().ok_or_else(wrong)?;
        let term = Term::from_name(name).ok_or_else(wrong)?;
        let Value::Map(words) = words else {
            return Err(wrong());
        };
        for (word, factor) in words.iter() {
            let word = word.as_name().ok_or_else(wrong)?;
            let ratio = match factor {
                Value::Tuple(ratio) => match &**ratio {
                    [times, through] => read_rate(times).zip(read_rate(through)),
                    _ => None,
                },
                _ => None,
            };
            let (times, through) = ratio
                .filter(|(_, through)| *through > 0)
                .ok_or_else(wrong)?;
            let word = word.to_lowercase().into();
            factors.push(Factor {
                term,
                word,
                times,
                through,
            });
        }
    }
    Ok(factors)
}
