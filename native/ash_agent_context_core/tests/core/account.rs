//! How requests fared at the provider's cache, each rule with the smallest conversation in which it decides something.

use crate::make::{at, reload, value, with, Talk};
use ash_agent_context_core::{
    read_list, AccountRow, Accounting, AnswerTimes, Cause, Context, Outlook, Provider, Reading,
    Response, Stamp, Value,
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

/// An answer of a model with so many calls, which are answered.
fn answer_calling(context: &Context, asked: i64, calls: usize, written: u64, read: u64) -> Context {
    let uses = (0..calls).map(|call| {
        format!(r#"{{"type": "tool_use", "id": "{asked}_{call}", "name": "f", "input": {{}}}}"#)
    });
    let uses: Vec<String> = uses.collect();
    let body = format!(
        r#"{{"type": "message", "role": "assistant", "model": "m", "content": [{}], "stop_reason": "tool_use",
        "usage": {{"input_tokens": 10, "output_tokens": 1, "cache_creation_input_tokens": {written}, "cache_read_input_tokens": {read}}}}}"#,
        uses.join(", ")
    );
    let response = Response::decode(body.as_bytes(), &Reading::of(Provider::Anthropic)).unwrap();
    let times = AnswerTimes {
        requested_at: Some(at(asked)),
        first_chunk_at: None,
    };
    let stamp = || Stamp::at(at(asked));
    let context = context.add_answer(&response, times, stamp()).unwrap();
    let result = |call| {
        let text = Value::Tuple([Value::atom("ok"), Value::text("r")].into());
        Value::Tuple([Value::text(&format!("{asked}_{call}")), text].into())
    };
    let results = Value::List((0..calls).map(result).collect());
    context.add_tool_results(results, stamp()).unwrap()
}

#[test]
fn what_is_out_of_sight_is_not_blamed_on_the_provider() {
    for (calls, is_seen) in [(9, true), (10, false)] {
        let first = answer_calling(&start(), 0, calls, 1_000, 0);
        let second = answer_calling(&first, MINUTE, 1, 1_000, 0);
        let row = second.account(&Accounting::default()).remove(1);
        let unseen = Outlook::Broken(Cause::LookBack);
        assert_eq!(row.outlook == unseen, !is_seen, "{calls}");
        // Where it is read, nothing is out of sight.
        let second = answer_calling(&first, MINUTE, 1, 0, 1_000);
        let row = second.account(&Accounting::default()).remove(1);
        assert_eq!(row.outlook, Outlook::Hit);
    }
}

#[test]
fn a_clearing_of_a_policy_is_told_from_one_by_hand() {
    let calling = |asked, context: &Context| answer_calling(context, asked, 1, 1_000, 0);
    let context = calling(MINUTE, &calling(0, &start()));
    for (by_policy, outlook) in [
        (true, Outlook::Cleared),
        (false, Outlook::Broken(Cause::Cleared)),
    ] {
        let cleared = context.clear_results(0, "-", by_policy, at(MINUTE));
        for cleared in [reload(&cleared), cleared] {
            let next = calling(2 * MINUTE, &cleared);
            let rows = next.account(&Accounting::default());
            assert_eq!(rows[2].outlook, outlook);
            assert_eq!(reload(&next).account(&Accounting::default()), rows);
        }
    }
}

