//! Laws of values: their order, maps, and JSON in and out.

use crate::make::list;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::fmt;

use ash_agent_context_core::{
    json, time, Context, Error, Map, Options, Provider, Stamp, Value, MAX_DEPTH,
};
use num_bigint::BigInt;
use proptest::prelude::*;
use serde::de::{self, Deserialize, Deserializer};

fn read(text: &str) -> Result<Value, Error> {
    json::read(text.as_bytes(), MAX_DEPTH)
}

fn map(entries: Vec<(Value, Value)>) -> Value {
    Value::Map(Map::new(entries))
}

fn big(text: &str) -> Value {
    Value::integer(text.parse().unwrap())
}

/// JSON in which no object has a key twice.
struct Unique;

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> de::Visitor<'de> for Unique {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut entries: A) -> Result<Self, A::Error> {
        let mut seen = HashSet::new();
        while let Some((key, _)) = entries.next_entry::<String, Self>()? {
            if seen.contains(&key) {
                return Err(de::Error::custom(format!("the key {key:?} twice")));
            }
            seen.insert(key);
        }
        Ok(self)
    }
}

/// Says what is wrong with JSON text, if anything is.
fn fault(text: &str) -> Option<String> {
    let fault = serde_json::from_str::<Unique>(text).err();
    fault.map(|error| format!("{error} in {text}"))
}

/// What JSON can hold as it is.
fn plain() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::Int),
        any::<i128>().prop_map(|n| Value::integer(n.into())),
        proptest::collection::vec(any::<u8>(), 1..40)
            .prop_map(|bytes| Value::integer(BigInt::from_signed_bytes_le(&bytes))),
        any::<f64>()
            .prop_filter("finite", |f| f.is_finite())
            .prop_map(Value::Float),
        any::<String>().prop_map(|text| Value::text(&text)),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let key = prop_oneof![any::<String>(), "[ab]"].prop_map(|key| Value::text(&key));
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(list),
            proptest::collection::vec((key, inner), 0..6).prop_map(map),
        ]
    })
}

/// Any value; texts that meet are likely.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        (-2..3i64).prop_map(Value::Int),
        any::<i64>().prop_map(Value::Int),
        any::<i128>().prop_map(|n| Value::integer(n.into())),
        prop_oneof![Just(0.0), Just(-0.0), Just(1.0), -1e300..1e300f64].prop_map(Value::Float),
        prop_oneof![
            "[ab1]",
            "nil|true|false",
            "__struct__|message|Elixir.Date|Elixir.Decimal"
        ]
        .prop_map(|name: String| Value::atom(&name)),
        prop_oneof!["[ab1]", "nil|true|false|0|-1|1.0", any::<String>()]
            .prop_map(|text: String| Value::text(&text)),
        proptest::collection::vec(0x60..0x90u8, 0..3).prop_map(|b| Value::Binary(b.into())),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let items = proptest::collection::vec(inner.clone(), 0..5);
        prop_oneof![
            items.clone().prop_map(list),
            items.prop_map(|items| Value::Tuple(items.into())),
            proptest::collection::vec((inner.clone(), inner), 0..5).prop_map(map),
        ]
    })
}

