//! Reading prices: those that an application lists, and files in the format of genai-prices.

use regex::RegexBuilder;
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::log::bill::Term;
use crate::log::price::{Factor, Rate, Rates, Unit};
use crate::log::price_list::{Model, Names, Offer, Prices};
use crate::value::time::{self, Time};
use crate::value::{json, Map, Value};

/// Holds what one of anything may cost at most, so that a million tokens of it fit into 64 bits.
const MOST: u64 = 1_000_000_000_000;

/// Levels of a file.
const DEEP: usize = 32;

/// Bytes of a compiled pattern.
const PATTERN_BYTES: usize = 1 << 20;

/// A file of prices, and what of it does not count.
#[derive(Debug)]
pub struct PriceFile {
    /// The prices.
    pub prices: Prices,
    /// The file's SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// How many models have a price.
    pub models: usize,
    /// Models without one, since something of it was not understood: provider, model, what.
    pub skipped: Vec<[String; 3]>,
    /// Prices that are not a whole number of 10^-12 dollars: provider, model, which.
    pub rounded: Vec<[String; 3]>,
}

/// The keys of a price that are not rates.
const MODEL: &str = "model";
const PROVIDER: &str = "provider";
const VALID_FROM: &str = "valid_from";
const CONTEXT_WINDOW: &str = "context_window";
const STEPS: &str = "steps";
const ABOVE: &str = "above";
const FACTORS: &str = "factors";

/// Reads a list of prices that an application gives, maps with atoms for keys.
///
/// # Errors
/// [`Error::Invalid`] with the place of what is wrong.
pub fn read_list(list: &Value) -> Result<Prices, Error> {
    let Value::List(list) = list else {
        return Err(Error::invalid(Vec::new(), "a list of prices"));
    };
    let mut offers: Vec<Offer> = Vec::new();
    for (index, given) in (0..).zip(list) {
        let read = read_price(given).map_err(|error| error.within(Value::Int(index)));
        let (provider, names, rates) = read?;
        let is_same = |offer: &&mut Offer| offer.provider == provider;
        let models = match offers.iter_mut().find(is_same) {
            Some(offer) => &mut offer.models,
            None => {
                offers.push(Offer {
                    provider,
                    ..Offer::default()
                });
                let Some(offer) = offers.last_mut() else {
                    continue;
                };
                &mut offer.models
            }
        };
        let key = |names: &Names| match names {
            Names::Named(name) => Some(name.clone()),
            _ => None,
        };
        match models
            .iter_mut()
            .find(|model| key(&model.names) == key(&names))
        {
            Some(model) => model.rates.push(rates),
            None => models.push(Model {
                names,
                rates: vec![rates],
            }),
        }
    }
    for model in offers.iter_mut().flat_map(|offer| &mut offer.models) {
        model.rates.sort_by_key(|rates| rates.valid_from);
    }
    Ok(Prices::new(offers, None))
}

