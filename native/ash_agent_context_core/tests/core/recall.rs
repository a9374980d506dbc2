//! Recall: what a view shortens is read and found again, whatever the view.

use crate::make::{at, conversation, list, map, reload};
use ash_agent_context_core::{
    json, Check, Content, Context, Error, Excerpt, FactKind, FactState, Fate, Fit, Masks,
    MessageRef, Method, Output, PartKind, Pin, Stamp, Value,
};
use proptest::prelude::*;

fn call(context: &Context, id: &str, name: &str, arguments: &str, result: &str) -> Context {
    answered(context, (id, name, arguments), ("ok", result))
}

fn answered(
    context: &Context,
    (id, name, arguments): (&str, &str, &str),
    (status, result): (&str, &str),
) -> Context {
    let call = map(vec![
        ("id", Value::text(id)),
        ("name", Value::text(name)),
        ("arguments", Value::text(arguments)),
    ]);
    let result = map(vec![
        ("id", Value::text(id)),
        (
            "result",
            Value::Tuple(vec![Value::atom(status), Value::text(result)].into()),
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
    fn a_note_has_at_most_20_tokens_and_12_to_tell_what_is_there(
        name in words(1, 3, "_"), argument in argument(), begins in argument(), facts in proptest::collection::vec(telling(), 0..30),
        size in 200..2_000_000_usize, before in 0..2_usize,
    ) {
        let mut context = start();
        for number in 0..before * 120 {
            context = call(&context, &number.to_string(), "ls", "{}", "a");
        }
        let arguments = json::write(&map(vec![("path", Value::text(&argument)), ("limit", Value::Int(10))]));
        let result = format!("{begins} {}{}", facts.concat(), "x".repeat(size % 4_000 + 200));
        let context = call(&context, "last", &name, &arguments, &result);
        let context = context.put_recall(true, at(9)).clear_tool_results(0, "-", at(9));
        let note = results(&context).pop().unwrap();
        prop_assert!(note.starts_with('[') && note.ends_with(']'), "{note}");
        let most = 20 + (result.len() as u64 / 256).min(12);
        prop_assert!(tokens(&note) <= most && note.len() <= 120, "{} tokens, not {most}: {note}", tokens(&note));
        let handle = note.trim_end_matches(']').rsplit(' ').next().unwrap();
        prop_assert_eq!(context.recall(handle, &WHOLE).unwrap(), result);
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
        Shape::Store => reload(context),
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
        check_receipt(&context, &text, is_masked)?;
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

/// A text with some facts, words that calls use, and a line of an error.
fn telling() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("lib/a.ex"),
        Just("order 4711"),
        Just("1,204 ms"),
        Just("QX7R2M"),
        Just("secret7"),
        Just("handle_down"),
        Just("économie_é"),
        Just("exit code 2"),
        Just("error: it broke"),
        Just("the end"),
    ];
    let between = prop_oneof![Just(" "), Just("\n"), Just(", ")];
    proptest::collection::vec((word, between), 1..8).prop_map(|words| {
        words
            .into_iter()
            .map(|(word, after)| word.to_owned() + after)
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Facts that were found before are those that a conversation has of which nothing is kept.
    #[test]
    fn what_is_kept_of_a_text_is_what_it_says(
        turns in proptest::collection::vec((telling(), telling(), telling(), shape()), 1..6),
    ) {
        let mut context = start().put_recall(true, at(9)).put_index(Some(500), None, at(9));
        for (number, (argument, result, asked, shape)) in turns.iter().enumerate() {
            let given = arguments(argument);
            let id = format!("c{number}");
            context = answered(&context, (&id, "look", &given), (["ok", "error"][number % 2], result));
            prop_assert_eq!(context.receipt(50), reload(&context).receipt(50));
            context = context.add_assistant_message(Value::text("Yes."), Value::Nil, Stamp::at(at(20))).unwrap();
            context = context.add_user_message(Value::text(asked), Stamp::at(at(30))).unwrap();
            context = form(&context, shape);
            prop_assert_eq!(context.receipt(50), reload(&context).receipt(50));
            let (kept, anew) = (context.keep_last_iterations(1, at(40)), reload(&context).keep_last_iterations(1, at(40)));
            prop_assert_eq!(shown(&kept), shown(&anew));
            check_index(&shown(&kept))?;
            // Without an index, a note counts the facts of results that nobody read before.
            let told = context.put_index(Some(0), None, at(39));
            let (kept, anew) = (told.keep_last_iterations(1, at(40)), reload(&told).keep_last_iterations(1, at(40)));
            prop_assert_eq!(shown(&kept), shown(&anew));
            // What a branch goes on from has other messages than before, and may lack some.
            let back = context.rewind(1 + number as i64 / 2).unwrap();
            let back = call(&back.fork("b", at(41)), "other", "look", &given, asked).put_recall(true, at(42));
            for branch in [&back, &back.clear_tool_results(1, "[cleared]", at(43)), &context] {
                prop_assert_eq!(branch.receipt(50), reload(branch).receipt(50));
                let few = branch.receipt(3);
                prop_assert_eq!(&few.facts[..], &branch.receipt(50).facts[..few.facts.len().min(3)]);
            }
        }
    }
}

/// An index has no fact that stands before it in the note.
fn check_index(text: &str) -> Result<(), TestCaseError> {
    for note in text.split("[Iteration").skip(1) {
        let Some((before, facts)) = note.split_once("\nfacts: ") else {
            continue;
        };
        let mut before = before.to_owned() + "\nfacts: ";
        for fact in facts.lines().next().unwrap_or_default().split("; ") {
            prop_assert!(!before.contains(fact), "{fact} stands twice in\n{note}");
            before = before + fact + "; ";
        }
    }
    Ok(())
}

/// The arguments of a call in JSON.
fn arguments(words: &str) -> String {
    json::write(&map(vec![("class", Value::text(words))]))
}

/// What the property test says of a fact is what the receipt says.
fn check_receipt(context: &Context, text: &str, is_masked: bool) -> Result<(), TestCaseError> {
    let receipt = context.receipt(usize::MAX);
    prop_assert_eq!(receipt.count(FactState::Gone), 0);
    prop_assert_eq!(receipt.facts.len(), receipt.count(FactState::Recall));
    for fact in &receipt.facts {
        let is_secret = fact
            .text
            .strip_prefix("secret")
            .is_some_and(|rest| rest.parse::<u64>().is_ok());
        prop_assert!(!is_masked || !is_secret, "{} is masked", fact.text);
        let handle = fact.handle.unwrap().to_string();
        let read = context.recall(&handle, &WHOLE).unwrap();
        prop_assert!(
            read.contains(&*fact.text),
            "{handle} is not of {}",
            fact.text
        );
        prop_assert!(
            !text.contains(&*fact.text) || fact.kind != FactKind::Path,
            "{} is visible",
            fact.text
        );
    }
    let without = context.put_recall(false, at(70)).receipt(0);
    prop_assert_eq!(without.count(FactState::Recall), 0);
    prop_assert!(without.count(FactState::Gone) >= receipt.count(FactState::Recall));
    Ok(())
}

#[test]
fn facts_are_found_by_their_shape() {
    let text = "see lib/a/b.ex:17 and mix.exs, mail ann@example.com or https://a.com/x?q=1\n\
                order QX7R2M took 430 ms, 1,234 rows\n** (KeyError) KeyError: key :a not found\nexited with code 3\nread and/or write\n\
                failed to open\nthere was no error at all\na ValueError is raised\n7\n42\nexit status 137\nmy_app/web v2/users";
    let context = call(&start(), "c1", "run", "{}", text);
    let receipt = context.clear_tool_results(0, "-", at(9)).receipt(100);
    let of = |kind: FactKind| {
        let facts = receipt.facts.iter().filter(|fact| fact.kind == kind);
        let mut texts: Vec<&str> = facts.map(|fact| &*fact.text).collect();
        texts.sort_unstable();
        texts
    };
    assert_eq!(
        of(FactKind::Path),
        ["lib/a/b.ex", "mix.exs", "my_app/web", "v2/users"]
    );
    assert_eq!(
        of(FactKind::Address),
        ["ann@example.com", "https://a.com/x?q=1"]
    );
    assert_eq!(of(FactKind::Id), ["QX7R2M"]);
    assert_eq!(
        of(FactKind::Number),
        [
            "42",
            "code 3",
            "lib/a/b.ex:17",
            "ms, 1,234",
            "status 137",
            "took 430"
        ]
    );
    assert_eq!(
        of(FactKind::Error),
        ["** (KeyError) KeyError: key :a not found", "failed to open"]
    );
    assert_eq!(
        of(FactKind::ExitCode),
        ["exit status 137", "exited with code 3"]
    );
    assert_eq!(receipt.count(FactState::Gone), receipt.facts.len());
    // The first word of a text has a line, too.
    let context = call(&start(), "c1", "run", "{}", "failed to open");
    let receipt = context.clear_tool_results(0, "-", at(9)).receipt(100);
    let texts: Vec<_> = receipt.facts.iter().map(|fact| &*fact.text).collect();
    assert_eq!(texts, ["failed to open"]);
}

/// Which is not that of a hash map, also where one text is an error and a number.
#[test]
fn facts_have_one_order() {
    let context = call(&start(), "c1", "run", "{}", "error: 500");
    let context = context.clear_tool_results(0, "-", at(9));
    let kinds = || -> Vec<FactKind> {
        let facts = context.receipt(100).facts;
        facts.iter().map(|fact| fact.kind).collect()
    };
    let first = kinds();
    assert!(first.contains(&FactKind::Error) && first.contains(&FactKind::Number));
    for _ in 0..20 {
        assert_eq!(kinds(), first);
    }
}

#[test]
fn what_is_nearly_a_fact_is_none_or_another() {
    let text = "ask @example.com or ann@local, 123456789x and 1234567890x, a/b and a/b/c, at 12:30 or 120:30";
    let context = call(&start(), "c1", "run", "{}", text);
    let receipt = context.clear_tool_results(0, "-", at(9)).receipt(100);
    let mut found: Vec<_> = receipt
        .facts
        .iter()
        .map(|fact| (fact.kind, &*fact.text))
        .collect();
    found.sort_unstable_by_key(|(_, text)| *text);
    let of = |kind| {
        let found = found.iter().filter(|(one, _)| *one == kind);
        found.map(|(_, text)| *text).collect::<Vec<_>>()
    };
    assert!(of(FactKind::Address).is_empty(), "{found:?}");
    assert_eq!(of(FactKind::Id), ["1234567890x"], "{found:?}");
    assert_eq!(of(FactKind::Path), ["a/b/c"], "{found:?}");
    let numbers = ["30", "ann@local, 123456789x", "at 12:30", "or 120"];
    assert_eq!(of(FactKind::Number), numbers, "{found:?}");
}

#[test]
fn a_word_is_a_name_once_a_later_call_uses_it() {
    let context = call(
        &start(),
        "c1",
        "find",
        "{}",
        "The config is called economy, in handle_down.",
    );
    let names = |context: &Context| {
        let receipt = context.clear_tool_results(0, "-", at(9)).receipt(100);
        receipt.count_of(FactKind::Name, FactState::Gone)
            + receipt.count_of(FactKind::Name, FactState::Visible)
    };
    assert_eq!(names(&context), 0);
    let used = call(
        &context,
        "c2",
        "open",
        r#"{"class":"economy","code":"def handle_down is called"}"#,
        "ok",
    );
    assert_eq!(names(&used), 2);
}

#[test]
fn a_receipt_takes_as_long_as_its_texts() {
    let receipt = |results: usize| {
        let text = "at lib/a.ex:17 it was 430 ms, id QX7R2M. ".repeat(50);
        let context = (0..results).fold(start(), |context, number| {
            call(&context, &number.to_string(), "read", "{}", &text)
        });
        let context = context
            .put_recall(true, at(9))
            .clear_tool_results(1, "-", at(9));
        ash_agent_context_core::steps::count_steps(|| {
            let _ = context.receipt(10);
        })
    };
    let (few, many) = (receipt(20), receipt(200));
    assert!(many < 12 * few, "{few} and {many} steps");
}

/// A conversation with facts in it, and one turn more.
fn told(result: &str) -> Context {
    let context = call(&start(), "c1", "read", "{}", result);
    let context = context
        .add_assistant_message(Value::text("I see."), Value::Nil, Stamp::at(at(4)))
        .unwrap();
    context
        .add_user_message(Value::text("Go on"), Stamp::at(at(5)))
        .unwrap()
}

#[test]
fn pins_stay_whatever_is_cleared_hidden_summarised_or_shortened() {
    let filler = "and more of the same. ".repeat(40);
    let context = told(&format!("booking QX7R2M for Ann\n{filler}\nend"));
    let pinned = |pin: Pin| context.pin(pin, at(6)).unwrap();
    let fact = pinned(Pin::Fact("QX7R2M".into()));
    let result = pinned(Pin::Result(1, 0));
    let last = context.current_iteration() - 1;
    let views: [&dyn Fn(&Context) -> Context; 5] = [
        &|context| context.clear_tool_results(0, "-", at(7)),
        &|context| {
            context
                .put_recall(true, at(7))
                .clear_tool_results(0, "-", at(7))
        },
        &|context| {
            context
                .put_recall(true, at(7))
                .keep_last_iterations(1, at(7))
        },
        &|context| context.summarize(1, last, "They talked.", at(7)).unwrap(),
        &|context| {
            context
                .put_max_result_bytes(Some(100), at(7))
                .clear_tool_results(0, "-", at(8))
                .keep_last_iterations(1, at(9))
        },
    ];
    for (number, view) in views.iter().enumerate() {
        assert!(!shown(&view(&context)).contains("QX7R2M"), "{number}");
        assert!(
            shown(&view(&fact)).contains("booking QX7R2M for Ann"),
            "{number}"
        );
        let whole = view(&result);
        assert!(shown(&whole).contains(&filler), "{number}");
        let stored = reload(&whole);
        assert_eq!(stored, whole);
        assert_eq!(shown(&stored), shown(&whole));
        assert!(
            !shown(
                &whole
                    .unpin(&Pin::Result(1, 0), at(9))
                    .put_recall(number != 3, at(9))
            )
            .contains(&filler)
                || number == 3,
            "{number}"
        );
    }
    let message = pinned(Pin::Message(1, 0)).keep_last_iterations(1, at(7));
    assert!(shown(&message).contains("[Iterations 1 to 2 are hidden]\nuser: Go\n"));
    assert!(context.pin(Pin::Iteration(9), at(7)).is_err());
    let masked = Masks::new([("QX7R2M".into(), "[id]".into())]).unwrap();
    assert!(!shown(&views[2](&result.put_masks(masked, at(8)))).contains("QX7R2M"));
}

#[test]
fn a_note_has_the_first_words_where_there_is_room() {
    let result = format!("3 tests, 1 failure\n{}", "more ".repeat(99));
    let context = call(&start(), "a", "run", "{}", &result);
    let context = context
        .put_recall(true, at(9))
        .clear_tool_results(0, "-", at(9));
    let note = results(&context).pop().unwrap();
    assert!(
        note.starts_with("[514 bytes run: 3 tests, recall"),
        "{note}"
    );
    let masks = Masks::new([("[0-9] tests".into(), "[x]".into())]).unwrap();
    let note = results(&context.put_masks(masks, at(9))).pop().unwrap();
    assert!(!note.contains("tests"), "{note}");
}

/// They are counted once, stay the same in every later request, and what a mask hides is not counted.
#[test]
fn notes_tell_which_facts_their_texts_have() {
    let lines = "lib/a.ex is read\nlib/b.ex is read\n12 errors are left\nerror: no such table\n";
    let result = format!("{lines}{}", "and more of it. ".repeat(400));
    let context = call(&start(), "a", "run", "{}", &result);
    let said = context.add_assistant_message(Value::text("Done."), Value::Nil, Stamp::at(at(4)));
    let next = said
        .unwrap()
        .add_user_message(Value::text("Next"), Stamp::at(at(5)));
    let context = next.unwrap().put_recall(true, at(9));
    let cleared = context.clear_tool_results(0, "-", at(9));
    let note = &results(&cleared)[0];
    let told = "[6 KB run: 2 paths, 1 error, lib/a.ex is read";
    assert!(note.starts_with(told), "{note}");
    let later = call(
        &cleared,
        "b",
        "read",
        r#"{"path":"left"}"#,
        "12 errors are left",
    );
    assert_eq!(&results(&later)[0], note);
    assert_eq!(&results(&reload(&later))[0], note);
    let masked = |context: &Context, pattern: &str| {
        context.put_masks(Masks::new([(pattern.into(), "x".into())]).unwrap(), at(9))
    };
    let note = &results(&masked(&cleared, "lib/[a-z.]+"))[0];
    let is_masked = note.starts_with("[6 KB run: 1 error, ") && !note.contains("path");
    assert!(is_masked, "{note}");
    assert_eq!(
        &results(&masked(&masked(&cleared, "lib/[a-z.]+"), "zzz"))[0],
        &results(&cleared)[0]
    );
    let cut = &results(&context.put_max_result_bytes(Some(1_500), at(9)))[0];
    let told = " bytes left out, in all 2 paths, 1 error, 1 number, recall 1.1-";
    assert!(cut.contains(told) && cut.len() <= 1_500, "{cut}");
    let hidden = context.keep_last_iterations(1, at(9));
    let told =
        "[Iterations 1 to 2 are hidden: a result with 2 paths, 1 error, 1 number, recall 1..2-";
    assert!(shown(&hidden).starts_with(told), "{}", shown(&hidden));
    // Nobody said "2 paths".
    for view in [&cleared, &hidden] {
        let two = call(
            &start(),
            "a",
            "run",
            "{}",
            &format!("2 paths, 1 error, {result}"),
        );
        let receipt = two
            .put_recall(true, at(9))
            .clear_tool_results(0, "-", at(9))
            .receipt(99);
        assert!(receipt.facts.iter().any(|fact| &*fact.text == "2 paths"));
        assert_eq!(
            view.receipt(99)
                .count_of(FactKind::Number, FactState::Visible),
            0
        );
    }
    // Of a long text, as many as there are at least.
    let long = call(
        &start(),
        "a",
        "run",
        "{}",
        &"lib/a.ex and so on. ".repeat(9_000),
    );
    let long = long
        .put_recall(true, at(9))
        .clear_tool_results(0, "-", at(9));
    assert!(
        results(&long)[0].starts_with("[180 KB run: 1+ path"),
        "{}",
        results(&long)[0]
    );
}

/// Whoever follows what an answer says, without a word to search for, reads everything within four calls.
#[test]
fn a_long_text_is_read_by_its_contents() {
    for lines in [200, 900, 9_000] {
        let line = |number: usize| format!("{}the line a{number}b of it", "\n".repeat(number % 2));
        let text: Vec<String> = (1..=lines).map(line).collect();
        let context = call(&start(), "a", "read", "{}", &text.join("\n"));
        let context = context
            .put_recall(true, at(9))
            .clear_tool_results(0, "-", at(9));
        let hits = context.search("line", 1);
        let mut unread: Vec<String> = (1..=lines).map(|number| format!("a{number}b")).collect();
        let mut next = vec![1];
        for _ in 0..4 {
            let read = next.iter().map(|from| {
                let page = Excerpt {
                    from: *from,
                    most: 4_000,
                    ..WHOLE
                };
                context.recall(&hits[0].handle.to_string(), &page).unwrap()
            });
            let read: Vec<String> = read.collect();
            assert!(read.iter().all(|page| page.len() < 4_500));
            unread.retain(|word| !read.iter().any(|page| page.contains(word)));
            next = read
                .iter()
                .flat_map(|page| page.split("[from ").skip(1))
                .map(|rest| rest.split(':').next().unwrap().parse().unwrap())
                .collect();
        }
        assert!(unread.is_empty(), "{lines}: {unread:?}");
    }
}

#[test]
fn contents_say_what_is_in_a_part() {
    let part = "opened lib/a.ex and lib/b.ex\n".to_owned() + &"and so on\n".repeat(900);
    let context = call(&start(), "a", "read", "{}", &part.repeat(9));
    let context = context
        .put_recall(true, at(9))
        .clear_tool_results(0, "-", at(9));
    let handle = context.search("lib/a.ex", 1)[0].handle.to_string();
    let contents = context
        .recall(
            &handle,
            &Excerpt {
                most: 8_000,
                ..WHOLE
            },
        )
        .unwrap();
    assert!(
        contents.starts_with("opened") && contents.contains("\n[from 820: 2 paths, and so on"),
        "{contents}"
    );
}

#[test]
fn a_result_gives_way_to_a_note_that_is_shorter() {
    for length in 1..120 {
        let text = "x".repeat(length);
        let context = call(&start(), "c1", "run", "{}", &text).put_recall(true, at(5));
        let shown = results(&context.clear_tool_results(0, "-", at(9))).remove(0);
        assert!(shown == text || shown.len() < length, "{length}: {shown}");
    }
    // Of a path that is too long, its last steps.
    let path = format!("/{}/lib/agent.ex", ["some_folder"; 8].join("/"));
    let context = call(
        &start(),
        "c1",
        "read",
        &format!("{{\"path\": \"{path}\"}}"),
        &"x".repeat(500),
    );
    let context = context.put_recall(true, at(5));
    let note = results(&context.clear_tool_results(0, "-", at(9))).remove(0);
    let (_, steps) = note.split_once("read ").unwrap();
    let (steps, _) = steps.split_once(", ").unwrap();
    assert!(path.ends_with(&format!("/{steps}")), "{note}");
}

#[test]
fn parts_lose_their_middle_and_say_so_once() {
    let parts = ["abcde"; 100].map(|text| {
        map(vec![
            ("type", Value::text("text")),
            ("text", Value::text(text)),
        ])
    });
    let called = map(vec![
        ("id", Value::text("c1")),
        ("name", Value::text("run")),
    ]);
    let context = start().add_assistant_message(Value::Nil, list(vec![called]), Stamp::at(at(2)));
    let parts = Value::Tuple(vec![Value::atom("ok"), list(parts.to_vec())].into());
    let result = map(vec![("id", Value::text("c1")), ("result", parts)]);
    let context = context
        .unwrap()
        .add_tool_results(list(vec![result]), Stamp::at(at(3)))
        .unwrap();
    for most in 60..100 {
        let context = context.put_max_result_bytes(Some(most), at(4));
        let shown = context.messages().last().unwrap();
        let seen = shown.see();
        let MessageRef::Results(_, exchange) = seen.message() else {
            unreachable!("the results are the last message")
        };
        let outcome = exchange.slots().flatten().next().unwrap();
        let Output::Parts(parts) = &outcome.output else {
            unreachable!("the result has parts")
        };
        let texts = parts.iter().map(|part| match &part.kind {
            PartKind::Text(text) => String::from_utf8_lossy(text).into_owned(),
            _ => unreachable!("all parts are texts"),
        });
        let texts: Vec<String> = texts.collect();
        assert!(texts.iter().all(|text| !text.is_empty()), "{most}");
        let text = texts.concat();
        assert_eq!(text.matches("left out").count(), 1, "{most}: {text}");
        assert!(text.len() <= most, "{most}: {text}");
    }
}

/// A model need not know how a word is written.
#[test]
fn a_search_finds_a_part_of_a_word_and_one_that_is_misspelt() {
    let context =
        told("The BoundedQueue of Zimmermann overflows at a high watermark, see lib/agent.ex")
            .clear_tool_results(0, "-", at(3));
    let finds = |words: &str| !context.search(words, 3).is_empty();
    for words in [
        "Zimmermann",
        "zimmerman",
        "Zimmremann",
        "Zimermann",
        "Zimmmermann",
        "watermrk",
        "watermark limit",
        "Queue of the bound",
        "boundedqueue",
        "bounded queue",
        "zimerman",
        "which overflow",
        "watre mark",
        "agent",
    ] {
        assert!(finds(words), "{words}");
    }
    for words in ["Zamboni", "wintermute", "", "zx", "xqueuey", "overgrowth"] {
        assert!(!finds(words), "{words}");
    }
    let [first, ..] = &*context.search("zimerman", 3) else {
        panic!()
    };
    assert!(first.text.contains("Zimmermann"), "{}", first.text);
}

#[test]
fn what_was_pinned_is_forgotten_when_a_rewind_takes_it_away() {
    let context = call(&told("a"), "c2", "read", "{}", "b");
    let number = context.current_iteration() - 1;
    let pinned = context.pin(Pin::Result(number, 0), at(6)).unwrap();
    assert_eq!(pinned.pins().count(), 1);
    assert_eq!(pinned.rewind(1).unwrap().pins().count(), 0);
}

#[test]
fn the_users_words_stand_where_their_iterations_are_hidden() {
    let text = "word ".repeat(2_000);
    let context = told(&text)
        .put_recall(true, at(7))
        .keep_last_iterations(1, at(7));
    assert!(shown(&context).contains("\nuser: Go\n"));
    let without = context.put_index(None, Some(0), at(8));
    assert!(!shown(&without).contains("user: Go"));
}

#[test]
fn an_index_names_what_is_likeliest_to_be_needed_within_its_tokens() {
    let filler = "and more of the same. ".repeat(200);
    let lines: String = (0..200)
        .map(|line| format!("row {} {filler:.20}\n", 7_919 * line))
        .collect();
    let context = call(&start(), "c0", "ls", "{}", &format!("lib/used.ex\n{lines}"));
    let context = call(&context, "c1", "read", r#"{"path":"lib/used.ex"}"#, &lines);
    let context = context
        .add_assistant_message(Value::text("Done."), Value::Nil, Stamp::at(at(4)))
        .unwrap();
    let context = context
        .add_user_message(Value::text("Next"), Stamp::at(at(5)))
        .unwrap();
    let context = context.put_recall(true, at(6));
    let plain = context.keep_last_iterations(1, at(7));
    let indexed = context
        .put_index(Some(30), None, at(6))
        .keep_last_iterations(1, at(7));
    let index = shown(&indexed);
    let index = index
        .lines()
        .find(|line| line.starts_with("facts: "))
        .unwrap();
    assert!(index.starts_with("facts: lib/used.ex; "), "{index}");
    let more =
        indexed.count_tokens(Some(Method::Estimate)) - plain.count_tokens(Some(Method::Estimate));
    let all = context.count_tokens(Some(Method::Estimate));
    assert!(more * 100 <= all * 3 + 300, "{more} of {all}");
    // It is made with the hiding, and stays.
    let later = call(
        &indexed,
        "c9",
        "read",
        r#"{"path":"lib/other.ex"}"#,
        "lib/used.ex",
    );
    assert!(shown(&later).contains(index));
    assert_eq!(reload(&later), later);
}

#[test]
fn pins_that_leave_no_room_are_named() {
    let context = told(&"word ".repeat(1_000));
    let fit = Fit {
        budget: 100,
        reserve: 0,
        keep_first: 0,
        keep_last: 0,
        step: 1,
        method: Some(Method::Estimate),
    };
    assert!(context.fit(&fit, at(7)).is_ok());
    let pinned = context.pin(Pin::Result(1, 0), at(6)).unwrap();
    let error = pinned.fit(&fit, at(7)).unwrap_err().to_string();
    assert!(
        error.starts_with("pins too long: [\"call 1.1\"]"),
        "{error}"
    );
}

/// Lines as tools and people write them.
fn lines() -> impl Strategy<Value = Vec<String>> {
    let line = prop_oneof![
        (argument(), 1..2_000_u32)
            .prop_map(|(path, line)| format!("{path}:{line}: function is too long")),
        (word(), 0..100_000_u32, word())
            .prop_map(|(a, number, b)| format!("the {a} took {number} ms for the {b}")),
        (word(), 0..999_u32)
            .prop_map(|(a, number)| format!("{{\"{a}\": {number}, \"status\": \"ok\"}}")),
        ("[A-Z]{2}[0-9][A-Z][0-9][A-Z]", word())
            .prop_map(|(id, a)| format!("{a} {id} is confirmed")),
        (words(2, 4, "/"), 1..9_u32)
            .prop_map(|(path, number)| format!("wrote {path}/v{number}.json")),
    ];
    proptest::collection::vec(line, 30..60)
}

/// A summary of some lines with one digit of a fact changed, if it has a digit.
fn lie(line: &str, digit: usize, by: u8) -> Option<String> {
    let digits: Vec<usize> = line
        .bytes()
        .enumerate()
        .filter(|(_, byte)| byte.is_ascii_digit())
        .map(|(at, _)| at)
        .collect();
    let at = *digits.get(digit % digits.len().max(1))?;
    let mut bytes = line.as_bytes().to_vec();
    bytes[at] = b'0' + (bytes[at] - b'0' + 1 + by % 9) % 10;
    String::from_utf8(bytes).ok()
}

#[test]
fn a_changed_digit_is_found_in_99_of_100_summaries() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut lies, mut found) = (0, 0);
    while lies < 1_000 {
        let lines = lines().new_tree(&mut runner).unwrap().current();
        let context = told(&lines.join("\n"));
        let last = context.current_iteration() - 1;
        for case in 0..20 {
            let line = case * 7 % (lines.len() - 2);
            let Some(lie) = lie(&lines[line + 1], case, case as u8) else {
                continue;
            };
            let summary = format!("{}\n{lie}\n{}", lines[line], lines[line + 2]);
            let summarized = context
                .summarize_checked(1, last, &summary, Check::Nothing, at(7))
                .unwrap();
            lies += 1;
            found += usize::from(!summarized.verdict.wrong.is_empty());
            let truth = [&*lines[line], &*lines[line + 1]].join("\n");
            let summarized = context
                .summarize_checked(1, last, &truth, Check::Nothing, at(7))
                .unwrap();
            assert!(
                summarized.verdict.wrong.is_empty(),
                "{truth}: {:?}",
                summarized.verdict.wrong
            );
        }
    }
    assert!(found * 100 >= lies * 99, "{found} of {lies}");
}

#[test]
fn a_summary_is_completed_refused_or_thrown_away_as_asked() {
    let text = format!(
        "wrote lib/used.ex at 4711\n{}",
        "and more of the same. ".repeat(100)
    );
    let context = call(
        &told(&text),
        "c2",
        "read",
        r#"{"path":"lib/used.ex"}"#,
        "ok",
    );
    let context = context
        .add_user_message(Value::text("Next"), Stamp::at(at(6)))
        .unwrap();
    let last = context.turn() - 1;
    let summarize = |words: &str, check| {
        context
            .summarize_checked(1, last, words, check, at(7))
            .unwrap()
    };
    let done = summarize("They wrote a file at 4712.", Check::Append);
    assert_eq!(
        (done.fate, &*done.verdict.wrong),
        (Fate::Summarized, &["4712".into()][..])
    );
    assert!(shown(&done.context).contains("Not in the conversation: 4712"));
    assert!(shown(&done.context).contains("lib/used.ex"));
    assert!(done.verdict.appended > 0 && done.verdict.kept < done.verdict.facts);
    let kept = done.context.cover(1).unwrap().1.verdict.as_deref().unwrap();
    assert_eq!(*kept, done.verdict);
    assert_eq!(reload(&done.context), done.context);
    let refused = summarize("They wrote a file at 4712.", Check::Refuse);
    assert_eq!(refused.fate, Fate::Cleared);
    assert!(refused.context.summary(1).is_none() && !shown(&refused.context).contains("and more"));
    let hidden = summarize("They wrote a file at 4712.", Check::Hide);
    assert_eq!(hidden.fate, Fate::Hidden);
    assert!(!shown(&hidden.context).contains("I see."));
    let true_one = summarize("They wrote lib/used.ex at 4711 and read it.", Check::Refuse);
    assert_eq!(true_one.fate, Fate::Summarized);
    let long = context.summarize_checked(1, last, &text, Check::Append, at(7));
    assert!(matches!(long, Err(Error::SummaryTooLong { .. })));
    assert_eq!(done.context.summarizable(Some((1, last)), 0, 0), Ok(None));
}

/// A walk back at each comma, at each number of a line, or over each pair of the same facts would not end here.
#[test]
fn texts_that_repeat_themselves_are_read_in_one_walk() {
    let thousands = format!("1{}", ",000".repeat(300_000));
    let numbers = "17 cats ".repeat(30_000);
    let mut context = conversation("Look.");
    for text in [&thousands, &numbers, &numbers, &numbers] {
        context = context
            .add_assistant_message(Value::text(text), Value::Nil, Stamp::at(at(1)))
            .unwrap()
            .add_user_message(Value::text("And now?"), Stamp::at(at(2)))
            .unwrap();
    }
    let hidden = context.keep_last_iterations(1, at(3));
    assert!(hidden.receipt(10).count(FactState::Gone) > 0);
    let summarized = context.summarize_checked(2, 4, &numbers, Check::Append, at(3));
    assert_eq!(summarized.unwrap().verdict.wrong, []);
}
