//! A request that is too long: the view becomes shorter step by step, knows why, and is undone.

use crate::make::{conversation, reload, Talk};
use ash_agent_context_core::{
    time, Context, Map, Pressure, Rent, Shortened, Shortening, ShorteningKind, Stamp, Time, Value,
};

fn at() -> Time {
    time::from_micros(1).unwrap()
}

const RENT: Rent<'static> = Rent {
    keep: 3,
    share: Some(0),
    prices: None,
    model: None,
    window: None,
};

/// A question, and so many calls with a long result each.
fn turn(context: Option<&Context>, calls: usize) -> Context {
    let text = "line 17 of lib/a.ex has a few words more. ".repeat(30);
    let stamp = || Stamp::at(at());
    let mut context = match context {
        None => conversation("Go"),
        Some(context) => {
            let added = context.add_assistant_message(Value::text("Done."), Value::Nil, stamp());
            added.unwrap().user("Go on")
        }
    };
    for _ in 0..calls {
        let id = Value::text(&format!("c{}", context.current_iteration()));
        let map = |entries: Vec<(&str, Value)>| {
            let entries = entries.into_iter();
            Value::List(
                vec![Value::Map(Map::new(
                    entries
                        .map(|(key, value)| (Value::atom(key), value))
                        .collect(),
                ))]
                .into(),
            )
        };
        let call = map(vec![
            ("id", id.clone()),
            ("name", Value::text("read")),
            ("arguments", Value::text("{}")),
        ]);
        let outcome = Value::Tuple(vec![Value::atom("ok"), Value::text(&text)].into());
        let result = map(vec![("id", id), ("result", outcome)]);
        let called = context.add_assistant_message(Value::text("I read."), call, stamp());
        context = called.unwrap().add_tool_results(result, stamp()).unwrap();
    }
    context
}

fn shorten(context: &Context) -> Option<(Context, Shortening)> {
    match context.shorten(Pressure::Overflow, &RENT, at()) {
        Shortened::Shorter(next, step) => Some((*next, step)),
        _ => None,
    }
}

/// All steps, with the views between them.
fn steps(context: &Context) -> Vec<(Context, Shortening)> {
    std::iter::successors(shorten(context), |(context, _)| shorten(context)).collect()
}

fn stored(context: &Context) -> Context {
    reload(context)
}

#[test]
fn each_step_is_shorter_than_the_one_before_and_is_kept_with_its_cause() {
    let context = turn(Some(&turn(None, 5)), 6).put_recall(true, at());
    let steps = steps(&context);
    let kinds: Vec<_> = steps
        .iter()
        .map(|(_, step)| (step.kind, step.first, step.last))
        .collect();
    use ShorteningKind::{Cleared, Hidden};
    assert_eq!(
        kinds,
        [
            (Cleared, 1, 9),
            (Cleared, 9, 11),
            (Hidden, 1, 6),
            (Hidden, 8, 11)
        ]
    );
    let mut tokens = context.count_tokens(None);
    for (number, (shorter, step)) in steps.iter().enumerate() {
        assert!(shorter.count_tokens(None) < tokens);
        tokens = shorter.count_tokens(None);
        assert_eq!(step.cause, Pressure::Overflow);
        assert_eq!(shorter.shortenings().len(), number + 1);
        assert_eq!(shorter.shortenings().last(), Some(step));
        assert_eq!(stored(shorter), *shorter);
        if step.kind == Cleared {
            let size = stored(shorter).view().unwrap().size();
            assert_eq!(size.terms, 8 * (number + 1));
        }
        assert_eq!(stored(shorter).shortenings(), shorter.shortenings());
        assert_eq!(
            shorter.all_messages().count(),
            context.all_messages().count()
        );
    }
}