fn read_price(given: &Value) -> Result<(Option<Box<str>>, Names, Rates), Error> {
    let wrong =
        |key: &str, expected: &'static str| Error::invalid(vec![Value::atom(key)], expected);
    let Value::Map(map) = given else {
        return Err(Error::invalid(
            Vec::new(),
            "a map with a :model and its prices",
        ));
    };
    let mut provider = None;
    let mut names = None;
    let mut rates = Rates::default();
    let mut steps = None;
    for (key, value) in map.iter() {
        let name = key.as_name().unwrap_or_default();
        match name {
            MODEL => {
                names = Some(match value {
                    Value::Atom(any) if **any == *"any" => Names::Any,
                    value => match value.as_str() {
                        Some(name) => Names::Named(name.into()),
                        None => return Err(wrong(MODEL, "a model's name, or :any")),
                    },
                });
            }
            PROVIDER => match value {
                Value::Nil => {}
                value => match value.as_name() {
                    Some(name) => provider = Some(name.to_lowercase().into()),
                    None => return Err(wrong(PROVIDER, "a provider's name")),
                },
            },
            VALID_FROM => match value {
                Value::Nil => {}
                value => match time::from_value(value) {
                    Some(at) => rates.valid_from = Some(at),
                    None => return Err(wrong(VALID_FROM, "a date or a time")),
                },
            },
            CONTEXT_WINDOW => match value {
                Value::Nil => {}
                value => {
                    rates.context_window = Some(
                        whole(value).ok_or_else(|| wrong(CONTEXT_WINDOW, "a number of tokens"))?,
                    )
                }
            },
            FACTORS => {
                rates.factors = read_factors(value).map_err(|error| error.within(key.clone()))?
            }
            STEPS => steps = Some(value),
            _ => match Unit::from_name(name) {
                Some(unit) => rates.rates.push(Rate {
                    unit,
                    base: read_rate(value).ok_or_else(|| wrong(name, RATE))?,
                    steps: Vec::new(),
                }),
                None => return Err(Error::invalid(vec![key.clone()], "a key of a price")),
            },
        }
    }
    for needed in [Unit::Input, Unit::Output] {
        if !rates.rates.iter().any(|rate| rate.unit == needed) {
            return Err(wrong(needed.name(), RATE));
        }
    }
    if let Some(steps) = steps {
        read_steps(steps, &mut rates.rates).map_err(|error| error.within(Value::atom(STEPS)))?;
    }
    let names = names.ok_or_else(|| wrong(MODEL, "a model's name, or :any"))?;
    Ok((provider, names, rates))
}

const RATE: &str = "a whole number of 10^-12 US dollars, at most 10^12";

fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn read_rate(value: &Value) -> Option<u64> {
    whole(value).filter(|rate| *rate <= MOST)
}

/// `[%{above: 200_000, input: 6_000_000}]`: what requests with more tokens cost, all of their tokens.
fn read_steps(given: &Value, rates: &mut [Rate]) -> Result<(), Error> {
    let Value::List(steps) = given else {
        return Err(Error::invalid(
            Vec::new(),
            "a list of maps with :above and prices",
        ));
    };
    for (index, step) in (0..).zip(steps) {
        let wrong = |key: &str, expected: &'static str| {
            Error::invalid(vec![Value::Int(index), Value::atom(key)], expected)
        };
        let Value::Map(map) = step else {
            return Err(wrong(ABOVE, "a number of tokens"));
        };
        let above = map.get_named(ABOVE).and_then(whole);
        let above = above.ok_or_else(|| wrong(ABOVE, "a number of tokens"))?;
        for (key, value) in map.iter() {
            let name = key.as_name().unwrap_or_default();
            if name == ABOVE {
                continue;
            }
            let unit = Unit::from_name(name).ok_or_else(|| wrong(name, "a key of a price"))?;
            let of = rates.iter_mut().find(|rate| rate.unit == unit);
            let of = of.ok_or_else(|| wrong(name, "what has a price for short requests, too"))?;
            of.steps
                .push((above, read_rate(value).ok_or_else(|| wrong(name, RATE))?));
            of.steps.sort_unstable();
        }
    }
    Ok(())
}

/// `%{service_tier: %{"batch" => {1, 2}}}`
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

