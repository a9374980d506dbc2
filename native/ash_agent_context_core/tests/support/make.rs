//! What most of these tests make: times, values, conversations, answers and the bytes of requests.

use ash_agent_context_core::{
    json, time, Content, Context, Defaults, Event, Map, Options, Part, Provider, Reading, Response,
    Segment, Stamp, Time, Value, BODY_DEPTH,
};
use serde_json::Value as Json;

use crate::recorded::frame;

pub fn at(micros: i64) -> Time {
    time::from_micros(micros).unwrap()
}

pub fn stamp() -> Stamp {
    Stamp::at(at(0))
}

pub fn defaults() -> Defaults<'static> {
    Defaults { id: "c", at: at(0) }
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
    json::read(text.as_bytes(), BODY_DEPTH).unwrap()
}

/// Results of calls that went well, by their ids.
pub fn results(given: &[(&str, Value)]) -> Value {
    let pair = |one: Value, other: Value| Value::Tuple([one, other].into());
    let given = given.iter().map(|(id, result)| {
        let ok = pair(Value::atom("ok"), result.clone());
        pair(Value::text(id), ok)
    });
    Value::List(given.collect())
}

/// A conversation that begins with this text.
pub fn conversation(text: &str) -> Context {
    Context::new("c", Value::text(text), Value::Nil, stamp()).unwrap()
}

/// What happens in conversations, where the time does not matter.
pub trait Talk {
    fn user(&self, text: &str) -> Context;
    fn says(&self, text: &str) -> Context;
    /// The model makes calls, which are given as JSON.
    fn calls(&self, calls: &str) -> Context;
    /// The results of calls, which went well.
    fn answers(&self, given: &[(&str, Value)]) -> Context;
}

impl Talk for Context {
    fn user(&self, text: &str) -> Context {
        self.add_user_message(Value::text(text), stamp()).unwrap()
    }

    fn says(&self, text: &str) -> Context {
        self.add_assistant_message(Value::text(text), Value::Nil, stamp())
            .unwrap()
    }

    fn calls(&self, calls: &str) -> Context {
        self.add_assistant_message(Value::Nil, value(calls), stamp())
            .unwrap()
    }

    fn answers(&self, given: &[(&str, Value)]) -> Context {
        self.add_tool_results(results(given), stamp()).unwrap()
    }
}

/// The same conversation from storage.
pub fn reload(context: &Context) -> Context {
    Context::from_snapshot(&context.to_snapshot()).unwrap()
}

/// A request that is imported and needs no repair.
pub fn import(body: &str, provider: Provider) -> Context {
    let imported = Context::from_request(Value::text(body), provider, defaults()).unwrap();
    assert_eq!(imported.repairs, []);
    imported.context
}

pub fn with<'a>(provider: Provider, change: impl FnOnce(&mut Options<'a>)) -> Options<'a> {
    let mut options = Options::new(provider);
    change(&mut options);
    options
}

pub fn bytes(segments: &[Segment<'_>]) -> Vec<u8> {
    let bytes = segments.iter().map(Segment::bytes);
    bytes.collect::<Vec<_>>().concat()
}

/// The text of a request.
pub fn sent(context: &Context, provider: Provider) -> String {
    sent_with(context, &Options::new(provider))
}

pub fn sent_with(context: &Context, options: &Options<'_>) -> String {
    let segments = context.encode_request(options, &Map::default());
    String::from_utf8(bytes(&segments.unwrap())).unwrap()
}

pub fn json_sent(context: &Context, options: &Options<'_>) -> Json {
    serde_json::from_str(&sent_with(context, options)).unwrap()
}

/// A whole answer.
pub fn decode(provider: Provider, answer: &Json) -> Response {
    Response::decode(answer.to_string().as_bytes(), &Reading::of(provider)).unwrap()
}

/// A stream of documents, framed as their provider does.
pub fn framed(provider: Provider, lines: &[Json]) -> Vec<u8> {
    let lines: Vec<String> = lines.iter().map(Json::to_string).collect();
    frame(provider, &lines)
}

/// What comes of a stream that goes on.
pub fn feed(provider: Provider, lines: &[Json]) -> (Response, Vec<Event>) {
    let fresh = Response::new(&Reading::of(provider));
    fresh.feed(&framed(provider, lines), usize::MAX).unwrap()
}

/// The same of one that has come to its end.
pub fn stream(provider: Provider, lines: &[Json]) -> (Response, Vec<Event>) {
    let (response, mut events) = feed(provider, lines);
    let (response, more) = response.finish(usize::MAX).unwrap();
    events.extend(more);
    (response, events)
}

/// The parts of an answer or a message that has such.
pub fn parts(content: &Content) -> &[Part] {
    let Content::Parts(parts) = content else {
        panic!("{content:?}")
    };
    parts
}