#[test]
fn a_step_is_undone() {
    let context = turn(Some(&turn(None, 5)), 6).put_recall(true, at());
    let all = steps(&context);
    let cleared = |context: &Context| {
        let view = context.view().unwrap();
        let cleared = view.cleared();
        cleared.map(|cleared| (cleared.iteration, cleared.calls))
    };
    let undo =
        |context: &Context, step: &Shortening| context.undo(step.kind, step.first, step.last, at());
    // One after the other, back to where each began.
    let befores = std::iter::once(&context).chain(all.iter().map(|(context, _)| context));
    for (before, (after, step)) in befores.zip(&all) {
        let undone = undo(after, step);
        assert_eq!(undone.shortenings(), before.shortenings());
        assert_eq!(cleared(&undone), cleared(before));
        assert_eq!(undone.count_messages(), before.count_messages());
    }
    // The first takes the second clearing along, and leaves what is hidden.
    let (last, first) = (&all[3].0, &all[0].1);
    let undone = undo(last, first);
    assert_eq!(cleared(&undone), None);
    assert_eq!(undone.shortenings(), &last.shortenings()[2..]);
    assert_eq!(undo(&undone, first), undone);
    assert_eq!(last.expand(1, u64::MAX, at()).shortenings().len(), 2);
    // What was cleared in another way stays.
    let context = context.clear_tool_results(3, "-", at());
    let (shorter, step) = shorten(&context).unwrap();
    assert_eq!(cleared(&undo(&shorter, &step)), cleared(&context));
}

#[test]
fn a_rewind_forgets_the_steps_that_came_later() {
    let first = turn(None, 6).put_recall(true, at());
    let (shorter, _) = shorten(&first).unwrap();
    let later = turn(Some(&shorter), 6);
    let (later, _) = shorten(&later).unwrap();
    assert_eq!(later.shortenings().len(), 2);
    let back = later.rewind(8).unwrap();
    assert_eq!(back.shortenings(), shorter.shortenings());
    assert_eq!(later.rewind(1).unwrap().shortenings(), []);
}

#[test]
fn a_request_that_fits_into_the_window_is_left_as_it_is() {
    let context = turn(None, 6).put_recall(true, at());
    let tokens = context.count_tokens(None);
    let shorten = |window| {
        let rent = Rent { window, ..RENT };
        context.shorten(Pressure::Window, &rent, at())
    };
    assert!(matches!(shorten(None), Shortened::Fits));
    assert!(matches!(shorten(Some(tokens)), Shortened::Fits));
    let shorter = shorten(Some(tokens - 1));
    assert!(matches!(shorter, Shortened::Shorter(_, step) if step.cause == Pressure::Window));
    let rest = steps(&context).pop().unwrap().0;
    let rent = Rent {
        window: Some(1),
        ..RENT
    };
    assert!(matches!(
        rest.shorten(Pressure::Window, &rent, at()),
        Shortened::Exhausted
    ));
}

#[test]
fn a_view_keeps_the_newest_fifty_steps() {
    let mut context = turn(None, 5).put_recall(true, at());
    for _ in 0..60 {
        context = turn(Some(&context), 2);
        context = shorten(&context).unwrap().0;
    }
    assert_eq!(context.shortenings().len(), 50);
    assert_eq!(stored(&context), context);
}

/// A question with results of so many bytes, which no model has seen.
fn long_results(results: &[usize]) -> Context {
    let stamp = || Stamp::at(at());
    let text = |text: &str| Value::text(text);
    let ids = (0..results.len()).map(|slot| format!("c{slot}"));
    let entry = |key: &str, value: Value| (Value::atom(key), value);
    let calls = ids.clone().map(|id| {
        let entries = [entry("id", text(&id)), entry("name", text("read"))];
        Value::Map(Map::new(entries.into()))
    });
    let given = ids.zip(results).map(|(id, bytes)| {
        let words = "a line of the log\n".repeat(bytes / 18 + 1);
        let ok = vec![Value::atom("ok"), text(&words[..*bytes])];
        Value::Tuple(vec![text(&id), Value::Tuple(ok.into())].into())
    });
    let (calls, given) = (Value::List(calls.collect()), Value::List(given.collect()));
    let context = conversation("Go").put_recall(true, at());
    let called = context.add_assistant_message(Value::Nil, calls, stamp());
    called.unwrap().add_tool_results(given, stamp()).unwrap()
}