/// Reads a file in the format of genai-prices. `provider` is whose prices count, whatever answers say.
///
/// # Errors
/// [`Error::Invalid`] where it is no such file.
///
/// # Complexity
/// O(n)
pub fn read_file(text: &[u8], provider: Option<&str>) -> Result<PriceFile, Error> {
    let digest = Sha256::digest(text);
    let mut file = PriceFile {
        prices: Prices::default(),
        sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        models: 0,
        skipped: Vec::new(),
        rounded: Vec::new(),
    };
    let Value::List(providers) = json::read(text, DEEP)? else {
        return Err(Error::invalid(
            Vec::new(),
            "a list of providers with their models",
        ));
    };
    let mut offers = Vec::new();
    for (index, given) in (0..).zip(&providers) {
        let wrong = |key: &str, expected: &'static str| {
            Error::invalid(vec![Value::Int(index), Value::text(key)], expected)
        };
        let Value::Map(map) = given else {
            return Err(wrong("id", "a map"));
        };
        let id = map.get_named("id").and_then(Value::as_str);
        let id = id.ok_or_else(|| wrong("id", "a provider's name"))?;
        let Some(Value::List(models)) = map.get_named("models") else {
            return Err(wrong("models", "a list of models"));
        };
        let mut offer = Offer {
            provider: Some(id.to_lowercase().into()),
            ..Offer::default()
        };
        for (key, names) in [
            ("provider_match", &mut offer.providers),
            ("model_match", &mut offer.models_match),
        ] {
            match map.get_named(key) {
                None | Some(Value::Nil) => {}
                Some(given) => match read_names(given) {
                    Some(read) => *names = Some(read),
                    None => file.skipped.push([id.into(), String::new(), key.into()]),
                },
            }
        }
        if let Some(Value::List(others)) = map.get_named("fallback_model_providers") {
            let others = others.iter().filter_map(Value::as_str);
            offer.fallback = others.map(Into::into).collect();
        }
        for model in models {
            let name = match model {
                Value::Map(model) => model.get_named("id").and_then(Value::as_str),
                _ => None,
            };
            let name = name.unwrap_or("?").to_owned();
            match read_model(model, &mut |unit| {
                file.rounded.push([id.into(), name.clone(), unit.into()])
            }) {
                Ok(model) => offer.models.push(model),
                Err(what) => file.skipped.push([id.into(), name, what]),
            }
        }
        file.models += offer.models.len();
        offers.push(offer);
    }
    let provider = provider.map(|provider| provider.to_lowercase().into());
    file.prices = Prices::new(offers, provider);
    Ok(file)
}

fn read_names(given: &Value) -> Option<Names> {
    let Value::Map(map) = given else { return None };
    let [(key, value)] = map.iter().as_slice() else {
        return None;
    };
    let small = || Some(value.as_str()?.to_lowercase().into_boxed_str());
    let several = || match value {
        Value::List(some) => some.iter().map(read_names).collect::<Option<Vec<_>>>(),
        _ => None,
    };
    Some(match key.as_str()? {
        "equals" => Names::Equals(small()?),
        "starts_with" => Names::StartsWith(small()?),
        "ends_with" => Names::EndsWith(small()?),
        "contains" => Names::Contains(small()?),
        "regex" => {
            let pattern = RegexBuilder::new(value.as_str()?)
                .size_limit(PATTERN_BYTES)
                .build();
            Names::Pattern(pattern.ok()?)
        }
        "or" => Names::Or(several()?),
        "and" => Names::And(several()?),
        _ => return None,
    })
}

fn read_model(given: &Value, note: &mut impl FnMut(&str)) -> Result<Model, String> {
    let Value::Map(map) = given else {
        return Err("no map".into());
    };
    let names = map.get_named("match").and_then(read_names).ok_or("match")?;
    let context_window = map.get_named("context_window").and_then(whole);
    let of = |prices: &Map, valid_from, note: &mut _| {
        Ok::<_, String>(Rates {
            valid_from,
            rates: read_rates(prices, note)?,
            factors: Vec::new(),
            context_window,
        })
    };
    let rates = match map.get_named("prices") {
        Some(Value::Map(prices)) => vec![of(prices, None, note)?],
        Some(Value::List(several)) => {
            let mut read = Vec::new();
            for conditional in several {
                let Value::Map(conditional) = conditional else {
                    return Err("prices".into());
                };
                let Some(Value::Map(prices)) = conditional.get_named("prices") else {
                    return Err("prices".into());
                };
                let valid_from = match conditional.get_named("constraint") {
                    None | Some(Value::Nil) => None,
                    Some(constraint) => Some(read_start(constraint)?),
                };
                read.push(of(prices, valid_from, note)?);
            }
            read
        }
        _ => return Err("prices".into()),
    };
    Ok(Model { names, rates })
}

/// From which day on.
fn read_start(constraint: &Value) -> Result<Time, String> {
    let Value::Map(map) = constraint else {
        return Err("constraint".into());
    };
    let [(key, value)] = map.iter().as_slice() else {
        let keys: Vec<&str> = map.iter().filter_map(|(key, _)| key.as_str()).collect();
        return Err(keys.join(", "));
    };
    let key = key.as_str().unwrap_or_default();
    let day = value.as_str().filter(|_| key == "start_date");
    let start = day.and_then(|day| time::from_value(&Value::text(&format!("{day}T00:00:00Z"))));
    start.ok_or_else(|| key.to_owned())
}

