//! Laws of snapshots: reading gives back what was written, and reads or refuses anything else.

use crate::make::{list, reload};
use ash_agent_context_core::{
    json, read_terms, time, write_terms, Approvals, Context, Error, Map, Stamp, Structs, Trust,
    Value, MAX_DEPTH, NESTING,
};
use proptest::prelude::*;

const GOLDEN: &str = include_str!("../../../../test/fixtures/snapshot_v1.json");

fn stamp(second: i64) -> Stamp {
    Stamp::at(time::from_micros(1_767_225_600_000_000 + second * 1_000_000).unwrap())
}

/// Any value.
fn value() -> impl Strategy<Value = Value> {
    let odd = ["a\0", "__struct__"].map(str::to_owned);
    let name = prop_oneof![
        "[a-z:$]{0,3}",
        "\\PC{0,6}",
        proptest::sample::select(odd.to_vec())
    ];
    let scalar = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<i128>().prop_map(|integer| Value::integer(integer.into())),
        any::<f64>()
            .prop_filter("finite", |float| float.is_finite())
            .prop_map(Value::Float),
        (-2000i32..2000).prop_map(|float| Value::Float(f64::from(float))),
        name.clone().prop_map(|name| Value::atom(&name)),
        name.prop_map(|text| Value::text(&text)),
        proptest::collection::vec(any::<u8>(), 0..20)
            .prop_map(|bytes| Value::Binary(bytes.into_boxed_slice())),
    ];
    scalar.prop_recursive(5, 40, 5, |inner| {
        let items = proptest::collection::vec(inner.clone(), 0..5);
        let entries = proptest::collection::vec((inner.clone(), inner), 0..5);
        prop_oneof![
            items
                .clone()
                .prop_map(|items| Value::List(items.into_boxed_slice())),
            items.prop_map(|items| Value::Tuple(items.into_boxed_slice())),
            entries.prop_map(|entries| Value::Map(Map::new(entries))),
        ]
    })
}

fn map(entries: Vec<(&str, Value)>) -> Value {
    let entries = entries.into_iter();
    Value::Map(Map::new(
        entries
            .map(|(key, value)| (Value::text(key), value))
            .collect(),
    ))
}

fn pair(first: Value, second: Value) -> Value {
    Value::Tuple(Box::new([first, second]))
}

/// Turns of a user and a model with one call, each with these arguments and this result.
fn conversation(turns: &[(Value, Value, bool)]) -> Vec<Context> {
    let first = Context::new("c", Value::text("hi"), Value::text("Be brief."), stamp(0)).unwrap();
    let mut history = vec![first];
    for (second, (arguments, result, is_ok)) in (1..).zip(turns) {
        let context = history.last().unwrap();
        let call = map(vec![
            // The same id again and again, so that aliases matter.
            ("id", Value::text("call")),
            ("name", Value::atom("run")),
            ("arguments", map(vec![("value", arguments.clone())])),
        ]);
        let asked = context
            .add_assistant_message(Value::text("ok"), list(vec![call]), stamp(second))
            .unwrap();
        let status = Value::atom(if *is_ok { "ok" } else { "error" });
        let results = list(vec![pair(
            Value::text("call"),
            pair(status, result.clone()),
        )]);
        // Lists that look like parts may be refused.
        let Ok(answered) = asked.add_tool_results(results, stamp(second)) else {
            continue;
        };
        history.extend([asked, answered]);
    }
    history
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_was_written_is_read(turns in proptest::collection::vec((value(), value(), any::<bool>()), 0..4), note in value()) {
        let context = conversation(&turns).pop().unwrap().put_metadata(note.clone(), note, stamp(9).at);
        let text = context.to_snapshot();
        let copy = Context::from_snapshot(&text).unwrap();
        prop_assert!(copy == context);
        prop_assert_eq!(copy.size(), context.size());
        prop_assert_eq!(copy.count_messages(), context.count_messages());
        let document = json::read(&text, NESTING).unwrap();
        prop_assert!(Context::load(document).unwrap() == context);
        prop_assert_eq!(copy.to_snapshot(), text);
    }

    #[test]
    fn deltas_lead_from_each_state_to_each_later_one(turns in proptest::collection::vec((value(), value(), any::<bool>()), 1..5)) {
        let history = conversation(&turns);
        for (position, base) in history.iter().enumerate() {
            for (later, newer) in history.iter().enumerate() {
                let since = base.current_iteration().min(newer.current_iteration());
                let delta = newer.delta(i64::try_from(since).unwrap()).unwrap();
                let read = || json::read(&delta, NESTING).unwrap();
                let loaded = base.load_delta(read()).unwrap();
                prop_assert!(loaded == *newer, "from {position} to {later}");
                prop_assert!(loaded.load_delta(read()).unwrap() == *newer);
                prop_assert_eq!(loaded.count_messages(), newer.count_messages());
                prop_assert_eq!(loaded.size(), newer.size());
            }
        }
    }

    #[test]
    fn less_trust_refuses_nothing_more(turns in proptest::collection::vec((value(), value(), any::<bool>()), 0..4), note in value()) {
        let context = conversation(&turns).pop().unwrap().put_metadata(Value::text("note"), note, stamp(9).at);
        let text = context.to_snapshot();
        for structs in [Structs::Keep, Structs::Known, Structs::Drop] {
            let trust = Trust { approvals: Approvals::Drop, structs };
            let loaded = Context::from_snapshot_with(&text, trust).unwrap();
            let again = loaded.to_snapshot();
            prop_assert!(Context::from_snapshot_with(&again, trust).unwrap() == loaded);
            prop_assert!(Context::from_snapshot(&again).unwrap() == loaded);
            let marks = |text: &[u8]| text.windows(13).any(|bytes| bytes == b"\":__struct__\"");
            prop_assert!(structs == Structs::Keep || !marks(&again));
        }
    }

    #[test]
    fn bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Context::from_snapshot(&bytes);
    }

    #[test]
    fn changed_snapshots_are_read_or_refused(changes in proptest::collection::vec((0..GOLDEN.len(), any::<u8>()), 1..6)) {
        let mut bytes = GOLDEN.as_bytes().to_vec();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        if let Ok(context) = Context::from_snapshot(&bytes) {
            prop_assert!(reload(&context) == context);
        }
    }

    #[test]
    fn a_text_is_read_as_its_document_is(changes in proptest::collection::vec((any::<prop::sample::Index>(), value(), any::<bool>()), 1..3)) {
        let mut text = GOLDEN.to_owned();
        for (place, value, is_twice) in changes {
            // After each colon a value begins.
            let colons: Vec<usize> = text.match_indices("\":").map(|(at, _)| at + 2).collect();
            let at = colons[place.index(colons.len())];
            let again = if is_twice { ",\"id\":" } else { ",\"other\":" };
            text.insert_str(at, &format!("{}{again}", json::write(&value)));
        }
        let read = Context::from_snapshot(text.as_bytes());
        let loaded = json::read(text.as_bytes(), NESTING).and_then(Context::load);
        match (read, loaded) {
            (Ok(read), Ok(loaded)) => prop_assert!(read == loaded && read.size() == loaded.size()),
            (read, loaded) => prop_assert_eq!(read.err(), loaded.err()),
        }
    }

    #[test]
    fn terms_are_read_again(value in value()) {
        let terms = Map::new(vec![(Value::atom("a"), value)]);
        prop_assert_eq!(read_terms(&write_terms(&terms), Structs::Keep), Ok(terms));
    }

    #[test]
    fn values_are_read_or_refused(value in value()) {
        let _ = Context::load(value.clone());
        let context = Context::from_snapshot(GOLDEN.as_bytes()).unwrap();
        let _ = context.load_delta(value);
    }
}

