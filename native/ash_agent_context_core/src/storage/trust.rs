//! The trust in a document beyond its messages: a stranger can write that a call was approved, and can name a struct of any
//! module that a tool then works with.

use std::collections::BTreeSet;

use chrono::{NaiveDate, NaiveTime};

use crate::value::word::words;
use crate::value::{Map, Value};

/// The trust in a document. By default all of it is trusted: it is the application's own storage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Trust {
    /// The trust in decisions about tool calls.
    pub approvals: Approvals,
    /// The trust in structs in values.
    pub structs: Structs,
}

words! {
    /// The choices for decisions about tool calls.
    #[derive(Default)]
    pub enum Approvals {
        /// They are kept.
        #[default]
        Keep = "keep",
        /// They are dropped: an approved call waits for a decision again, one that was denied ended with an error.
        Drop = "drop",
    }

    /// The choices for structs.
    #[derive(Default)]
    pub enum Structs {
        /// They are kept.
        #[default]
        Keep = "keep",
        /// Structs of Elixir's own value types are kept when all of their fields are right; any other
        /// becomes a map.
        Known = "known",
        /// Each becomes a map.
        Drop = "drop",
    }
}

impl Trust {
    /// Trusts everything.
    pub(crate) const KEEP: Self = Self {
        approvals: Approvals::Keep,
        structs: Structs::Keep,
    };
}

/// The key that makes a map a struct.
const STRUCT: &str = "__struct__";

impl Structs {
    /// Returns the map, as a struct only if it may be one.
    pub(crate) fn admit(self, map: Map) -> Map {
        if self == Self::Keep || map.get_atom(STRUCT).is_none() {
            return map;
        }
        if self == Self::Known && is_known(&map) {
            return map;
        }
        let mut entries = map.into_entries();
        entries.retain(|(key, _)| !matches!(key, Value::Atom(name) if &**name == STRUCT));
        Map::new(entries)
    }
}

/// Fields of a struct, and whether their values are right.
type Part = (&'static [&'static str], fn(&Map) -> bool);

const DATE: Part = (&["calendar", "year", "month", "day"], is_date);
const CLOCK: Part = (
    &["calendar", "hour", "minute", "second", "microsecond"],
    is_clock,
);
const ZONE: Part = (
    &["time_zone", "zone_abbr", "utc_offset", "std_offset"],
    is_zone,
);
const DECIMAL: Part = (&["sign", "coef", "exp"], is_decimal);

/// Decimals with exponents beyond those of IEEE 754's decimal128 are not accepted: the digits of one of `1e1000000000` fill
/// the memory of a program that writes it out or adds to it.
const MAX_EXPONENT: i64 = 6176;

/// A time zone is away from UTC by so many seconds, at most.
const MAX_OFFSET: i64 = 86_400;

/// Returns true if a struct is of a type that only holds a value, with exactly the fields that its own module would give it.
///
/// Types that do something when they are used are not in the list: a range counts up to any number, a stream opens a file, a
/// calendar other than ISO is a module that gets called. Nor are those whose fields differ from one release of Elixir to the
/// next, such as `MapSet`.
fn is_known(map: &Map) -> bool {
    let Some(Value::Atom(module)) = map.get_atom(STRUCT) else {
        return false;
    };
    let parts: &[Part] = match &**module {
        "Elixir.Date" => &[DATE],
        "Elixir.Time" => &[CLOCK],
        "Elixir.NaiveDateTime" => &[DATE, CLOCK],
        "Elixir.DateTime" => &[DATE, CLOCK, ZONE],
        "Elixir.Decimal" => &[DECIMAL],
        _ => return false,
    };
    // Dates and times share their calendar.
    let names: BTreeSet<&str> = parts.iter().flat_map(|part| part.0).copied().collect();
    map.len() == names.len() + 1
        && names.iter().all(|name| map.get_atom(name).is_some())
        && parts.iter().all(|part| part.1(map))
}

fn is_iso(map: &Map) -> bool {
    is_atom(map, "calendar", "Elixir.Calendar.ISO")
}

fn is_atom(map: &Map, field: &str, name: &str) -> bool {
    matches!(map.get_atom(field), Some(Value::Atom(atom)) if &**atom == name)
}

fn small(map: &Map, field: &str) -> Option<u32> {
    u32::try_from(map.get_int(field)?).ok()
}

fn is_date(map: &Map) -> bool {
    let date = || {
        let year = map
            .get_int("year")
            .filter(|year| (-9999..=9999).contains(year))?;
        let year = i32::try_from(year).ok()?;
        NaiveDate::from_ymd_opt(year, small(map, "month")?, small(map, "day")?)
    };
    is_iso(map) && date().is_some()
}

fn is_clock(map: &Map) -> bool {
    let clock = || {
        let (hour, minute) = (small(map, "hour")?, small(map, "minute")?);
        NaiveTime::from_hms_opt(hour, minute, small(map, "second")?)
    };
    let Some(Value::Tuple(microsecond)) = map.get_atom("microsecond") else {
        return false;
    };
    is_iso(map)
        && clock().is_some()
        && matches!(&**microsecond, [Value::Int(0..=999_999), Value::Int(0..=6)])
}

fn is_zone(map: &Map) -> bool {
    let text = |field| map.get_atom(field).and_then(Value::as_str);
    let offset = |field| {
        map.get_int(field)
            .filter(|seconds| seconds.checked_abs().is_some_and(|s| s < MAX_OFFSET))
    };
    match (text("time_zone"), text("zone_abbr")) {
        (Some("Etc/UTC"), Some(abbr)) => {
            abbr == "UTC" && offset("utc_offset") == Some(0) && offset("std_offset") == Some(0)
        }
        (Some(_), Some(_)) => offset("utc_offset").is_some() && offset("std_offset").is_some(),
        _ => false,
    }
}

fn is_decimal(map: &Map) -> bool {
    let coefficient = match map.get_atom("coef") {
        Some(Value::Int(coefficient)) => *coefficient >= 0,
        Some(Value::BigInt(coefficient)) => coefficient.sign() != num_bigint::Sign::Minus,
        _ => is_atom(map, "coef", "NaN") || is_atom(map, "coef", "inf"),
    };
    let exponent = map
        .get_int("exp")
        .is_some_and(|exp| (-MAX_EXPONENT..=MAX_EXPONENT).contains(&exp));
    coefficient && exponent && matches!(map.get_int("sign"), Some(1 | -1))
}
