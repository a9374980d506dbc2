//! How requests fared at the provider's cache, each rule with the smallest conversation in which it decides something.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use ash_agent_context_core::{
    json, read_list, time, AccountRow, Accounting, AnswerTimes, Context, Outlook, Provider,
    Reading, Response, Stamp, Time, Value,
};

const MINUTE: i64 = 60_000_000;

fn at(micros: i64) -> Time {
    time::from_micros(micros).unwrap()
}

fn value(json: &str) -> Value {
    json::read(json.as_bytes(), 100).unwrap()
}

fn start() -> Context {
    let stamp = Stamp::at(at(0));
    Context::new("c", Value::text("Go"), Value::Nil, stamp).unwrap()
}

/// An answer to a request of this time, of which so many tokens were written to the cache and read from it.
fn answer(context: &Context, asked: i64, written: u64, read: u64) -> Context {
    let body = format!(
        r#"{{"type": "message", "role": "assistant", "model": "m", "content": [{{"type": "text", "text": "Yes"}}],
        "stop_reason": "end_turn", "usage": {{"input_tokens": 10, "cache_creation_input_tokens": {written},
        "cache_read_input_tokens": {read}, "output_tokens": 1}}}}"#
    );
    let response = Response::decode(body.as_bytes(), &Reading::of(Provider::Anthropic)).unwrap();
    let times = AnswerTimes {
        requested_at: Some(at(asked)),
        first_chunk_at: None,
    };
    let stamp = || Stamp::at(at(asked));
    let context = context.add_answer(&response, times, stamp()).unwrap();
    context
        .add_user_message(Value::text("And?"), stamp())
        .unwrap()
}

/// The second of two requests, after one that wrote 1,000 tokens at time 0.
fn second(asked: i64, read: u64) -> AccountRow {
    let context = answer(&answer(&start(), 0, 1_000, 0), asked, 0, read);
    let mut rows = context.account(&Accounting::default());
    assert_eq!(rows.len(), 2);
    assert_eq!((rows[0].outlook, rows[0].predicted), (Outlook::First, 0));
    rows.remove(1)
}

#[test]
fn nine_of_ten_predicted_tokens_are_a_hit() {
    assert_eq!(second(MINUTE, 1_000).predicted, 1_000);
    assert_eq!(second(MINUTE, 1_000).outlook, Outlook::Hit);
    assert_eq!(second(MINUTE, 900).outlook, Outlook::Hit);
    assert_eq!(second(MINUTE, 899).outlook, Outlook::Unexplained);
}

#[test]
fn what_was_written_expires_after_five_minutes() {
    assert_eq!(second(5 * MINUTE, 0).outlook, Outlook::Unexplained);
    assert_eq!(second(5 * MINUTE + 1, 0).outlook, Outlook::Expired);
    assert_eq!(second(5 * MINUTE + 1, 1_000).outlook, Outlook::Hit);
}

#[test]
fn a_miss_is_unexplained_while_nobody_noted_what_was_sent() {
    let noted = |context: &Context, fields: &str| {
        let context = context.note_request(value(fields), value("[]"));
        context.unwrap()
    };
    let asked = |first: &str, second: &str| {
        let context = answer(&noted(&start(), first), 0, 1_000, 0);
        let context = answer(&noted(&context, second), MINUTE, 0, 0);
        context.account(&Accounting::default()).remove(1).outlook
    };
    let same = r#"{"model": "a"}"#;
    assert_eq!(asked(same, same), Outlook::Unexplained);
    let other = asked(same, r#"{"model": "b"}"#);
    assert_eq!(other.name(), "broken");
    assert!(other.cause().is_some());
}

#[test]
fn a_miss_costs_the_difference_to_reading() {
    let prices = read_list(&value(
        r#"[{"model": "m", "input": 10, "cache_read": 1, "cache_write": 12, "cache_write_1h": 20, "output": 50}]"#,
    ));
    let prices = prices.unwrap();
    let accounting = Accounting {
        prices: Some(&prices),
        ..Accounting::default()
    };
    let avoidable = |written, read| {
        let context = answer(&answer(&start(), 0, 1_000, 0), MINUTE, written, read);
        context.account(&accounting).remove(1).avoidable
    };
    assert_eq!(avoidable(0, 1_000), Some(0));
    assert_eq!(avoidable(0, 400), Some(600 * (10 - 1)));
    assert_eq!(avoidable(1_000, 400), Some(600 * (12 - 1)));
}
