//! Structs that have a text form.

use serde_json::value::RawValue;

use crate::value::{Map, Value};

/// Returns the JSON of a struct that stands for a finished text; it is written as it is.
pub(crate) fn fragment(map: &Map) -> Option<&[u8]> {
    let name = map.get_atom("__struct__")?.as_name()?;
    match map.get_atom("text")? {
        Value::Binary(text) if name == "Elixir.AshAgent.Context.JSON.Fragment" => Some(text),
        _ => None,
    }
}

/// Returns a text if it is one JSON value.
pub(crate) fn ready(text: &[u8]) -> Option<&RawValue> {
    serde_json::from_slice(text).ok()
}

/// Returns the text of a struct whose JSON is a string: dates and times, and `Decimal`.
#[must_use]
pub fn struct_text(map: &Map) -> Option<String> {
    match map.get_atom("__struct__")?.as_name()? {
        "Elixir.Date" => date(map),
        "Elixir.Time" => clock(map),
        "Elixir.NaiveDateTime" => Some(format!("{}T{}", date(map)?, clock(map)?)),
        "Elixir.DateTime" => Some(format!("{}T{}{}", date(map)?, clock(map)?, offset(map)?)),
        "Elixir.Decimal" => decimal(map),
        _ => None,
    }
}

fn date(map: &Map) -> Option<String> {
    let (year, month, day) = (
        map.get_int("year")?,
        map.get_int("month")?,
        map.get_int("day")?,
    );
    let sign = if year < 0 { "-" } else { "" };
    Some(format!(
        "{sign}{:04}-{month:02}-{day:02}",
        year.unsigned_abs()
    ))
}

fn clock(map: &Map) -> Option<String> {
    let (hour, minute, second) = (
        map.get_int("hour")?,
        map.get_int("minute")?,
        map.get_int("second")?,
    );
    let Value::Tuple(micro) = map.get_atom("microsecond")? else {
        return None;
    };
    let [Value::Int(micros), Value::Int(digits)] = &**micro else {
        return None;
    };
    let fraction: String = format!("{micros:06}")
        .chars()
        .take(usize::try_from(*digits).ok()?)
        .collect();
    let dot = if fraction.is_empty() { "" } else { "." };
    Some(format!("{hour:02}:{minute:02}:{second:02}{dot}{fraction}"))
}

fn offset(map: &Map) -> Option<String> {
    let seconds = map
        .get_int("utc_offset")?
        .checked_add(map.get_int("std_offset")?)?;
    if seconds == 0 {
        return Some("Z".to_owned());
    }
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.unsigned_abs() / 60;
    Some(format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60))
}

fn decimal(map: &Map) -> Option<String> {
    let sign = if map.get_int("sign")? < 0 { "-" } else { "" };
    let digits = match map.get_atom("coef")? {
        Value::Int(coef) if *coef >= 0 => coef.to_string(),
        Value::BigInt(coef) if coef.bits() <= 1024 => coef.magnitude().to_string(),
        // `:NaN` and `:inf`
        other => return Some(format!("{sign}{}", other.as_name()?)),
    };
    let exp = map.get_int("exp")?;
    let places = usize::try_from(exp.checked_neg()?).unwrap_or(0);
    Some(match exp {
        0 => format!("{sign}{digits}"),
        -20..=-1 => {
            let padded = format!("{digits:0>width$}", width = places + 1);
            let (whole, fraction) = padded.split_at(padded.len() - places);
            format!("{sign}{whole}.{fraction}")
        }
        _ => format!("{sign}{digits}E{exp:+}"),
    })
}