fn kinds(steps: &[(Context, Shortening)]) -> Vec<ShorteningKind> {
    steps.iter().map(|(_, step)| step.kind).collect()
}

fn most(context: &Context) -> Option<usize> {
    context.view().and_then(|view| view.max_result_bytes)
}

#[test]
fn results_that_no_model_has_seen_lose_their_middle_before_they_are_cleared() {
    use ShorteningKind::{Cleared, Shortened as Cut};
    let one = steps(&long_results(&[100_000]));
    assert_eq!(kinds(&one), [Cut, Cut]);
    assert_eq!(
        (most(&one[0].0), most(&one[1].0)),
        (Some(25_000), Some(6_250))
    );
    let five = steps(&long_results(&[100, 60_000, 50_000, 1_000, 40_000]));
    assert_eq!(kinds(&five), [Cut, Cut, Cleared]);
    // None that is short enough is one that looks otherwise.
    assert_eq!(kinds(&steps(&long_results(&[3_000, 2_000]))), [Cleared]);
    for (context, all) in [(&one[1].0, &one), (&five[2].0, &five)] {
        for (shorter, _) in all {
            assert_eq!(stored(shorter), *shorter);
            assert_eq!(stored(shorter).shortenings(), shorter.shortenings());
        }
        // An earlier release leaves out the step that it does not know.
        let text = String::from_utf8(context.to_snapshot()).unwrap();
        let older = Context::from_snapshot(text.replace("\"steps\"", "\"other\"").as_bytes());
        let (older, steps) = (older.unwrap(), context.shortenings());
        assert_eq!(most(&older), most(context));
        let known = steps.iter().filter(|step| step.kind != Cut);
        assert!(older.shortenings().iter().eq(known));
    }
}

#[test]
fn a_shortened_result_is_whole_again_as_before() {
    let undo =
        |context: &Context, step: &Shortening| context.undo(step.kind, step.first, step.last, at());
    for limit in [None, Some(50_000)] {
        let context = long_results(&[100_000]).put_max_result_bytes(limit, at());
        let last = steps(&context).pop().unwrap().0;
        // Several steps for one request are one.
        assert_eq!(last.shortenings().len(), 1);
        let undone = undo(&stored(&last), &last.shortenings()[0]);
        assert_eq!((most(&undone), undone.shortenings()), (limit, &[][..]));
        assert_eq!(undone.view(), context.view());
        // So is a limit that somebody sets.
        let set = last.put_max_result_bytes(Some(9), at());
        assert_eq!((most(&set), set.shortenings()), (Some(9), &[][..]));
        // Of a later turn, it is taken back with that.
        let later = turn(Some(&last), 1);
        let later = steps(&later).pop().unwrap().0;
        assert!(later.rewind(2).unwrap().shortenings().len() < later.shortenings().len());
        let before = context.rewind(1).unwrap();
        assert_eq!(most(&last.rewind(1).unwrap()), most(&before));
    }
}

#[test]
fn a_long_result_is_shortened_until_it_fits_into_the_window() {
    for tokens in [3_000, 20_000, 200_000] {
        let rent = Rent {
            window: Some(tokens),
            ..RENT
        };
        let mut context = long_results(&[2_000_000]);
        while let Shortened::Shorter(next, step) = context.shorten(Pressure::Window, &rent, at()) {
            assert_eq!(step.kind, ShorteningKind::Shortened);
            context = *next;
        }
        let count = context.count_tokens(None);
        assert!(count <= tokens && count > tokens / 3, "{count} of {tokens}");
    }
}
