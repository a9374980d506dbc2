//! Numbers that JSON readers refuse, although JSON has them: those beyond all floats, such as 10^400.

use std::ops::Range;

use crate::error::{index, Path};
use crate::value::Value;

/// The smallest of them has so many digits. Whoever writes JSON here writes floats with fewer digits.
const DIGITS: usize = 309;

/// Returns the places of such numbers in JSON text, outside its strings.
///
/// # Complexity
/// Texts without so many digits in a row are not read: of such a row, every 309th byte is one.
pub(crate) fn find(json: &[u8]) -> Vec<Range<usize>> {
    let mut steps = (0..json.len()).step_by(DIGITS);
    match steps.any(|at| is_in_row(json, at)) {
        true => find_outside_strings(json),
        false => Vec::new(),
    }
}

/// Makes texts of such numbers in JSON text from `start` on, and returns where each of them ended.
pub(crate) fn quote(json: &mut Vec<u8>, start: usize) -> Vec<usize> {
    let found = find(json.get(start..).unwrap_or_default());
    let place = |range: Range<usize>| start + range.start..start + range.end;
    let found: Vec<Range<usize>> = found.into_iter().map(place).collect();
    if let Some(first) = found.first() {
        let mut edges = found.iter().flat_map(|range| [range.start, range.end]);
        let mut edge = edges.next();
        for (at, byte) in (first.start..).zip(json.split_off(first.start)) {
            if edge == Some(at) {
                json.push(b'"');
                edge = edges.next();
            }
            json.push(byte);
        }
        json.extend(edge.map(|_| b'"'));
    }
    found.into_iter().map(|range| range.end).collect()
}

fn is_in_row(json: &[u8], at: usize) -> bool {
    let (before, after) = json.split_at_checked(at).unwrap_or_default();
    let is_digit = |byte: &&u8| byte.is_ascii_digit();
    let behind = after.iter().take(DIGITS).take_while(is_digit).count();
    let ahead = before.iter().rev().take(DIGITS).take_while(is_digit);
    behind > 0 && behind + ahead.count() >= DIGITS
}

fn find_outside_strings(json: &[u8]) -> Vec<Range<usize>> {
    let (mut in_string, mut escaped, mut number) = (false, false, String::new());
    let mut found = Vec::new();
    // A number ends with the byte after it.
    for (at, byte) in json.iter().chain(b" ").enumerate() {
        if in_string {
            in_string = escaped || *byte != b'"';
            escaped = *byte == b'\\' && !escaped;
        } else if byte.is_ascii_digit() || b"+-.eE".contains(byte) {
            number.push(char::from(*byte));
        } else {
            in_string = *byte == b'"';
            let number = std::mem::take(&mut number);
            let start = at - number.len();
            found.extend(is_beyond(&number).then_some(start..at));
        }
    }
    found
}

fn is_beyond(number: &str) -> bool {
    number.parse().is_ok_and(f64::is_infinite)
}

/// Returns the path of the first such number in a value, which begins with `path`.
pub(crate) fn find_path(value: &Value, mut path: Path) -> Path {
    is_in(value, &mut path);
    path
}

fn is_in(value: &Value, path: &mut Path) -> bool {
    let mut enter = |step: Value, value: &Value| {
        path.push(step);
        let found = is_in(value, path);
        if !found {
            path.pop();
        }
        found
    };
    match value {
        Value::BigInt(integer) => is_beyond(&integer.to_string()),
        Value::List(items) => items
            .iter()
            .enumerate()
            .any(|(at, item)| enter(index(at), item)),
        Value::Map(map) => map.iter().any(|(key, item)| {
            let name = key.as_name().map(Value::text);
            enter(name.unwrap_or_else(|| key.clone()), item)
        }),
        _ => false,
    }
}
