//! How a value grows as it streams.

use ash_agent_context_core::Value;

/// Returns whether a value can become another by growing alone.
pub fn is_part(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Map(part), Value::Map(whole)) => part
            .iter()
            .all(|(key, value)| whole.get(key).is_some_and(|of| is_part(value, of))),
        (Value::List(part), Value::List(whole)) => {
            part.len() <= whole.len() && part.iter().zip(whole.iter()).all(|(a, b)| is_part(a, b))
        }
        (Value::Binary(part), Value::Binary(whole)) => whole.starts_with(part),
        (part, whole) => part == whole,
    }
}
