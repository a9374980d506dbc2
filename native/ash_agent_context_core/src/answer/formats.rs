//! Formats of texts that are checked. A format that is not known is an error of the schema, never ignored.

use std::net::{Ipv4Addr, Ipv6Addr};

use chrono::{DateTime, NaiveDate, Timelike};

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
            Self::DateTime => is_moment(text) || is_moment(&format!("{text}Z")),
            Self::Time => {
                let moment = format!("2000-01-01T{text}");
                is_moment(&moment) || is_moment(&(moment + "Z"))
            }
            Self::Duration => is_duration(text),
            Self::Uuid => is_uuid(text),
            Self::Email => is_email(text),
            Self::Uri => is_uri(text),
            Self::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Self::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
        }
    }
}

/// Returns true for a date and time with its offset. A leap second comes at the end of a day.
fn is_moment(text: &str) -> bool {
    DateTime::parse_from_rfc3339(text).is_ok_and(|time| {
        let time = time.naive_utc().time();
        time.nanosecond() < 1_000_000_000 || (time.hour(), time.minute()) == (23, 59)
    })
}

fn is_email(text: &str) -> bool {
    let is_of_atom =
        |letter: char| letter.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(letter);
    let is_atom = |part: &str| !part.is_empty() && part.chars().all(is_of_atom);
    let is_name = |name: &str| {
        let inside = name
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'));
        match inside {
            Some(inside) => !inside
                .replace("\\\\", "")
                .replace("\\\"", "")
                .contains(['"', '\\', '\n', '\r']),
            None => name.split('.').all(is_atom),
        }
    };
    text.rsplit_once('@')
        .is_some_and(|(name, host)| is_name(name) && is_mail_host(host))
}

fn is_mail_host(host: &str) -> bool {
    let address = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let is_label = |label: &str| {
        let is_letter = |letter: char| letter.is_alphanumeric() || letter == '-';
        !label.is_empty()
            && label.chars().all(is_letter)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    match address {
        Some(address) => match address.strip_prefix("IPv6:") {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => address.parse::<Ipv4Addr>().is_ok(),
        },
        None => host.split('.').all(is_label),
    }
}

/// Returns true for a URI of RFC 3986.
fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.bytes().all(is_letter);
    let of_authority = rest.strip_prefix("//").map(|rest| {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        rest.split_at_checked(end).unwrap_or((rest, ""))
    });
    let (authority, rest) = of_authority.unwrap_or(("", rest));
    let is_right = authority.is_empty() || is_authority(authority);
    let (before, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    is_scheme
        && is_right
        && !(authority.is_empty() && rest.is_empty())
        && [before, fragment].iter().all(|part| has_only(part, "/?:@"))
}

fn is_authority(authority: &str) -> bool {
    let (user, address) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let is_address = match address.strip_prefix('[') {
        Some(inside) => inside.split_once(']').is_some_and(|(host, port)| {
            let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
            (host.starts_with('v') && has_only(host, ":") || host.parse::<Ipv6Addr>().is_ok())
                && is_port
        }),
        None => {
            let (host, port) = address.split_once(':').unwrap_or((address, ""));
            has_only(host, "") && is_port(port)
        }
    };
    has_only(user, ":") && is_address
}

/// Returns true for the letters of all parts of a URI, and some others.
fn has_only(part: &str, others: &str) -> bool {
    let mut pieces = part.split('%');
    let is_letter = |letter: char| {
        letter.is_ascii_alphanumeric()
            || "-._~!$&'()*+,;=".contains(letter)
            || others.contains(letter)
    };
    let is_escape = |piece: &str| piece.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    pieces.next().unwrap_or_default().chars().all(is_letter)
        && pieces.all(|piece| is_escape(piece) && piece.chars().all(is_letter))
}

/// Returns true for days, and after a `T` hours, each a number and a letter, none left out in between; or weeks. Seconds may have a
/// fraction.
fn is_duration(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('P') else {
        return false;
    };
    let (days, hours) = rest.split_once('T').unwrap_or((rest, ""));
    let is_count = |of: &str| !of.is_empty() && of.bytes().all(|byte| byte.is_ascii_digit());
    let is_number = |piece: &str| {
        let number = piece.trim_end_matches(char::is_alphabetic);
        let (whole, part) = match piece.ends_with('S') {
            true => number.split_once('.').unwrap_or((number, "0")),
            false => (number, "0"),
        };
        number != piece && is_count(whole) && is_count(part)
    };
    let is_part = |part: &str, units: &str| {
        let letters: String = part
            .chars()
            .filter(|letter| letter.is_alphabetic())
            .collect();
        let mut pieces = part.split_inclusive(char::is_alphabetic);
        units.contains(&letters) && pieces.all(is_number)
    };
    let is_weeks = hours.is_empty() && is_part(days, "W");
    let is_others = is_part(days, "YMD") && is_part(hours, "HMS");
    !rest.is_empty() && !rest.ends_with('T') && (is_weeks || is_others)
}

fn is_uuid(text: &str) -> bool {
    let is_right = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.bytes().enumerate().all(is_right)
}
