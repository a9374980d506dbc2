//! Views: random operations on a context and on a list of flags, which must agree after each step, and views
//! from anywhere.

use crate::make::{conversation, reload, stamp, Talk};
use crate::view_model;
use crate::view_ops;

use ash_agent_context_core::{
    steps, Content, Context, Error, Masks, MessageRef, Output, Stamp, Value,
};
use proptest::prelude::*;
use view_model::Pair;
use view_ops::{at, call, list, op, Op, METHODS};

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn views_agree_with_flags(ops in proptest::collection::vec(op(), 1..60)) {
        let mut pair = Pair::new();
        for op in &ops {
            pair.apply(op);
            pair.compare();
        }
        pair.recount();
    }

    #[test]
    fn counts_are_what_a_recount_gives(ops in proptest::collection::vec(op(), 1..25)) {
        let mut pair = Pair::new();
        let mut all = Vec::new();
        for op in &ops {
            pair.apply(op);
            pair.recount();
            let counts = METHODS.map(|method| pair.context.count_tokens(method));
            all.push((pair.context.clone(), counts, pair.context.to_snapshot()));
        }
        // What came later has not touched them.
        for (context, counts, snapshot) in &all {
            prop_assert_eq!(&METHODS.map(|method| context.count_tokens(method)), counts);
            prop_assert_eq!(&context.to_snapshot(), snapshot);
        }
    }

    #[test]
    fn expanding_all_gives_the_log(ops in proptest::collection::vec(op(), 1..40)) {
        let mut pair = Pair::new();
        for op in &ops {
            pair.apply(op);
        }
        let plain = pair.context.expand(0, u64::MAX, at(1));
        let plain = plain.put_masks(Masks::new(None).unwrap(), at(1));
        let plain = plain.put_max_result_bytes(None, at(1)).put_prompt_block("b", None, at(1));
        let plain = plain.clear_tool_results(usize::MAX, "-", at(1));
        prop_assert!(plain.view().is_none());
        prop_assert_eq!(plain.count_messages(), plain.count_all_messages());
        prop_assert_eq!(plain.messages().count(), plain.all_messages().count());
    }

    #[test]
    fn views_from_anywhere_are_read_or_refused(
        covers in proptest::collection::vec((number(), number(), proptest::option::of(Just(()))), 0..5),
        cleared in proptest::option::of((number(), number())),
        most in proptest::option::of(number()),
        waits in any::<bool>(),
    ) {
        let mut fields = vec![];
        let covers: Vec<String> = covers
            .iter()
            .map(|(first, last, summary)| {
                let summary = summary.map_or(String::new(), |()| r#","summary":{"role":"user","content":"[S]\ns"}"#.to_owned());
                format!(r#"{{"first":{first},"last":{last}{summary}}}"#)
            })
            .collect();
        fields.push(format!(r#""covers":[{}]"#, covers.join(",")));
        if let Some((iteration, calls)) = cleared {
            fields.push(format!(r#""cleared":{{"iteration":{iteration},"calls":{calls},"placeholder":"-"}}"#));
        }
        if let Some(most) = most {
            fields.push(format!(r#""max_result_bytes":{most}"#));
        }
        check(&stored(5, waits, &format!("{{{}}}", fields.join(","))));
    }
}

/// A number as someone may write it who means harm.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        12 => (0..8_u64).prop_map(|number| number.to_string()),
        1 => Just(u64::MAX.to_string()),
        1 => Just(i64::MAX.to_string()),
        1 => Just((u128::MAX).to_string()),
        1 => Just("-1".to_owned()),
        1 => Just("1.0".to_owned()),
        1 => Just("1e400".to_owned()),
        1 => Just("null".to_owned()),
        1 => Just("\"1\"".to_owned()),
    ]
}

/// A conversation of so many iterations with this view.
fn stored(iterations: u64, waits: bool, view: &str) -> Vec<u8> {
    let mut pair = Pair::new();
    for _ in 1..iterations {
        pair.apply(&Op::Tool(1, Some(200)));
    }
    pair.apply(&Op::User(10));
    if waits {
        pair.apply(&Op::Tool(1, None));
    }
    let text = String::from_utf8(pair.context.to_snapshot()).unwrap();
    format!(
        "{},\"view\":{view}}}",
        text.trim_end().strip_suffix('}').unwrap()
    )
    .into_bytes()
}

/// What was accepted is a context like any other.
fn check(snapshot: &[u8]) -> Option<Context> {
    let context = match Context::from_snapshot(snapshot) {
        Ok(context) => context,
        Err(error) => {
            assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
            return None;
        }
    };
    let pending = context.current().count_pending();
    assert!(pending == 0 || context.cover(context.current_iteration()).is_none());
    let again = reload(&context);
    assert!(again == context);
    let views = [
        context.expand(0, u64::MAX, at(1)),
        context.expand(2, 2, at(1)),
        context.keep_last_iterations(2, at(1)),
        context.rewind(2).unwrap(),
        context.clear_tool_results(0, "+", at(1)),
        context.interrupt(&Value::Nil, Stamp::at(at(1))),
        context.clone(),
    ];
    for view in &views {
        assert_eq!(view.messages().count(), view.count_messages());
        for method in METHODS {
            let _ = view.count_tokens(method);
        }
        assert!(reload(view) == *view);
    }
    Some(context)
}

#[test]
fn covers_that_cannot_be_are_refused() {
    let cover = |first: &str, last: &str| format!(r#"{{"first":{first},"last":{last}}}"#);
    let max = u64::MAX.to_string();
    for covers in [
        vec![cover("1", "3"), cover("2", "4")],
        vec![cover("1", "3"), cover("3", "4")],
        vec![cover("1", "2"), cover("1", "2")],
        vec![cover("3", "4"), cover("1", "2")],
        vec![cover("3", "2")],
        vec![cover("0", "2")],
        vec![cover("1", &max)],
        vec![cover(&max, &max)],
        vec![cover("0", "0")],
        vec![cover("1", "99")],
        vec![cover("-1", "2")],
        vec!["null".into()],
    ] {
        let view = format!(r#"{{"covers":[{}]}}"#, covers.join(","));
        assert!(check(&stored(5, false, &view)).is_none(), "{view}");
    }
    // The current iteration with its call that waits.
    for last in 2..=5 {
        let view = format!(r#"{{"covers":[{}]}}"#, cover("2", &last.to_string()));
        assert_eq!(check(&stored(5, true, &view)).is_some(), last < 5);
    }
}

#[test]
fn patterns_that_are_none_are_refused() {
    for pattern in ["(", "a{2,1}", "(?=a)", "(?:(?:(?:a{100}){100}){100}){100}"] {
        let view = format!(r#"{{"masks":[{{"pattern":"{pattern}","replacement":""}}]}}"#);
        assert!(check(&stored(3, false, &view)).is_none(), "{pattern}");
    }
    for pattern in ["", ".*", "(a+)+$", "(?s).+", r"\\p{Greek}"] {
        let view = format!(r#"{{"masks":[{{"pattern":"{pattern}","replacement":"x"}}]}}"#);
        assert!(check(&stored(3, false, &view)).is_some(), "{pattern}");
    }
}

/// A million covers, of which the first few may be good.
#[test]
fn many_covers_take_linear_time() {
    let count_steps = |count: usize| {
        let covers = vec![r#"{"first":1,"last":1}"#; count].join(",");
        let snapshot = stored(5, false, &format!(r#"{{"covers":[{covers}]}}"#));
        steps::count_steps(|| assert!(Context::from_snapshot(&snapshot).is_err()))
    };
    let (few, many) = (count_steps(10_000), count_steps(100_000));
    assert!(few > 10_000 && many < 11 * few, "{few} and {many}");
}

#[test]
fn covers_over_each_iteration_take_linear_time() {
    let count_steps = |count: u64| {
        let mut pair = Pair::new();
        for _ in 1..count {
            pair.apply(&Op::User(3));
            pair.apply(&Op::Assistant(3));
        }
        let text = String::from_utf8(pair.context.to_snapshot()).unwrap();
        let covers: Vec<String> = (1..count - 1)
            .step_by(2)
            .map(|number| format!(r#"{{"first":{number},"last":{number}}}"#))
            .collect();
        let text = text.trim_end().strip_suffix('}').unwrap().to_owned();
        let snapshot = format!(r#"{text},"view":{{"covers":[{}]}}}}"#, covers.join(","));
        steps::count_steps(|| {
            let context = Context::from_snapshot(snapshot.as_bytes()).unwrap();
            assert_eq!(context.messages().count(), context.count_messages());
            let _ = context.count_tokens(None);
            let hidden = context.keep_last_iterations(1, at(1));
            assert_eq!(hidden.view().unwrap().covers().count(), 1);
            assert_eq!(
                hidden.expand(0, u64::MAX, at(1)).count_messages(),
                context.count_all_messages()
            );
            assert_eq!(
                context.expand(0, u64::MAX, at(1)).count_messages(),
                context.count_all_messages()
            );
        })
    };
    let (few, many) = (count_steps(500), count_steps(4_000));
    assert!(few > 500 && many < 10 * few, "{few} and {many}");
}

#[test]
fn a_long_result_is_shortened_on_character_boundaries() {
    for piece in ["x", "é", "日", "👩‍👩‍👧", "x\n"] {
        for most in [100, 101, 102, 103, 999] {
            let called = Pair::new().context.add_assistant_message(
                Value::Nil,
                list(vec![call("a")]),
                stamp(),
            );
            let context = called
                .unwrap()
                .answers(&[("a", Value::text(&piece.repeat(2_000)))])
                .put_max_result_bytes(Some(most), at(0));
            let shown = context.messages().last().unwrap();
            let seen = shown.see();
            let MessageRef::Results(_, exchange) = seen.message() else {
                panic!("no results")
            };
            let Output::Value(Value::Binary(_)) = exchange.slot(0).unwrap().output else {
                panic!("no text")
            };
            let text = exchange.slot(0).unwrap().text().unwrap().to_vec();
            assert!(
                text.len() <= most && text.len() + 10 > most,
                "{piece}: {} of {most}",
                text.len()
            );
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("bytes left out"));
        }
    }
}

#[test]
fn a_mask_leaves_the_log() {
    let context = conversation("a secret");
    let masked = context.put_masks(Masks::new([("secret".into(), "$0".into())]).unwrap(), at(0));
    let text = |message: MessageRef<'_>| match message {
        MessageRef::Added(message) => match &message.content {
            Content::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
            _ => panic!("no text"),
        },
        MessageRef::Results(..) => panic!("no message"),
    };
    assert_eq!(
        text(masked.messages().next().unwrap().see().message()),
        "a $0"
    );
    assert_eq!(text(masked.all_messages().next().unwrap()), "a secret");
}
