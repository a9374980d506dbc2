//! Removes what streams and clients leave in messages, which no server accepts.

use crate::log::provider::Provider;
use crate::provider::foreign::name_at;
use crate::value::{Map, Value};

/// In a call: its place in the stream.
const OF_CALL: [&str; 1] = ["index"];

/// In a call's function: the arguments as a client parsed them.
const OF_FUNCTION: [&str; 1] = ["parsed_arguments"];

/// In a message: fields of the choice around it, and the answer as a client parsed it.
const OF_MESSAGE: [&str; 4] = ["finish_reason", "logprobs", "index", "parsed"];

/// Removes the leftovers. Returns whether there were any.
pub(super) fn take_away(message: &mut Value, provider: Provider) -> bool {
    // Calls of Mistral's own have an index.
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

/// Removes keys from a map. Returns whether any was there.
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
