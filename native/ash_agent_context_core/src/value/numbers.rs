//! Numbers that JSON readers refuse, although JSON has them: those beyond all floats, such as 10^400.

use crate::error::{index, Path};
use crate::value::{json, Value};

/// The smallest of them has so many digits. Whoever writes JSON here writes floats with fewer digits.
const DIGITS: usize = 309;

/// Returns true if such a number stands in JSON text, and not in one of its strings.
///
/// # Complexity
/// Texts without so many digits in a row are not read: of such a row, every 309th byte is one.
pub(crate) fn exceed(json: &[u8]) -> bool {
    let mut steps = (0..json.len()).step_by(DIGITS);
    steps.any(|at| is_in_row(json, at)) && stand_outside_strings(json)
}

fn is_in_row(json: &[u8], at: usize) -> bool {
    let (before, after) = json.split_at_checked(at).unwrap_or_default();
    let is_digit = |byte: &&u8| byte.is_ascii_digit();
    let behind = after.iter().take(DIGITS).take_while(is_digit).count();
    let ahead = before.iter().rev().take(DIGITS).take_while(is_digit);
    behind > 0 && behind + ahead.count() >= DIGITS
}

fn stand_outside_strings(json: &[u8]) -> bool {
    let (mut in_string, mut escaped, mut number) = (false, false, String::new());
    // A number ends with the byte after it, of which there always is one.
    json.iter().any(|byte| {
        if in_string {
            in_string = escaped || *byte != b'"';
            escaped = *byte == b'\\' && !escaped;
            return false;
        }
        if byte.is_ascii_digit() || b"+-.eE".contains(byte) {
            number.push(char::from(*byte));
            return false;
        }
        in_string = *byte == b'"';
        is_beyond(&std::mem::take(&mut number))
    })
}

fn is_beyond(number: &str) -> bool {
    number.parse().is_ok_and(f64::is_infinite)
}

/// Returns the path of the first such number in JSON text.
pub(crate) fn find(json: &[u8], depth: usize) -> Option<Path> {
    let mut path = Path::new();
    let value = json::read(json, depth).ok()?;
    is_in(&value, &mut path).then_some(path)
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
        Value::Map(map) => map.iter().any(|(key, item)| enter(key.clone(), item)),
        _ => false,
    }
}
