//! Formats of texts that are checked. A format that is not known is an error of the schema, never ignored.

use std::net::{Ipv4Addr, Ipv6Addr};

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime};

use crate::value::word::words;

words! {
    /// A format that a schema asks for.
    pub(crate) enum TextFormat {
        Date = "date",
        DateTime = "date-time",
        Duration = "duration",
        Time = "time",
        Uuid = "uuid",
        Email = "email",
        Uri = "uri",
        Ipv4 = "ipv4",
        Ipv6 = "ipv6",
    }
}

impl TextFormat {
    /// Returns words for it that a model reads.
    pub fn words(self) -> &'static str {
        match self {
            Self::Date => "a date such as 2026-01-31",
            Self::DateTime => "a date and time such as 2026-01-31T09:30:00Z",
            Self::Duration => "a duration such as P1DT2H",
            Self::Time => "a time such as 09:30:00",
            Self::Uuid => "a UUID",
            Self::Email => "an email address",
            Self::Uri => "a URI with its scheme",
            Self::Ipv4 => "an IPv4 address",
            Self::Ipv6 => "an IPv6 address",
        }
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
