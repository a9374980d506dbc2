//! Reads files of prices in the format of genai-prices.
//!
//! Such files get new keys with time: a model with an unknown one is skipped, with the reason.

use regex::RegexBuilder;
use sha2::{Digest, Sha256};

use crate::error::{each, Error};
use crate::prices::list::{Model, NameTest, Names, Offer, Prices};
use crate::prices::rates::{Rate, Rates, Unit};
use crate::prices::read::MOST;
use crate::value::letters::hex;
use crate::value::time::{self, Time};
use crate::value::{json, Map, Value};

/// The most levels of a file.
const DEEP: usize = 32;

/// The most bytes of a compiled pattern.
const PATTERN_BYTES: usize = 1 << 20;

/// A file of prices, with the models and prices in it that do not count.
#[derive(Debug, Default)]
pub struct PriceFile {
    /// The prices of the models that are understood.
    pub prices: Prices,
    /// The file's SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// The number of models with a price.
    pub models: usize,
    /// The models without a price, as something about them was not understood: provider, model, reason.
    pub skipped: Vec<[String; 3]>,
    /// The prices that are no whole number of 10^-12 dollars: provider, model, key.
    pub rounded: Vec<[String; 3]>,
}

/// Reads a file in the format of genai-prices. `provider`: the provider to pay, whatever answers say.
///
/// # Errors
/// [`Error::Invalid`] if it is no such file.
///
/// # Complexity
/// O(n)
pub fn read_file(text: &[u8], provider: Option<&str>) -> Result<PriceFile, Error> {
    let mut file = PriceFile {
        sha256: hex(&Sha256::digest(text)),
        ..PriceFile::default()
    };
    let Value::List(providers) = json::read(text, DEEP)? else {
        let expected = "a list of providers with their models";
        return Err(Error::invalid(Vec::new(), expected));
    };
    let offers = each(&providers, |given| file.read_offer(given))?;
    file.models = offers.iter().map(|offer| offer.models.len()).sum();
    file.prices = Prices::new(offers, provider.map(|name| name.to_lowercase().into()));
    Ok(file)
}

impl PriceFile {
    /// Reads a provider and its models.
    fn read_offer(&mut self, given: &Value) -> Result<Offer, Error> {
        let wrong = |key, expected| Error::invalid(vec![Value::text(key)], expected);
        let map = given.as_map().ok_or_else(|| wrong("id", "a map"))?;
        let id = text(map, "id").ok_or_else(|| wrong("id", "a provider's name"))?;
        let models = list(map, "models").ok_or_else(|| wrong("models", "a list of models"))?;
        let mut names = |key: &str| {
            let given = map.get_named(key).filter(|given| **given != Value::Nil)?;
            let read = read_names(given);
            if read.is_none() {
                self.skipped.push([id.into(), String::new(), key.into()]);
            }
            read
        };
        let mut offer = Offer {
            provider: Some(id.to_lowercase().into()),
            providers: names("provider_match"),
            models_match: names("model_match"),
            ..Offer::default()
        };
        let others = list(map, "fallback_model_providers").unwrap_or_default();
        let others = others.iter().filter_map(Value::as_str);
        offer.fallback = others.map(Into::into).collect();
        for given in models {
            let model = given.as_map().and_then(|model| text(model, "id"));
            let model = model.unwrap_or("?");
            let mut note = |unit: &str| {
                self.rounded.push([id.into(), model.into(), unit.into()]);
            };
            match read_model(given, &mut note) {
                Ok(read) => offer.models.push(read),
                Err(what) => self.skipped.push([id.into(), model.into(), what]),
            }
        }
        Ok(offer)
    }
}

fn list<'v>(map: &'v Map, key: &str) -> Option<&'v [Value]> {
    map.get_named(key)?.as_list()
}

fn text<'v>(map: &'v Map, key: &str) -> Option<&'v str> {
    map.get_named(key)?.as_str()
}

