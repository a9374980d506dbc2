//! The text of a call's arguments is stored as the order of its keys, wherever that is enough to write it again.

use ash_agent_context_core::{Context, Error, Provider, Value};
use proptest::prelude::*;

use crate::make::{conversation, list, map, reload, sent, stamp, Talk};

/// JSON in the order in which it is written.
#[derive(Debug, Clone)]
enum Tree {
    Scalar(String),
    List(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

fn tree(keys: &'static str) -> impl Strategy<Value = Tree> {
    let texts = [
        "null",
        "true",
        "7",
        "-12",
        "1.5",
        "-0.0",
        "1e30",
        "12345678901234567890123",
        r#""""#,
        r#""a\":\"b""#,
        r#""{\"a\": 1}""#,
        r#""\\""#,
        r#""é 日本 😀""#,
        r#""a\nb\u0001""#,
        r#""}, ""#,
    ];
    let scalar = proptest::sample::select(texts.to_vec());
    let scalar = scalar.prop_map(|text| Tree::Scalar(text.to_owned()));
    scalar.prop_recursive(4, 30, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Tree::List),
            object(keys, inner),
        ]
    })
}

fn object(keys: &'static str, inner: impl Strategy<Value = Tree>) -> impl Strategy<Value = Tree> {
    let entries = proptest::collection::vec((keys, inner), 0..4);
    entries.prop_map(|mut entries| {
        let mut seen = std::collections::HashSet::new();
        entries.retain(|(key, _)| seen.insert(key.clone()));
        Tree::Object(entries)
    })
}

/// Arguments that are long enough.
fn arguments(keys: &'static str) -> impl Strategy<Value = Tree> {
    (object(keys, tree(keys)), 0..4_usize).prop_map(|(tree, at)| match tree {
        Tree::Object(mut entries) => {
            let long = Tree::Scalar(format!("{:?}", long("~")));
            entries.insert(at.min(entries.len()), ("long".to_owned(), long));
            Tree::Object(entries)
        }
        other => other,
    })
}

fn long(text: &str) -> String {
    text.replace('~', &"x".repeat(64))
}

fn write(tree: &Tree, comma: &str, colon: &str) -> String {
    let join = |items: Vec<String>| items.join(comma);
    match tree {
        Tree::Scalar(text) => text.clone(),
        Tree::List(items) => {
            let items = items.iter().map(|item| write(item, comma, colon));
            format!("[{}]", join(items.collect()))
        }
        Tree::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| {
                let key = serde_json::to_string(key).unwrap();
                format!("{key}{colon}{}", write(value, comma, colon))
            });
            format!("{{{}}}", join(entries.collect()))
        }
    }
}

fn called(arguments: &str) -> Context {
    let call = map(vec![
        ("id", Value::text("a")),
        ("name", Value::text("f")),
        ("arguments", Value::text(arguments)),
    ]);
    conversation("x")
        .add_assistant_message(Value::Nil, list(vec![call]), stamp())
        .unwrap()
        .answers(&[("a", Value::text("ok"))])
}

fn load(snapshot: &serde_json::Value) -> Result<Context, Error> {
    Context::from_snapshot(snapshot.to_string().as_bytes())
}

fn stored(context: &Context) -> serde_json::Value {
    serde_json::from_slice(&context.to_snapshot()).unwrap()
}

const CALL: &str = "/iterations/0/messages/1/tool_calls/0";

/// Returns true if the text comes back, also from a store that has objects in an order of its own.
fn comes_back(text: &str) -> bool {
    let context = called(text);
    let request = sent(&context, Provider::OpenAiChat);
    assert!(
        request.contains(&serde_json::to_string(text).unwrap()),
        "{text}"
    );
    let moved = load(&stored(&context)).unwrap();
    [reload(&context), moved]
        .iter()
        .all(|other| *other == context && sent(other, Provider::OpenAiChat) == request)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn texts_in_a_usual_form_are_stored_once(
        tree in arguments("[ab: é{},]{0,3}"), spaced in any::<bool>()
    ) {
        let (comma, colon) = if spaced { (", ", ": ") } else { (",", ":") };
        let text = write(&tree, comma, colon);
        prop_assert!(comes_back(&text));
        let is_usual = !["-0.0", "1e30", "\\u0001"].iter().any(|odd| text.contains(odd));
        let snapshot = stored(&called(&text));
        prop_assert!(!is_usual || snapshot.pointer(CALL).unwrap().get("arguments_json").is_none(), "{text}");
    }

    #[test]
    fn texts_in_any_form_come_back(
        tree in arguments("[ab\"\\\\\n\u{1}]{0,3}"),
        comma in "[ \n]{0,1},[ \n]{0,2}", colon in "[ ]{0,1}:[ ]{0,2}"
    ) {
        prop_assert!(comes_back(&write(&tree, &comma, &colon)));
    }
}

#[test]
fn what_is_stored() {
    let order = |keys: &[&str]| Some(serde_json::json!(keys));
    for (text, keys, spaced) in [
        (r#"{"a":"~"}"#, order(&[]), false),
        (r#"{"a":1,"b":[{"c":"~"}]}"#, order(&[]), false),
        (
            r#"{"b":{"d":"~","c":2},"a":1}"#,
            order(&["b", "d", "c", "a"]),
            false,
        ),
        (
            r#"{"b": ["~", {"c": 2}], "a": ", "}"#,
            order(&["b", "c", "a"]),
            true,
        ),
        (r#"{"a": ": ~"}"#, order(&[]), true),
        (r#"{"a" : "~"}"#, None, false),
        (r#"{"a":"\u00e9~"}"#, None, false),
        (r#"{"a":1.50,"b":"~"}"#, None, false),
        (r#"{"a":"short"}"#, None, false),
    ] {
        let text = &long(text);
        let snapshot = stored(&called(text));
        let call = snapshot.pointer(CALL).unwrap();
        assert_eq!(call.get("arguments_order"), keys.as_ref(), "{text}");
        assert_eq!(call.get("arguments_spaced").is_some(), spaced, "{text}");
        let whole = keys.is_none().then(|| serde_json::json!(text));
        assert_eq!(call.get("arguments_json"), whole.as_ref(), "{text}");
    }
}

#[test]
fn what_older_releases_stored_loads_and_what_does_not_fit_is_refused() {
    let text = long(r#"{"b":{"d":"~"},"a":2}"#);
    let context = called(&text);
    let change = |fields: &[(&str, serde_json::Value)]| {
        let mut snapshot = stored(&context);
        let call = snapshot.pointer_mut(CALL).unwrap().as_object_mut().unwrap();
        call.remove("arguments_order");
        for (key, value) in fields {
            call.insert((*key).to_owned(), value.clone());
        }
        load(&snapshot)
    };
    let older = change(&[("arguments_json", serde_json::json!(text))]).unwrap();
    assert!(older == context);
    for keys in [
        serde_json::json!(["b", "d"]),
        serde_json::json!(["b", "d", "b"]),
        serde_json::json!(["b", "d", "a", "a"]),
        serde_json::json!(["b", "a", "d"]),
        serde_json::json!(["d", "b", "a"]),
        serde_json::json!(["b", "d", 7]),
        serde_json::json!("b"),
    ] {
        let refused = change(&[("arguments_order", keys.clone())]).unwrap_err();
        let names = matches!(&refused, Error::Invalid { path, .. } if path.contains(&Value::text("arguments_order")));
        assert!(names, "{keys}: {refused:?}");
    }
}