/// Keys of maps as applications have them: atoms, `nil`, booleans and texts.
fn key() -> impl Strategy<Value = Value> {
    prop_oneof![
        "[ab]|nil|true|false|__struct__|message".prop_map(|name: String| Value::atom(&name)),
        prop_oneof!["[ab1]", "nil|true|false|__struct__", any::<String>()]
            .prop_map(|text: String| Value::text(&text)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_again(value in plain()) {
        let text = json::write(&value);
        prop_assert_eq!(fault(&text), None);
        prop_assert_eq!(read(&text), Ok(value), "{}", text);
    }

    #[test]
    fn any_value_has_a_json_text(value in value()) {
        let text = json::write(&value);
        prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{}", text);
        let once = read(&text).unwrap();
        let twice = read(&json::write(&once)).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn a_map_is_an_object_with_each_key_once(
        entries in proptest::collection::vec((key(), 0..9i64), 0..8)
    ) {
        let entries = entries.into_iter().map(|(key, n)| (key, Value::Int(n))).collect();
        prop_assert_eq!(fault(&json::write(&map(entries))), None);
    }

    #[test]
    fn the_order_is_total_and_equality_goes_with_it(a in value(), b in value(), c in value()) {
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        prop_assert_eq!(a.cmp(&a.clone()), Ordering::Equal);
        prop_assert_eq!(a.partial_cmp(&b), Some(a.cmp(&b)));
        prop_assert_eq!(a == b, a.cmp(&b) == Ordering::Equal);
        let mut sorted = [a, b, c];
        sorted.sort();
        prop_assert!(sorted[0] <= sorted[1] && sorted[1] <= sorted[2] && sorted[0] <= sorted[2]);
    }

    #[test]
    fn a_map_is_what_a_tree_map_is(
        entries in proptest::collection::vec((value(), value()), 0..12),
        more in (value(), value()),
    ) {
        let mut expected: BTreeMap<Value, Value> = entries.iter().cloned().collect();
        let map = Map::new(entries.clone());
        prop_assert_eq!(map.iter().cloned().collect::<Vec<_>>(), expected.clone().into_iter().collect::<Vec<_>>());
        for (key, value) in &expected {
            prop_assert_eq!(map.get(key), Some(value));
        }
        for name in ["a", "b", "1", "nil", "message", ""] {
            let (text, atom) = (Value::text(name), Value::Atom(name.into()));
            prop_assert_eq!(map.get_atom(name), expected.get(&atom));
            prop_assert_eq!(map.get_named(name), expected.get(&atom).or_else(|| expected.get(&text)));
        }
        let put = map.put(more.0.clone(), more.1.clone());
        prop_assert_eq!(map.len(), expected.len());
        expected.insert(more.0, more.1);
        prop_assert_eq!(put.len(), expected.len());
        prop_assert_eq!(put.is_empty(), expected.is_empty());
        prop_assert_eq!(put.into_entries(), expected.into_iter().collect::<Vec<_>>());
    }

    /// Text that is read may go to a provider as it is.
    #[test]
    fn nothing_is_read_that_is_no_json(
        value in plain(),
        cuts in proptest::collection::vec((any::<prop::sample::Index>(), 0..14usize), 0..3),
    ) {
        let odd = ["", " ", ",", "\"", "{", "]", ":", "0", "-", ".", "e", "\n", "\\u", "NaN"];
        let mut text: Vec<char> = json::write(&value).chars().collect();
        for (at, with) in cuts {
            let at = at.index(text.len().max(1)).min(text.len());
            let to = (at + 1).min(text.len());
            text.splice(at..to, odd[with].chars());
        }
        let text: String = text.into_iter().collect();
        if read(&text).is_ok() {
            let parsed = serde_json::from_str::<&serde_json::value::RawValue>(&text);
            prop_assert!(parsed.is_ok(), "{}", text);
        }
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(value) = json::read(&bytes, MAX_DEPTH) {
            prop_assert_eq!(read(&json::write(&value)), Ok(value));
        }
    }

    #[test]
    fn depth_is_counted_in_levels(value in value(), levels in 0..6usize) {
        fn depth(value: &Value) -> usize {
            match value {
                Value::List(items) | Value::Tuple(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
                Value::Map(map) => 1 + map.iter().map(|(k, v)| depth(k).max(depth(v))).max().unwrap_or(0),
                _ => 0,
            }
        }
        prop_assert_eq!(value.is_deeper_than(levels), depth(&value) > levels);
    }
}

#[test]
fn what_is_no_json_is_refused() {
    for text in [
        "",
        " ",
        "NaN",
        "Infinity",
        "-Infinity",
        "[1,]",
        "{\"a\":1,}",
        "{a:1}",
        "'a'",
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "0x1",
        "\"\n\"",
        "\"\\x\"",
        "\"\\ud800\"",
        "[1] 2",
        "1e999",
        "-",
        "tru",
        "[",
        "\"",
        "{\"a\"}",
        "// a\n1",
        "\u{feff}1",
        "[1 2]",
        "{\"a\":NaN}",
        "[-Infinity]",
    ] {
        assert!(
            matches!(read(text), Err(Error::Invalid { .. })),
            "{text:?}: {:?}",
            read(text)
        );
    }
    assert!(json::read(b"\"\xff\"", 9).is_err());
}

#[test]
fn integers_are_exact_at_every_border() {
    for text in [
        "0",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "123456789012345678901234567890",
    ] {
        let value = read(text).unwrap();
        assert_eq!(value, big(text));
        assert_eq!(json::write(&value), text);
        let fits = text.parse::<i64>().is_ok();
        assert_eq!(matches!(value, Value::Int(_)), fits, "{text}");
    }
    assert!(big("-9223372036854775809") < big("9223372036854775808"));
    assert_eq!(json::write(&Value::Float(-0.0)), "-0.0");
    assert_ne!(Value::Float(-0.0), Value::Float(0.0));
}

#[test]
fn an_integer_of_any_size_has_a_json_text_that_is_read_again() {
    for digits in (4295..4325).chain([10_000]) {
        for sign in ["", "-"] {
            let text = json::write(&big(&format!("{sign}1{}", "0".repeat(digits - 1))));
            assert!(read(&text).is_ok(), "{digits} digits: {:?}", read(&text));
            let is_number = !text.starts_with('"');
            assert!(!is_number || digits <= 4300, "{digits} digits");
            assert!(is_number || digits > 4295, "{digits} digits");
        }
    }
}

#[test]
fn of_a_key_that_stands_twice_the_last_counts() {
    let text = r#"{"a":1,"b":2,"a":{"c":3,"c":4}}"#;
    assert_eq!(json::write(&read(text).unwrap()), r#"{"a":{"c":4},"b":2}"#);
    // The same key in another spelling.
    assert_eq!(
        json::write(&read(r#"{"a":1,"\u0061":2}"#).unwrap()),
        r#"{"a":2}"#
    );
}

#[test]
fn arguments_with_a_key_twice_are_sent_with_it_once() {
    let at = time::from_micros(0).unwrap();
    for text in [r#"{"a":1,"a":2}"#, r#"{"x":[{"a":1,"a":2}]}"#] {
        let call = map(vec![
            (Value::text("name"), Value::text("f")),
            (Value::text("arguments"), Value::text(text)),
        ]);
        let context = Context::new("c", Value::text("Hi"), Value::Nil, Stamp::at(at))
            .unwrap()
            .add_assistant_message(Value::Nil, list(vec![call]), Stamp::at(at))
            .unwrap()
            .interrupt(&Value::text("stop"), Stamp::at(at));
        for provider in Provider::ALL {
            let segments = context.encode_request(&Options::new(provider), &Map::default());
            let bytes = segments
                .unwrap()
                .iter()
                .flat_map(|s| s.bytes().to_vec())
                .collect();
            let body = String::from_utf8(bytes).unwrap();
            assert_eq!(fault(&body), None);
            assert!(
                !body.contains(r#""a":1"#) && !body.contains(r#"\"a\":1"#),
                "{body}"
            );
        }
    }
}

/// Maps with keys of one text; whichever counts, no object may have a key twice.
#[test]
fn keys_of_one_text_become_one_key() {
    let binary = |bytes: &[u8]| Value::Binary(bytes.into());
    let tuple = |items: Vec<Value>| Value::Tuple(items.into());
    let mut faults = Vec::new();
    for (a, b) in [
        (Value::atom("a"), Value::text("a")),
        (Value::Nil, Value::text("nil")),
        (Value::Bool(true), Value::text("true")),
        (Value::Int(1), Value::text("1")),
        (Value::Int(-1), Value::text("-1")),
        (Value::Int(1), Value::atom("1")),
        (Value::Float(1.5), Value::text("1.5")),
        (Value::Float(1.5), Value::atom("1.5")),
        (
            big("18446744073709551616"),
            Value::text("18446744073709551616"),
        ),
        (list(vec![Value::Int(1)]), Value::text("[1]")),
        (list(vec![Value::Int(1)]), tuple(vec![Value::Int(1)])),
        (binary(b"\xff"), binary(b"\xfe")),
        (binary(b"\xff"), Value::text("\u{fffd}")),
    ] {
        let text = json::write(&map(vec![(a, Value::Int(1)), (b, Value::Int(2))]));
        faults.extend(fault(&text));
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn keys_of_different_texts_stay_different_keys() {
    let mut lost = Vec::new();
    for other in ["+1", "01", "1 ", "1.0", "-01"] {
        for number in [1, -1] {
            let entries = vec![
                (Value::Int(number), Value::Nil),
                (Value::text(other), Value::Nil),
            ];
            let read = read(&json::write(&map(entries))).unwrap();
            let Value::Map(read) = read else {
                panic!("an object")
            };
            if read.len() != 2 {
                lost.push((number, other));
            }
        }
    }
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn a_keyword_list_is_an_object_whose_first_of_a_key_counts() {
    let pair = |key, n| Value::Tuple(Box::new([Value::atom(key), Value::Int(n)]));
    let text = json::write(&list(vec![pair("b", 1), pair("a", 2), pair("b", 3)]));
    assert_eq!(text, r#"{"b":1,"a":2}"#);
    assert_eq!(json::write(&list(vec![])), "[]");
    let mixed = list(vec![pair("a", 1), Value::Int(2)]);
    assert_eq!(json::write(&mixed), r#"[["a",1],2]"#);
}

/// Keys in keys in keys: their text is escaped anew at every level, and must not double each time.
#[test]
fn deep_keys_do_not_blow_up() {
    for inner in ["\"", "\\", "\n", "\u{1}", "a"] {
        let deep = (0..MAX_DEPTH / 4 * 3).fold(Value::text(inner), |key, level| {
            let entry = (key, Value::Int(1));
            match level % 3 {
                0 => map(vec![entry, (Value::text("x"), Value::text("\"\\"))]),
                1 => map(vec![entry]),
                _ => list(vec![map(vec![entry])]),
            }
        });
        let text = json::write(&deep);
        assert!(text.len() < 200_000, "{} bytes", text.len());
        assert_eq!(fault(&text), None);
    }
}
