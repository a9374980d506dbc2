//! Leftovers of streams and clients in messages, which no server accepts.

use crate::log::provider::Provider;
use crate::provider::foreign::name_at;
use crate::value::{Map, Value};

/// Of a call: its place in the stream.
const OF_CALL: [&str; 1] = ["index"];

/// Of a call's function: what a client parsed.
const OF_FUNCTION: [&str; 1] = ["parsed_arguments"];

/// Of a message: what stood beside it in a choice, and what a client parsed.
const OF_MESSAGE: [&str; 4] = ["finish_reason", "logprobs", "index", "parsed"];

/// Takes it away and tells whether there was any.
pub(super) fn take_away(message: &mut Value, provider: Provider) -> bool {
    // Mistral's own calls have an index.
    if provider == Provider::Mistral || name_at(message, "role") != Some("assistant") {
        return false;
    }
    let mut found = without(message, &OF_MESSAGE);
    change(message, "tool_calls", |calls| {
        let Value::List(calls) = calls else { return };
        for call in calls {
            found |= without(call, &OF_CALL);
            change(call, "function", |function| {
                found |= without(function, &OF_FUNCTION);
            });
        }
    });
    found
}

/// Takes keys out of a map.
fn without(value: &mut Value, keys: &[&str]) -> bool {
    let Value::Map(map) = value else { return false };
    if !keys.iter().any(|key| map.get_named(key).is_some()) {
        return false;
    }
    let is_left = |(key, _): &(Value, Value)| !key.as_name().is_some_and(|key| keys.contains(&key));
    let entries = std::mem::take(map).into_entries().into_iter();
    *map = Map::new(entries.filter(is_left).collect());
    true
}

fn change(value: &mut Value, name: &str, change: impl FnOnce(&mut Value)) {
    let Value::Map(map) = value else { return };
    let mut entries = std::mem::take(map).into_entries();
    let entry = entries
        .iter_mut()
        .find(|(key, _)| key.as_name() == Some(name));
    if let Some((_, value)) = entry {
        change(value);
    }
    *map = Map::new(entries);
}