fn read_names(given: &Value) -> Option<Names> {
    let [(key, value)] = given.as_map()?.iter().as_slice() else {
        return None;
    };
    let key = key.as_str()?;
    if let Some((_, passes)) = TESTS.iter().find(|(name, _)| *name == key) {
        return Some(Names::Test(*passes, value.as_str()?.to_lowercase().into()));
    }
    let several = || {
        value
            .as_list()?
            .iter()
            .map(read_names)
            .collect::<Option<Vec<_>>>()
    };
    match key {
        "regex" => {
            let mut pattern = RegexBuilder::new(value.as_str()?);
            let pattern = pattern.size_limit(PATTERN_BYTES).build();
            pattern.ok().map(Names::Pattern)
        }
        "or" => several().map(Names::Or),
        "and" => several().map(Names::And),
        _ => None,
    }
}

const TESTS: [(&str, NameTest); 4] = [
    ("equals", |name, text| name == text),
    ("starts_with", |name, text| name.starts_with(text)),
    ("ends_with", |name, text| name.ends_with(text)),
    ("contains", |name, text| name.contains(text)),
];

/// Reads a model with its prices. An error says which field is not understood.
fn read_model(given: &Value, note: &mut impl FnMut(&str)) -> Result<Model, String> {
    let model = given.as_map().ok_or("no map")?;
    let names = model.get_named("match").and_then(read_names);
    let names = names.ok_or("match")?;
    let count = |key| model.get_named(key).and_then(Value::as_count);
    let (context_window, cache_minimum) = (count("context_window"), count("cache_minimum"));
    let mut of = |prices: &Map, valid_from| {
        Ok::<_, String>(Rates {
            valid_from,
            rates: read_rates(prices, note)?,
            factors: Vec::new(),
            context_window,
            cache_minimum,
        })
    };
    let rates = match list(model, "prices") {
        Some(several) => {
            let since = |conditional: &Value| {
                let conditional = conditional.as_map().ok_or("prices")?;
                let prices = prices_of(conditional)?;
                of(prices, read_start(conditional.get_named("constraint"))?)
            };
            several.iter().map(since).collect::<Result<_, _>>()?
        }
        None => vec![of(prices_of(model)?, None)?],
    };
    Ok(Model { names, rates })
}

fn prices_of(of: &Map) -> Result<&Map, &'static str> {
    of.get_named("prices")
        .and_then(Value::as_map)
        .ok_or("prices")
}

/// Returns the day from which prices count.
fn read_start(constraint: Option<&Value>) -> Result<Option<Time>, String> {
    let Some(constraint) = constraint.filter(|given| **given != Value::Nil) else {
        return Ok(None);
    };
    let map = constraint.as_map().ok_or("constraint")?;
    let [(key, value)] = map.iter().as_slice() else {
        let keys: Vec<&str> = map.iter().filter_map(|(key, _)| key.as_str()).collect();
        return Err(keys.join(", "));
    };
    let key = key.as_str().unwrap_or_default();
    let day = value.as_str().filter(|_| key == "start_date");
    let start = day.and_then(|day| time::from_value(&Value::text(&format!("{day}T00:00:00Z"))));
    start.map(Some).ok_or_else(|| key.to_owned())
}

/// The file's key of a unit, and how many units its price is for.
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
                let tier = |tier: &Value| {
                    let tier = tier.as_map().ok_or(name)?;
                    let start = tier.get_named("start").and_then(Value::as_count);
                    let start = start.ok_or(name)?;
                    let price = tier.get_named("price").unwrap_or(&Value::Nil);
                    Ok((start, amount(price)?))
                };
                let tiers = list(tiers, "tiers").ok_or(name)?.iter().map(tier);
                let mut steps = tiers.collect::<Result<Vec<_>, String>>()?;
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

/// Returns the price of one unit in 10^-12 dollars, if `per` of them cost `value`, and whether it is a whole number.
fn dollars(value: &Value, per: u64) -> Option<(u64, bool)> {
    let text = match value {
        Value::Int(number) => number.to_string(),
        // The shortest text that gives the same number is the one in the file.
        Value::Float(number) => number.to_string(),
        _ => return None,
    };
    let (before, after) = text.split_once('.').unwrap_or((&text, ""));
    let places = 12 - per.ilog10() as usize;
    let (digits, rest) = after.split_at_checked(places).unwrap_or((after, ""));
    let amount: u64 = format!("{before}{digits:0<places$}").parse().ok()?;
    let amount = amount.checked_add(u64::from(rest >= "5"))?;
    let is_whole = rest.bytes().all(|digit| digit == b'0');
    (amount <= MOST).then_some((amount, is_whole))
}
