//! Points in time: UTC, microseconds.

use chrono::{DateTime, Datelike, NaiveDate, SecondsFormat, TimeDelta, Timelike, Utc};

use crate::value::{Map, Value};

/// A point in time in UTC with microseconds, by the caller's clock.
pub type Time = DateTime<Utc>;

/// Writes ISO 8601 with six digits of a second and `Z`.
#[must_use]
pub fn to_text(time: Time) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// Returns the time for microseconds since 1970.
#[must_use]
pub fn from_micros(micros: i64) -> Option<Time> {
    DateTime::from_timestamp_micros(micros).filter(in_calendar)
}

/// Reads ISO 8601 text with an offset, or a `DateTime` struct.
#[must_use]
pub fn from_value(value: &Value) -> Option<Time> {
    match value {
        Value::Binary(bytes) => from_text(bytes),
        Value::Map(map) => from_struct(map),
        _ => None,
    }
}

/// Reads ISO 8601 text with an offset.
pub(crate) fn from_text(text: &[u8]) -> Option<Time> {
    if let Some(time) = from_own_text(text) {
        return Some(time);
    }
    let time = DateTime::parse_from_rfc3339(std::str::from_utf8(text).ok()?).ok()?;
    whole_micros(time.with_timezone(&Utc))
}

/// Reads the form of [`to_text`] several times faster than any ISO 8601 text; snapshots are full of it.
#[rustfmt::skip]
fn from_own_text(text: &[u8]) -> Option<Time> {
    let [y1, y2, y3, y4, b'-', o1, o2, b'-', d1, d2, b'T', h1, h2, b':', m1, m2, b':', s1, s2, b'.',
        f1, f2, f3, f4, f5, f6, b'Z'] = text else { return None };
    let number = |digits: &[&u8]| {
        digits.iter().try_fold(0, |sum: u32, digit| {
            digit.is_ascii_digit().then(|| sum * 10 + u32::from(*digit - b'0'))
        })
    };
    let year = i32::try_from(number(&[y1, y2, y3, y4])?).ok()?;
    let date = NaiveDate::from_ymd_opt(year, number(&[o1, o2])?, number(&[d1, d2])?)?;
    let (hour, minute, second) = (number(&[h1, h2])?, number(&[m1, m2])?, number(&[s1, s2])?);
    let micros = number(&[f1, f2, f3, f4, f5, f6])?;
    Some(date.and_hms_micro_opt(hour, minute, second, micros)?.and_utc())
}

/// Elixir's calendar has the years 0 to 9999. We accept no others, so every time has a text form.
fn in_calendar(time: &Time) -> bool {
    (0..=9999).contains(&time.year())
}

fn whole_micros(time: Time) -> Option<Time> {
    // A leap second (60) has no place in Elixir's DateTime either.
    let micros = (time.nanosecond() / 1000).min(999_999);
    time.with_nanosecond(micros * 1000).filter(in_calendar)
}

fn from_struct(map: &Map) -> Option<Time> {
    let name = |field| map.get_atom(field).and_then(Value::as_name);
    let is_iso = name("calendar") == Some("Elixir.Calendar.ISO");
    if name("__struct__") != Some("Elixir.DateTime") || !is_iso {
        return None;
    }
    let Value::Tuple(parts) = map.get_atom("microsecond")? else {
        return None;
    };
    let [Value::Int(micros), _] = &**parts else {
        return None;
    };
    let micros = u32::try_from(*micros).ok()?;
    let field = |name| map.get_int(name);
    let date = [field("year")?, field("month")?, field("day")?];
    let clock = [field("hour")?, field("minute")?, field("second")?];
    let offset = field("utc_offset")?.checked_add(field("std_offset")?)?;
    from_parts(date, clock, micros, offset)
}

/// Returns the time of a date and a clock that is so many seconds ahead of UTC.
#[must_use]
pub fn from_parts(date: [i64; 3], clock: [i64; 3], micros: u32, offset: i64) -> Option<Time> {
    let small = |number| u32::try_from(number).ok();
    let [year, month, day] = date;
    let [hour, minute, second] = clock;
    let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, small(month)?, small(day)?)?;
    let local = date.and_hms_micro_opt(small(hour)?, small(minute)?, small(second)?, micros)?;
    let offset = TimeDelta::try_seconds(offset)?;
    whole_micros(local.checked_sub_signed(offset)?.and_utc())
}
