//! Failed requests are kept, counted and bounded.

use crate::make::{conversation, reload};
use ash_agent_context_core::{time, Context, Error, FailureKind, Map, Masks, Stamp, Time, Value};
use proptest::prelude::*;

fn at(second: i64) -> Time {
    time::from_micros(second * 1_000_000).unwrap()
}

fn begin() -> Context {
    conversation("Hi")
}

fn map(entries: &[(&str, Value)]) -> Value {
    let entries = entries
        .iter()
        .map(|(key, value)| (Value::atom(key), value.clone()));
    Value::Map(Map::new(entries.collect()))
}

fn refused(words: &str) -> Value {
    map(&[
        ("kind", Value::atom("rate_limited")),
        ("provider", Value::atom("openai_chat")),
        ("model", Value::text("gpt")),
        ("status", Value::Int(429)),
        ("code", Value::text("rate_limit_exceeded")),
        ("request_id", Value::text("req_1")),
        ("attempt", Value::Int(1)),
        ("wait", Value::Int(500)),
        ("message", Value::text(words)),
    ])
}

#[test]
fn a_failure_is_kept_with_its_iteration_and_comes_back_from_storage() {
    let context = begin().add_failure(&refused("slow down"), at(1)).unwrap();
    assert!(context != begin());
    let kept: Vec<_> = context.failures().collect();
    assert_eq!(kept.len(), 1);
    let (iteration, failure) = &kept[0];
    assert_eq!(
        (*iteration, failure.kind, failure.count, failure.at),
        (1, FailureKind::RateLimited, 1, at(1))
    );
    let facts = failure.facts();
    assert_eq!(facts.get_named("message"), Some(&Value::text("slow down")));
    assert_eq!(facts.get_named("wait"), Some(&Value::Int(500)));
    let loaded = reload(&context);
    assert!(loaded == context);
    // The iteration that goes on is written again where only a failure came.
    let changes = context.changes(Some(&begin()));
    assert_eq!(changes.iterations.len(), 1);
    let reply = context
        .add_assistant_message(Value::text("Yes"), Value::Nil, Stamp::at(at(2)))
        .unwrap();
    let later = reply
        .add_user_message(Value::text("And?"), Stamp::at(at(3)))
        .unwrap();
    let later = later.add_failure(&refused("again"), at(4)).unwrap();
    let iterations: Vec<_> = later.failures().map(|(iteration, _)| iteration).collect();
    assert_eq!(iterations, [1, 2]);
    assert_eq!(later.rewind(1).unwrap().failures().count(), 1);
    assert_eq!(later.fork("f", at(5)).failures().count(), 2);
}

#[test]
fn fields_of_later_releases_are_kept() {
    let text = String::from_utf8(
        begin()
            .add_failure(&refused("w"), at(1))
            .unwrap()
            .to_snapshot(),
    )
    .unwrap();
    let newer = text.replace(
        r#""kind":"rate_limited""#,
        r#""kind":"rate_limited","region":{"a":[1]}"#,
    );
    let loaded = Context::from_snapshot(newer.as_bytes()).unwrap();
    let written = String::from_utf8(loaded.to_snapshot()).unwrap();
    assert!(written.contains(r#""region":{"a":[1]}"#), "{written}");
}

#[test]
fn what_is_no_failure_is_refused_with_its_key() {
    for (key, value) in [
        ("kind", Value::text("sad")),
        ("status", Value::Int(-1)),
        ("model", Value::Int(1)),
        ("provider", Value::text("nobody")),
        ("requested_at", Value::text("yesterday")),
    ] {
        let mut entries = vec![("kind", Value::atom("closed"))];
        entries.retain(|(own, _)| *own != key);
        entries.push((key, value));
        let refused = begin().add_failure(&map(&entries), at(1));
        let Err(Error::Invalid { path, .. }) = refused else {
            unreachable!("{key}: {refused:?}")
        };
        assert_eq!(path, [Value::text(key)]);
    }
}

#[test]
fn masks_hold_for_the_words_and_words_are_bounded() {
    let context = begin()
        .add_failure(&refused(&"secret \u{fc}".repeat(1_000)), at(1))
        .unwrap();
    let words = |context: &Context| {
        let (_, failure) = context.failures().next().unwrap();
        let facts = failure.facts();
        facts
            .get_named("message")
            .unwrap()
            .as_name()
            .unwrap()
            .to_owned()
    };
    assert_eq!(words(&context).chars().count(), 501);
    let masks = Masks::new([("secret".into(), "[hidden]".into())]).unwrap();
    let masked = context.put_masks(masks, at(2));
    assert!(!words(&masked).contains("secret"));
    assert!(words(&context).contains("secret"));
}

proptest! {
    /// Whatever fails, and however often: every failure is counted, and an iteration holds few.
    #[test]
    fn many_failures_are_a_count(kinds in prop::collection::vec(0..FailureKind::ALL.len(), 0..400)) {
        let mut context = begin();
        for kind in &kinds {
            let failure = map(&[("kind", Value::atom(FailureKind::ALL[*kind].name()))]);
            context = context.add_failure(&failure, at(1)).unwrap();
        }
        let kept: Vec<_> = context.failures().map(|(_, failure)| failure).collect();
        prop_assert!(kept.len() <= 16 + FailureKind::ALL.len());
        for kind in FailureKind::ALL {
            let told: u64 = kept.iter().filter(|kept| kept.kind == kind).map(|kept| kept.count).sum();
            let came = kinds.iter().filter(|of| FailureKind::ALL[**of] == kind).count();
            prop_assert_eq!(told, came as u64);
        }
        let loaded = reload(&context);
        prop_assert!(loaded == context);
    }
}