#[test]
fn requests_that_asked_for_nothing_are_told_from_short_ones() {
    let plain = |tokens: u64, context: &Context, asked: i64| {
        let usage = format!(r#""cache_read_input_tokens": 0, "extra": {tokens}"#);
        let body = format!(
            r#"{{"type": "message", "role": "assistant", "model": "m", "content": [{{"type": "text", "text": "Yes"}}],
            "stop_reason": "end_turn", "usage": {{"input_tokens": {tokens}, "output_tokens": 1, {usage}}}}}"#
        );
        let response =
            Response::decode(body.as_bytes(), &Reading::of(Provider::Anthropic)).unwrap();
        let times = AnswerTimes {
            requested_at: Some(at(asked)),
            first_chunk_at: None,
        };
        let answered = context.add_answer(&response, times, Stamp::at(at(asked)));
        answered.unwrap().user("And?")
    };
    let prices = read_list(&value(
        r#"[{"model": "m", "input": 10, "cache_read": 1, "cache_write": 12, "output": 50}]"#,
    ));
    let prices = prices.unwrap();
    let accounting = Accounting {
        prices: Some(&prices),
        ..Accounting::default()
    };
    for (least, outlook) in [(1_023, Outlook::First), (1_024, Outlook::Unasked)] {
        let two = plain(least + 100, &plain(least, &start(), 0), MINUTE);
        let rows = two.account(&accounting);
        assert_eq!(rows[0].outlook, outlook);
        assert_eq!(rows[1].outlook, Outlook::Unasked);
        assert_eq!(rows[1].avoidable, Some(least * 9 - 100 * 2));
    }
    // What came too late would not have been read either, and one that did ask is not told so.
    let late = plain(2_000, &plain(2_000, &start(), 0), 6 * MINUTE);
    assert_eq!(late.account(&accounting)[1].avoidable, Some(0));
    let asked = start().note_request(value(r#"{"cache": "auto"}"#), value("[]"));
    let asked = plain(2_000, &asked.unwrap(), 0);
    assert_eq!(asked.account(&accounting)[0].outlook, Outlook::First);
}

#[test]
fn each_model_has_a_cache_of_its_own() {
    let as_model = |context: &Context, model: &str, asked: i64, written: u64, read: u64| {
        let usage = format!(
            r#""cache_creation_input_tokens": {written}, "cache_read_input_tokens": {read}"#
        );
        let body = format!(
            r#"{{"type": "message", "role": "assistant", "model": "{model}", "content": [{{"type": "text", "text": "Yes"}}],
            "stop_reason": "end_turn", "usage": {{"input_tokens": 10, "output_tokens": 1, {usage}}}}}"#
        );
        let response =
            Response::decode(body.as_bytes(), &Reading::of(Provider::Anthropic)).unwrap();
        let times = AnswerTimes {
            requested_at: Some(at(asked)),
            first_chunk_at: None,
        };
        let answered = context.add_answer(&response, times, Stamp::at(at(asked)));
        answered.unwrap().user("And?")
    };
    let context = as_model(&start(), "claude-a", 0, 1_000, 0);
    let context = as_model(&context, "claude-b", MINUTE, 1_100, 0);
    let back = as_model(&context, "claude-a", 2 * MINUTE, 200, 1_000);
    let rows = back.account(&Accounting::default());
    let told: Vec<_> = rows
        .iter()
        .map(|row| (row.outlook, row.predicted))
        .collect();
    let model = Outlook::Broken(Cause::Model);
    assert_eq!(
        told,
        [(Outlook::First, 0), (model, 0), (Outlook::Hit, 1_000)]
    );
    for since in 1..=3 {
        let accounting = Accounting {
            since,
            ..Accounting::default()
        };
        let later = rows.iter().filter(|row| row.iteration >= since);
        assert!(back.account(&accounting).iter().eq(later), "{since}");
    }
    let unread = as_model(&context, "claude-a", 2 * MINUTE, 1_200, 0);
    assert_eq!(unread.account(&Accounting::default())[2].outlook, model);
}

#[test]
fn what_a_provider_compacted_is_no_mistake() {
    let body = r#"{"type": "message", "role": "assistant", "model": "m", "content": [{"type": "compaction", "content": "All"},
        {"type": "text", "text": "Yes"}], "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": 1, "cache_creation_input_tokens": 1000}}"#;
    let response = Response::decode(body.as_bytes(), &Reading::of(Provider::Anthropic)).unwrap();
    let times = AnswerTimes {
        requested_at: Some(at(0)),
        first_chunk_at: None,
    };
    let first = start()
        .add_answer(&response, times, Stamp::at(at(0)))
        .unwrap();
    let second = answer(&first.user("And?"), MINUTE, 300, 0);
    let row = second.account(&Accounting::default()).remove(1);
    assert_eq!(row.outlook, Outlook::Compacted);
}
