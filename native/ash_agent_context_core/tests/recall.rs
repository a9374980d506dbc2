//! Recall: what a view shortens is read and found again, whatever the view.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::expect_used
)]

use ash_agent_context_core::{
    json, time, Content, Context, Excerpt, Map, Masks, MessageRef, Method, Stamp, Time, Value,
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

/// What shapes a view.
#[derive(Debug, Clone)]
enum Shape {
    Clear(usize),
    Most(Option<usize>),
    KeepLast(u64),
    Range(u64, u64),
    Drop(u64, u64),
    Summarize(u64, u64),
    Expand(u64, u64),
    Mask,
    Recall(bool),
    Store,
    Fork,
}

fn shape() -> impl Strategy<Value = Shape> {
    let number = || 1..10_u64;
    prop_oneof![
        (0..6_usize).prop_map(Shape::Clear),
        proptest::option::of(100..400_usize).prop_map(Shape::Most),
        number().prop_map(Shape::KeepLast),
        (number(), number()).prop_map(|(a, b)| Shape::Range(a, a + b)),
        (number(), number()).prop_map(|(a, b)| Shape::Drop(a, a + b)),
        (number(), number()).prop_map(|(a, b)| Shape::Summarize(a, a + b)),
        (number(), number()).prop_map(|(a, b)| Shape::Expand(a, a + b)),
        Just(Shape::Mask),
        any::<bool>().prop_map(Shape::Recall),
        Just(Shape::Store),
        Just(Shape::Fork),
    ]
}

fn form(context: &Context, shape: &Shape) -> Context {
    let now = at(50);
    match *shape {
        Shape::Clear(keep) => context.clear_tool_results(keep, "[cleared]", now),
        Shape::Most(most) => context.put_max_result_bytes(most, now),
        Shape::KeepLast(count) => context.keep_last_iterations(count, now),
        Shape::Range(first, last) => {
            let shown = context.iteration_range(first, last, now);
            shown.unwrap_or_else(|_| context.clone())
        }
        Shape::Drop(first, last) => match context.compactable(Some((first, last)), 0, 0) {
            Ok(Some((first, last))) => context.drop_range(first, last, now),
            _ => context.clone(),
        },
        Shape::Summarize(first, last) => {
            let summarized = context.summarize(first, last, "They talked.", now);
            summarized.unwrap_or_else(|_| context.clone())
        }
        Shape::Expand(first, last) => context.expand(first, last, now),
        Shape::Mask => {
            let masks = Masks::new([("secret[0-9]+".into(), "[secret]".into())]);
            context.put_masks(masks.unwrap(), now)
        }
        Shape::Recall(recall) => context.put_recall(recall, now),
        Shape::Store => Context::from_snapshot(&context.to_snapshot()).unwrap(),
        Shape::Fork => context.fork("f", now),
    }
}

/// All that a model reads.
fn shown(context: &Context) -> String {
    let mut text = String::new();
    for shown in context.messages() {
        match shown.see().message() {
            MessageRef::Added(message) => text.push_str(&said(&message.content)),
            MessageRef::Results(_, exchange) => {
                for slot in exchange.slots().flatten() {
                    text.push_str(&String::from_utf8_lossy(slot.text().unwrap()));
                }
            }
        }
        text.push('\n');
    }
    text
}

fn said(content: &Content) -> String {
    match content {
        Content::Text(text) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_view_every_fact_is_shown_or_found_and_recalled(
        turns in 1..8_u64,
        shapes in proptest::collection::vec(shape(), 0..8),
    ) {
        let mut context = start();
        let mut facts = Vec::new();
        for number in 1..=turns {
            let fact = |kind: &str| format!("{kind}/of_{number}.ex:{}", 7_919 * number);
            let filler = "and more of the same. ".repeat(20);
            let result = format!("{} {filler} {} {filler} secret{number}", fact("head"), fact("middle"));
            context = call(&context, &format!("c{number}"), "read_file", "{}", &result);
            let asked = Value::text(&fact("asked"));
            context = context.add_assistant_message(Value::text(&fact("answer")), Value::Nil, Stamp::at(at(20))).unwrap();
            context = context.add_user_message(asked, Stamp::at(at(30))).unwrap();
            facts.extend(["head", "middle", "asked", "answer"].map(fact));
            facts.push(format!("secret{number}"));
        }
        let mut context = shapes.iter().fold(context, |context, shape| form(&context, shape));
        context = context.put_recall(true, at(60));
        let text = shown(&context);
        let is_masked = shapes.iter().any(|shape| matches!(shape, Shape::Mask));
        for fact in facts {
            let hits = context.search(&fact, 3);
            let read = hits.iter().map(|hit| context.recall(&hit.handle.to_string(), &WHOLE).unwrap());
            let is_found = read.into_iter().any(|text| text.contains(&fact));
            if is_masked && fact.starts_with("secret") {
                prop_assert!(!is_found && !text.contains(&fact), "{fact} is not masked");
                continue;
            }
            prop_assert!(is_found || text.contains(&fact), "{fact} is neither shown nor found in\n{text}");
            // Each note that stands for something gives it back.
            if !text.contains(&fact) {
                let notes = text.match_indices("recall ").filter_map(|(start, word)| {
                    let rest = &text[start + word.len()..];
                    let end = rest.find([']', ' ', '\n']).unwrap_or(rest.len());
                    context.recall(&rest[..end], &WHOLE).ok()
                });
                prop_assert!(notes.into_iter().any(|read| read.contains(&fact)), "no note leads to {fact} in\n{text}");
            }
        }
    }
}
