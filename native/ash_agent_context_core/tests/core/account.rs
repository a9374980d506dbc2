//! How requests fared at the provider's cache, each rule with the smallest conversation in which it decides something.

use crate::make::{at, value, with, Talk};
use ash_agent_context_core::{
    read_list, AccountRow, Accounting, AnswerTimes, Context, Outlook, Provider, Reading, Response,
    Stamp, Value,
};

const MINUTE: i64 = 60_000_000;

fn start() -> Context {
    let stamp = Stamp::at(at(0));
    Context::new("c", Value::text("Go"), Value::Nil, stamp).unwrap()
}

/// An answer to a request of this time, of which so many tokens were written to the cache and read from it.
fn answer(context: &Context, asked: i64, written: u64, read: u64) -> Context {
    answer_for(context, asked, [written, 0], read)
}

/// The same with tokens written for five minutes and for an hour.
fn answer_for(context: &Context, asked: i64, [short, long]: [u64; 2], read: u64) -> Context {
    let written = short + long;
    let usage = format!(
        r#""cache_creation_input_tokens": {written}, "cache_read_input_tokens": {read},
        "cache_creation": {{"ephemeral_5m_input_tokens": {short}, "ephemeral_1h_input_tokens": {long}}}"#
    );
    answer_with(context, asked, &usage)
}

/// An answer in two parts, of which the first wrote a thousand tokens for an hour.
fn answer_in_parts(context: &Context, asked: i64) -> Context {
    let part = r#"{"type": "message", "input_tokens": 5, "output_tokens": 1"#;
    let written = r#""cache_creation_input_tokens": 1000, "cache_creation": {"ephemeral_1h_input_tokens": 1000}"#;
    let usage = format!(
        r#""cache_creation_input_tokens": 1000, "iterations": [{part}, {written}}}, {part}}}]"#
    );
    answer_with(context, asked, &usage)
}

fn answer_with(context: &Context, asked: i64, usage: &str) -> Context {
    let body = format!(
        r#"{{"type": "message", "role": "assistant", "model": "m", "content": [{{"type": "text", "text": "Yes"}}],
        "stop_reason": "end_turn", "usage": {{"input_tokens": 10, "output_tokens": 1, {usage}}}}}"#
    );
    let response = Response::decode(body.as_bytes(), &Reading::of(Provider::Anthropic)).unwrap();
    let times = AnswerTimes {
        requested_at: Some(at(asked)),
        first_chunk_at: None,
    };
    let stamp = || Stamp::at(at(asked));
    let context = context.add_answer(&response, times, stamp()).unwrap();
    context.user("And?")
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
    let context = answer_in_parts(&answer(&start(), 0, 1_000, 0), MINUTE);
    let row = context.account(&accounting).remove(1);
    assert_eq!(row.avoidable, Some(1_000 * (20 - 1)));
}

#[test]
fn what_was_written_for_an_hour_stays_for_an_hour_after_each_read() {
    let hour = answer_for(&start(), 0, [0, 1_000], 0);
    let read = answer(&hour, 5 * MINUTE, 0, 1_000);
    assert!(!hour.has_cold_cache(at(59 * MINUTE)));
    assert!(!read.has_cold_cache(at(64 * MINUTE)));
    assert!(read.has_cold_cache(at(66 * MINUTE)));
    let parts = answer_in_parts(&start(), 0);
    let parts_read = answer(&parts, 5 * MINUTE, 0, 1_000);
    for (context, asked, outlook) in [
        (&parts, 30, Outlook::Unexplained),
        (&parts_read, 64, Outlook::Unexplained),
        (&hour, 30, Outlook::Unexplained),
        (&hour, 61, Outlook::Expired),
        (&read, 64, Outlook::Unexplained),
        (&read, 66, Outlook::Expired),
    ] {
        let context = answer(context, asked * MINUTE, 0, 0);
        let rows = context.account(&Accounting::default());
        assert_eq!(rows.last().unwrap().outlook, outlook, "{asked}");
        // An account of the later requests says the same of them.
        for since in 1..=3 {
            let accounting = Accounting {
                since,
                ..Accounting::default()
            };
            let later = rows.iter().filter(|row| row.iteration >= since);
            assert!(context.account(&accounting).iter().eq(later), "{since}");
        }
    }
}

#[test]
fn only_who_knows_all_that_was_sent_blames_the_provider() {
    let options = with(Provider::Anthropic, |of| of.cache = true);
    let asked = |notes: bool| {
        let note = |context: Context| {
            let noted = match notes {
                true => context.note_request(value("{}"), value("[]")).unwrap(),
                false => context,
            };
            noted.note_sent(&options).unwrap()
        };
        let context = answer(&note(start()), 0, 1_000, 0);
        let context = answer(&note(context), MINUTE, 0, 0);
        context.account(&Accounting::default()).remove(1).outlook
    };
    assert_eq!(asked(true), Outlook::Provider);
    assert_eq!(asked(false), Outlook::Unexplained);
}