#[test]
fn a_tuple_is_no_larger_than_the_vm_allows() {
    let document = |elements: usize| {
        let tuple = map(vec![("$tuple", list(vec![Value::Nil; elements]))]);
        let Value::Map(head) = json::read(GOLDEN.as_bytes(), NESTING).unwrap() else {
            unreachable!()
        };
        Value::Map(head.put(Value::text("metadata"), map(vec![("a", tuple)])))
    };
    let most = (1 << 24) - 1;
    let context = Context::load(document(most)).unwrap();
    let (_, tuple) = context.metadata().iter().next().unwrap();
    assert!(matches!(tuple, Value::Tuple(items) if items.len() == most));
    let path = ["metadata", "a", "$tuple"].map(Value::text);
    assert!(matches!(
        Context::load(document(most + 1)).unwrap_err(),
        Error::Invalid { path: at, .. } if at == path
    ));
}

#[test]
fn the_golden_file_is_read_and_written_again() {
    let context = Context::from_snapshot(GOLDEN.as_bytes()).unwrap();
    let written = json::read(&context.to_snapshot(), NESTING).unwrap();
    assert_eq!(written, json::read(GOLDEN.as_bytes(), NESTING).unwrap());
}

#[test]
fn escapes_are_letters_or_refused() {
    let units = [
        "0000", "0041", "d7ff", "d800", "dbff", "dc00", "dfff", "e000", "ffff",
    ];
    let pairs = units
        .iter()
        .flat_map(|one| units.map(|two| format!("\\u{one}\\u{two}")));
    for escapes in pairs.chain(units.map(|unit| format!("\\u{unit}"))) {
        let text = GOLDEN.replacen("You are", &escapes, 1);
        let read = Context::from_snapshot(text.as_bytes());
        let loaded = json::read(text.as_bytes(), NESTING).and_then(Context::load);
        assert_eq!(read.is_ok(), loaded.is_ok(), "{escapes}");
        match (read, loaded) {
            (Ok(read), Ok(loaded)) => assert!(read == loaded, "{escapes}"),
            (read, loaded) => assert_eq!(read.err(), loaded.err(), "{escapes}"),
        }
    }
    let read = |escapes: &str| {
        Context::from_snapshot(GOLDEN.replacen("You are", escapes, 1).as_bytes()).is_ok()
    };
    assert!(read("\\ud800\\udc00") && read("\\udbff\\udfff"));
    assert!(!read("\\ud800\\ue000") && !read("\\ud800\\udbff") && !read("\\udc00"));
}

#[test]
fn terms_are_a_map_and_not_too_deep() {
    let nest = |levels| {
        let value = (0..levels).fold(Value::Nil, |inner, _| list(vec![inner]));
        write_terms(&Map::new(vec![(Value::atom("a"), value)]))
    };
    assert!(read_terms(&nest(MAX_DEPTH), Structs::Keep).is_ok());
    let refused = read_terms(&nest(MAX_DEPTH + 20), Structs::Keep);
    assert!(matches!(refused, Err(Error::TooDeep { .. })));
    for text in ["", "[]", "1", r#"{"$atom": "a"}"#, r#"{"$other": 1}"#, "{"] {
        assert!(
            read_terms(text.as_bytes(), Structs::Keep).is_err(),
            "{text}"
        );
    }
}
