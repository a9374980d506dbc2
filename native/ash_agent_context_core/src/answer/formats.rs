//! Formats of texts that are checked. A format that is not known is an error of the schema, never ignored.

use std::net::{Ipv4Addr, Ipv6Addr};

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime};

/// A format that a schema asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextFormat {
    Date,
    DateTime,
    Duration,
    Time,
    Uuid,
    Email,
    Uri,
    Ipv4,
    Ipv6,
}

impl TextFormat {
    const NAMED: [(&'static str, Self, &'static str); 9] = [
        ("duration", Self::Duration, "a duration such as P1DT2H"),
        ("date", Self::Date, "a date such as 2026-01-31"),
        (
            "date-time",
            Self::DateTime,
            "a date and time such as 2026-01-31T09:30:00Z",
        ),
        ("time", Self::Time, "a time such as 09:30:00"),
        ("uuid", Self::Uuid, "a UUID"),
        ("email", Self::Email, "an email address"),
        ("uri", Self::Uri, "a URI with its scheme"),
        ("ipv4", Self::Ipv4, "an IPv4 address"),
        ("ipv6", Self::Ipv6, "an IPv6 address"),
    ];

    /// Returns the format of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        let found = Self::NAMED.iter().find(|(known, _, _)| *known == name);
        found.map(|(_, format, _)| *format)
    }

    /// Returns words for it that a model reads.
    pub fn words(self) -> &'static str {
        let found = Self::NAMED.iter().find(|(_, format, _)| *format == self);
        found.map_or("a text of this format", |(_, _, words)| words)
    }

    /// Returns true if a text has the format.
    pub fn fits(self, text: &str) -> bool {
        match self {
            Self::Date => text.len() == 10 && NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok(),
            Self::DateTime => {
                DateTime::parse_from_rfc3339(text).is_ok()
                    || NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f").is_ok()
            }
            Self::Time => {
                let bare = text.trim_end_matches(['Z', 'z']);
                NaiveTime::parse_from_str(bare, "%H:%M:%S%.f").is_ok()
                    || DateTime::parse_from_rfc3339(&format!("2000-01-01T{text}")).is_ok()
            }
            Self::Duration => is_duration(text),
            Self::Uuid => is_uuid(text),
            Self::Email => text
                .split_once('@')
                .is_some_and(|(name, host)| !name.is_empty() && is_host(host)),
            Self::Uri => text.split_once(':').is_some_and(|(scheme, rest)| {
                let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
                !rest.is_empty()
                    && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
                    && scheme.bytes().all(is_letter)
                    && !text.contains(char::is_whitespace)
            }),
            Self::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Self::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
        }
    }
}

fn is_host(host: &str) -> bool {
    !host.is_empty() && !host.contains('@') && !host.contains(char::is_whitespace)
}

/// Returns true for days, and after a `T` hours, each a number and a letter; or weeks.
fn is_duration(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('P') else {
        return false;
    };
    let (days, hours) = rest.split_once('T').unwrap_or((rest, ""));
    let is_part = |part: &str, units: &str| {
        let mut left = units;
        let mut digits = 0;
        part.chars().all(|letter| match left.find(letter) {
            Some(at) if digits > 0 => {
                left = left.get(at + 1..).unwrap_or_default();
                digits = 0;
                true
            }
            _ => {
                digits += 1;
                letter.is_ascii_digit() || letter == '.'
            }
        }) && digits == 0
    };
    let is_empty = days.is_empty() && hours.is_empty();
    let ends_open = rest.ends_with('T');
    !is_empty && !ends_open && is_part(days, "YMWD") && is_part(hours, "HMS")
}

fn is_uuid(text: &str) -> bool {
    let is_right = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.bytes().enumerate().all(is_right)
}
