//! What most of these tests make: times, values and the bytes of requests.

use ash_agent_context_core::{json, time, Map, Segment, Stamp, Time, Value};

pub fn at(micros: i64) -> Time {
    time::from_micros(micros).unwrap()
}

pub fn stamp() -> Stamp {
    Stamp::at(at(0))
}

pub fn map(entries: Vec<(&str, Value)>) -> Value {
    let entries = entries.into_iter();
    Value::Map(Map::new(
        entries
            .map(|(key, value)| (Value::atom(key), value))
            .collect(),
    ))
}

pub fn list(items: Vec<Value>) -> Value {
    Value::List(items.into_boxed_slice())
}

/// The value of a JSON text.
pub fn value(text: &str) -> Value {
    json::read(text.as_bytes(), 64).unwrap()
}

pub fn bytes(segments: &[Segment<'_>]) -> Vec<u8> {
    let bytes = segments.iter().map(Segment::bytes);
    bytes.collect::<Vec<_>>().concat()
}
