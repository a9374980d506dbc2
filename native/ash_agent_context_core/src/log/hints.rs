//! Hints that an application gives providers for a part: how closely to look, to cite, to cache up to here.

use crate::value::fields::Fields;
use crate::value::{Map, Value};

pub(crate) const DETAIL: &str = "detail";
pub(crate) const CITATIONS: &str = "citations";
pub(crate) const CACHE: &str = "cache";

/// How closely a model may look.
pub(crate) const DETAILS: [&str; 4] = ["auto", "low", "high", "original"];

/// The hints that a part of some kind can have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Takes {
    pub detail: bool,
    pub citations: bool,
    pub cache: bool,
}

/// Takes the hints that a part can have; `Err` is the key of one with an unknown value.
pub(crate) fn take(takes: Takes, fields: &mut Fields) -> Result<Option<Map>, &'static str> {
    let mut given = |key| Some((Value::atom(key), fields.take_given(key)?));
    let keys = [DETAIL, CITATIONS, CACHE].into_iter();
    let hints: Vec<_> = keys.filter_map(&mut given).collect();
    let hints = (!hints.is_empty()).then(|| Map::new(hints));
    hints.map(|hints| check(takes, hints)).transpose()
}

/// Checks hints that came from storage; `Err` is the key of one with an unknown value.
pub(crate) fn check(takes: Takes, hints: Map) -> Result<Map, &'static str> {
    for (key, value) in hints.iter() {
        match key.as_name() {
            Some(DETAIL) if takes.detail && is_detail(value) => {}
            Some(CITATIONS) if takes.citations && matches!(value, Value::Bool(_)) => {}
            Some(CACHE) if takes.cache && Ttl::of(value).is_ok() => {}
            Some(DETAIL) => return Err(DETAIL),
            Some(CITATIONS) => return Err(CITATIONS),
            _ => return Err(CACHE),
        }
    }
    Ok(hints)
}

fn is_detail(value: &Value) -> bool {
    value.as_name().is_some_and(|name| DETAILS.contains(&name))
}

/// The time for which a provider is to keep everything before a cache breakpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ttl {
    /// As long as it does by itself.
    Default,
    /// Anthropic and Bedrock.
    FiveMinutes,
    /// Anthropic and Bedrock.
    Hour,
    /// OpenAI.
    HalfHour,
    /// OpenAI.
    HalfDay,
}

impl Ttl {
    const ALL: [(&'static str, Self); 4] = [
        ("5m", Self::FiveMinutes),
        ("1h", Self::Hour),
        ("30m", Self::HalfHour),
        ("12h", Self::HalfDay),
    ];

    /// Reads `true`, `[ttl: "1h"]` or a map with it; `None` for `false`.
    pub fn of(value: &Value) -> Result<Option<Self>, ()> {
        let ttl = match value {
            Value::Bool(true) => return Ok(Some(Self::Default)),
            Value::Bool(false) => return Ok(None),
            Value::Map(map) if map.len() == 1 => map.get_named("ttl"),
            Value::List(items) => match &**items {
                [Value::Tuple(pair)] => match &**pair {
                    [key, ttl] if key.as_name() == Some("ttl") => Some(ttl),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        };
        let ttl = ttl.and_then(Value::as_name).ok_or(())?;
        let known = Self::ALL.into_iter().find(|(name, _)| *name == ttl);
        known.map(|(_, ttl)| Some(ttl)).ok_or(())
    }
}
