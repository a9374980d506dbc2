//! Recall: what a view shortens is read and found again, whatever the view.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::expect_used
)]

use ash_agent_context_core::{
    json, time, Context, Excerpt, Map, MessageRef, Method, Stamp, Time, Value,
};
use proptest::prelude::*;

fn at(micros: i64) -> Time {
    time::from_micros(micros).unwrap()
}

fn map(entries: Vec<(&str, Value)>) -> Value {
    let entries = entries.into_iter();
    Value::Map(Map::new(
        entries
            .map(|(key, value)| (Value::atom(key), value))
            .collect(),
    ))
}

fn list(items: Vec<Value>) -> Value {
    Value::List(items.into_boxed_slice())
}

fn call(context: &Context, id: &str, name: &str, arguments: &str, result: &str) -> Context {
    let call = map(vec![
        ("id", Value::text(id)),
        ("name", Value::text(name)),
        ("arguments", Value::text(arguments)),
    ]);
    let result = map(vec![
        ("id", Value::text(id)),
        (
            "result",
            Value::Tuple(vec![Value::atom("ok"), Value::text(result)].into()),
        ),
    ]);
    let context = context.add_assistant_message(Value::Nil, list(vec![call]), Stamp::at(at(2)));
    context
        .unwrap()
        .add_tool_results(list(vec![result]), Stamp::at(at(3)))
        .unwrap()
}

fn start() -> Context {
    Context::new("c", Value::text("Go"), Value::Nil, Stamp::at(at(1))).unwrap()
}

/// The texts of the results of the view.
fn results(context: &Context) -> Vec<String> {
    let mut texts = Vec::new();
    for shown in context.messages() {
        if let MessageRef::Results(_, exchange) = shown.see().message() {
            let slots = exchange.slots().flatten();
            texts.extend(
                slots.map(|slot| String::from_utf8_lossy(slot.text().unwrap()).into_owned()),
            );
        }
    }
    texts
}

fn tokens(text: &str) -> u64 {
    let count = |text: &str| {
        let context = Context::new("c", Value::text(text), Value::Nil, Stamp::at(at(1))).unwrap();
        context.count_tokens(Some(Method::O200k))
    };
    count(text) - count("")
}

const WHOLE: Excerpt<'_> = Excerpt {
    from: 1,
    lines: usize::MAX,
    pattern: None,
    most: usize::MAX,
};

/// Words as tools and their arguments have them.
fn word() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(
        "read write file search list get update delete user order reservation flight details view context runtime tool \
         executor store config test lib src packages agent main index router schema migration http client server session \
         budget token message provider mix cargo npm grep find run build release status error report pull request issue"
            .split_whitespace()
            .collect::<Vec<_>>(),
    )
}

fn words(least: usize, most: usize, between: &'static str) -> impl Strategy<Value = String> {
    proptest::collection::vec(word(), least..=most).prop_map(move |words| words.join(between))
}

fn argument() -> impl Strategy<Value = String> {
    prop_oneof![
            4 => (words(1, 6, "/"), words(1, 3, "_"), "(ex|exs|rs|md|json)").prop_map(|(a, b, c)| format!("{a}/{b}.{c}")),
            2 => words(1, 20, " "),
            1 => words(1, 8, "_"),
            1 => words(1, 8, "-"),
            1 => "[A-Z0-9]{6}",
            1 => "[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{12}",
            1 => "[A-Za-z0-9]{20,60}",
    1 => (words(1, 2, "-"), words(1, 4, "/"), 0..9_999).prop_map(|(a, b, c)| format!("https://{a}.com/{b}?q={c}")),
            1 => "[0-9]{0,40}",
            1 => "[一-龥]{0,40}",
            1 => "[а-яё ]{0,60}",
            1 => "(👩|🎉|🔥|e\u{301}|\u{200d}){0,30}",
        ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_note_has_at_most_20_tokens(name in words(1, 3, "_"), argument in argument(), size in 200..2_000_000_usize, before in 0..2_usize) {
        let mut context = start();
        for number in 0..before * 120 {
            context = call(&context, &number.to_string(), "ls", "{}", "a");
        }
        let arguments = json::write(&map(vec![("path", Value::text(&argument)), ("limit", Value::Int(10))]));
        let context = call(&context, "last", &name, &arguments, &"x".repeat(size % 20_000 + 200));
        let context = context.put_recall(true, at(9)).clear_tool_results(0, "-", at(9));
        let note = results(&context).pop().unwrap();
        prop_assert!(note.starts_with('[') && note.ends_with(']'), "{note}");
        prop_assert!(tokens(&note) <= 20, "{} tokens: {note}", tokens(&note));
        let handle = note.trim_end_matches(']').rsplit(' ').next().unwrap();
        prop_assert!(context.recall(handle, &WHOLE).unwrap().starts_with("xxx"));
    }
}
