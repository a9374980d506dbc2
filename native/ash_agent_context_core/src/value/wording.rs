//! The words for terms: they are the text of a result for the model.

use crate::value::json;
use crate::value::letters;
use crate::value::Value;

/// The text for a tool that returned nothing. Providers refuse empty text.
pub const NO_OUTPUT: &str = "(no output)";

/// Returns the message of an exception or another error reason, in words.
#[must_use]
pub fn reason(value: &Value) -> String {
    let mut words = String::new();
    write_reason(value, &mut words);
    words
}

fn write_reason(value: &Value, words: &mut String) {
    match value {
        Value::Binary(bytes) => words.push_str(&letters::utf8(bytes)),
        Value::Atom(name) => words.push_str(&name.replace('_', " ")),
        Value::Tuple(items) => {
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    words.push_str(": ");
                }
                write_reason(item, words);
            }
        }
        Value::Map(map) => match map.get_named("message") {
            Some(Value::Binary(bytes)) => words.push_str(&letters::utf8(bytes)),
            _ => words.push_str(&json::write(value)),
        },
        other => words.push_str(&json::write(other)),
    }
}