/// The file's key of a unit, and of how many of it the price is.
const FILE_KEYS: [(&str, Unit, u64); 18] = [
    ("input_mtok", Unit::Input, MILLION),
    ("cache_read_mtok", Unit::CacheRead, MILLION),
    ("cache_write_mtok", Unit::CacheWrite, MILLION),
    ("cache_write_5m_mtok", Unit::CacheWrite, MILLION),
    ("cache_write_1h_mtok", Unit::CacheWriteHour, MILLION),
    ("input_audio_mtok", Unit::InputAudio, MILLION),
    ("input_image_mtok", Unit::InputImage, MILLION),
    ("input_video_mtok", Unit::InputVideo, MILLION),
    ("cache_audio_read_mtok", Unit::CacheReadAudio, MILLION),
    ("cache_image_read_mtok", Unit::CacheReadImage, MILLION),
    ("cache_video_read_mtok", Unit::CacheReadVideo, MILLION),
    ("output_mtok", Unit::Output, MILLION),
    ("output_reasoning_mtok", Unit::Reasoning, MILLION),
    ("output_audio_mtok", Unit::OutputAudio, MILLION),
    ("output_image_mtok", Unit::OutputImage, MILLION),
    ("output_video_mtok", Unit::OutputVideo, MILLION),
    ("web_searches_kcount", Unit::Search, 1_000),
    ("requests_kcount", Unit::Request, 1_000),
];

const MILLION: u64 = 1_000_000;

fn read_rates(prices: &Map, note: &mut impl FnMut(&str)) -> Result<Vec<Rate>, String> {
    let mut rates: Vec<Rate> = Vec::new();
    for (key, value) in prices.iter() {
        let name = key.as_str().unwrap_or_default();
        let known = FILE_KEYS.iter().find(|(known, _, _)| *known == name);
        let (_, unit, per) = known.ok_or(name)?;
        let mut amount = |value: &Value| {
            let (amount, is_whole) = dollars(value, *per).ok_or(name)?;
            if !is_whole {
                note(name);
            }
            Ok::<u64, String>(amount)
        };
        let (base, steps) = match value {
            Value::Nil => continue,
            Value::Map(tiers) => {
                let base = amount(tiers.get_named("base").unwrap_or(&Value::Nil))?;
                let Some(Value::List(given)) = tiers.get_named("tiers") else {
                    return Err(name.to_owned());
                };
                let mut steps = Vec::new();
                for tier in given {
                    let Value::Map(tier) = tier else {
                        return Err(name.to_owned());
                    };
                    let start = tier.get_named("start").and_then(whole).ok_or(name)?;
                    steps.push((
                        start,
                        amount(tier.get_named("price").unwrap_or(&Value::Nil))?,
                    ));
                }
                steps.sort_by_key(|(start, _)| *start);
                (base, steps)
            }
            value => (amount(value)?, Vec::new()),
        };
        if rates.iter().any(|rate| rate.unit == *unit) {
            return Err(name.to_owned()); // the same under two names
        }
        rates.push(Rate {
            unit: *unit,
            base,
            steps,
        });
    }
    Ok(rates)
}

/// Returns what one costs in 10^-12 dollars if so many cost this, and whether that is a whole number.
fn dollars(value: &Value, per: u64) -> Option<(u64, bool)> {
    let text = match value {
        Value::Int(number) => number.to_string(),
        // The shortest text that gives the number again is what stands in the file.
        Value::Float(number) => number.to_string(),
        _ => return None,
    };
    let (before, after) = text.split_once('.').unwrap_or((&text, ""));
    let places = 12 - per.ilog10() as usize;
    let digits: String = after
        .chars()
        .chain(std::iter::repeat('0'))
        .take(places)
        .collect();
    let rest = after.get(places..).unwrap_or_default();
    let is_whole = rest.chars().all(|digit| digit == '0');
    let amount: u64 = format!("{before}{digits}").parse().ok()?;
    let up = rest.chars().next().is_some_and(|digit| digit >= '5');
    let amount = amount.checked_add(u64::from(up))?;
    (amount <= MOST).then_some((amount, is_whole))
}
