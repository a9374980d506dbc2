//! Rules of the log, the view and storage, each with the smallest conversation in which it decides something.

use crate::make::{at, defaults, stamp, Talk};
use ash_agent_context_core::{
    json, AnswerTimes, CallStatus, Cause, Content, Context, Error, Excerpt, Fit, Given, Map, Masks,
    MessageRef, Output, Pin, Response, Stamp, Status, Structs, Trust, Value,
};

fn map(entries: Vec<(&str, Value)>) -> Map {
    let entries = entries.into_iter();
    Map::new(
        entries
            .map(|(key, value)| (Value::atom(key), value))
            .collect(),
    )
}

fn start() -> Context {
    Context::new("c", Value::text("Go"), Value::text("S"), stamp()).unwrap()
}

/// So many turns of a question and a long answer.
fn turns(count: usize) -> Context {
    let long = "some words of an answer ".repeat(10);
    (1..count).fold(start().says(&long), |context, _| {
        context.user("More").says(&long)
    })
}

/// The covers of a view: first, last, and whether a summary stands there.
fn covers(context: &Context) -> Vec<(u64, u64, bool)> {
    let covers = context.view().into_iter().flat_map(|view| view.covers());
    covers
        .map(|(first, cover)| (first, cover.last, cover.summary.is_some()))
        .collect()
}

fn fit(budget: u64) -> Fit {
    Fit {
        budget,
        reserve: 0,
        keep_first: 0,
        keep_last: 1,
        step: 1,
        method: None,
    }
}

#[test]
fn a_fit_leaves_a_summary_until_the_rest_does_not_suffice() {
    let context = turns(6).summarize(2, 3, "They talked.", at(0)).unwrap();
    let total = context.count_tokens(None);
    let each = context.drop_range(1, 1, at(0)).count_tokens(None);
    let (one, _) = context.fit(&fit(each), at(0)).unwrap();
    assert_eq!(covers(&one), [(1, 1, false), (2, 3, true)]);
    // One token less takes the iteration after the summary as well.
    let (two, hidden) = context.fit(&fit(each - 1), at(0)).unwrap();
    assert_eq!(covers(&two), [(1, 1, false), (2, 3, true), (4, 4, false)]);
    assert_eq!(hidden, Some((1, 4)));

    let least_with_summary = context
        .drop_range(1, 1, at(0))
        .drop_range(4, 5, at(0))
        .count_tokens(None);
    let (with, _) = context.fit(&fit(least_with_summary), at(0)).unwrap();
    assert_eq!(covers(&with), [(1, 1, false), (2, 3, true), (4, 5, false)]);
    let (without, hidden) = context.fit(&fit(least_with_summary - 1), at(0)).unwrap();
    assert_eq!(covers(&without), [(1, 5, false)]);
    assert_eq!(hidden, Some((1, 5)));

    let least = without.count_tokens(None);
    assert_eq!(
        context.fit(&fit(least), at(0)).unwrap().0.view(),
        without.view()
    );
    let refused = context.fit(&fit(least - 1), at(0)).unwrap_err();
    assert_eq!(refused, Error::CannotFit { least });
    let (same, hidden) = context.fit(&fit(total), at(0)).unwrap();
    assert!(same == context && hidden.is_none());
}

#[test]
fn a_change_of_the_view_is_as_late_as_it_was_made() {
    let context = turns(3);
    let changed = [
        context.drop_range(1, 1, at(7)),
        context.summarize(1, 1, "s", at(7)).unwrap(),
        context.keep_last_iterations(1, at(7)),
        context
            .fit(&fit(context.count_tokens(None) - 1), at(7))
            .unwrap()
            .0,
        context.expand(1, 1, at(7)),
    ];
    for context in changed {
        assert_eq!(context.updated_at(), at(7));
    }
}

#[test]
fn a_fit_hides_up_to_a_multiple_of_its_step() {
    let context = turns(8);
    let budget = context.drop_range(1, 1, at(0)).count_tokens(None);
    let stepped = |step| {
        let fit = Fit {
            step,
            ..fit(budget)
        };
        context.fit(&fit, at(0)).unwrap().1.unwrap()
    };
    assert_eq!(stepped(1), (1, 1));
    assert_eq!(stepped(3), (1, 3));
    assert_eq!(stepped(0), (1, 1));
    // The current turn stays, whatever the step.
    assert_eq!(stepped(100), (1, 7));
}

#[test]
fn a_child_has_its_parent_s_masks_and_limit() {
    let masks = Masks::new([("some words".into(), "***".into())]).unwrap();
    let parent = turns(3).put_masks(masks, at(0));
    let parent = parent.put_max_result_bytes(Some(150), at(0));
    let child = parent.seed(2, 3, "child", at(0)).unwrap();
    let view = child.view().unwrap();
    assert_eq!(view.max_result_bytes, Some(150));
    let last = child.messages().last().unwrap();
    let seen = last.see();
    let MessageRef::Added(message) = seen.message() else {
        unreachable!("an answer has no results")
    };
    let Content::Text(text) = &message.content else {
        unreachable!("the answer is a text")
    };
    assert!(text.starts_with(b"*** of an answer"));
}

#[test]
fn the_word_is_the_result_of_a_request_for_approval() {
    let waiting = |kind: &str| {
        let call = map(vec![
            ("id", Value::text("a")),
            ("name", Value::text("f")),
            ("kind", Value::atom(kind)),
        ]);
        let calls = Value::List([Value::Map(call)].into());
        let context = start().add_assistant_message(Value::Nil, calls, stamp());
        let approved = context
            .unwrap()
            .approve_tool_call("a", None, Value::Nil, at(0));
        approved.unwrap()
    };
    let asked = waiting("mcp_approval");
    assert_eq!(asked.current().count_pending(), 0);
    let (_, outcome) = asked.iteration(1).unwrap().calls().next().unwrap();
    assert_eq!(outcome.unwrap().output, Output::Value(Value::Bool(true)));
    assert_eq!(
        asked.tool_call_status("a"),
        Some(CallStatus::Ended(Status::Ok))
    );
    // Any other call runs after it was approved.
    let other = waiting("function");
    assert_eq!(other.current().count_pending(), 1);
    assert_eq!(other.tool_call_status("a"), Some(CallStatus::Approved));
}

#[test]
fn iterations_that_began_at_other_times_are_others() {
    let text = String::from_utf8(turns(2).to_snapshot()).unwrap();
    let context = Context::from_snapshot(text.as_bytes()).unwrap();
    let field = "\"started_at\":\"1970-01-01T00:00:00.000000Z\"";
    assert!(text.contains(field));
    let edited = text.replacen(field, "\"started_at\":\"1970-01-01T00:00:00.000001Z\"", 1);
    assert!(Context::from_snapshot(edited.as_bytes()).unwrap() != context);
}

#[test]
fn a_rewind_recounts_what_came_after_the_last_checkpoint() {
    let context = turns(60);
    let walked = |to| context.rewind_cost(to).work.terms;
    // At most 33 iterations of two messages.
    assert_eq!(walked(50), 66);
    assert_eq!(walked(2), 4);
    assert_eq!(walked(-1), 0);
}

fn excerpt(pattern: Option<&str>, lines: usize) -> Excerpt<'_> {
    Excerpt {
        from: 1,
        lines,
        pattern,
        most: 20,
    }
}

#[test]
fn hidden_iterations_are_recalled_with_who_said_what() {
    let context = start().says("Once").user("Which one?").says("Twice\nonce");
    let context = context.user("And?").says("That is all");
    let context = context.put_recall(true, at(0)).drop_range(1, 2, at(0));
    let view = context.view().unwrap();
    let (_, cover) = view.covers().next().unwrap();
    let Content::Text(note) = &cover.note.as_ref().unwrap().content else {
        unreachable!("the note is a text")
    };
    let note = String::from_utf8(note.to_vec()).unwrap();
    let handle = note.trim_end_matches(']').rsplit(' ').next().unwrap();

    let whole = Excerpt {
        most: 1_000,
        ..excerpt(None, 100)
    };
    let text = context.recall(handle, &whole).unwrap();
    assert_eq!(
        text,
        "user: Go\nassistant: Once\nuser: Which one?\nassistant: Twice\nonce\n"
    );
    let found = |pattern, lines| {
        let excerpt = excerpt(Some(pattern), lines);
        context.recall(handle, &excerpt).unwrap()
    };
    assert_eq!(found("Twice", 9), "4: assistant: Twice\n");
    assert_eq!(
        found("(?i)once", 1),
        "2: assistant: Once\n[1 of 2 matching lines]"
    );
    // One line is shown whatever it has, and others while there is room.
    assert_eq!(found(":", 9), "1: user: Go\n[1 of 4 matching lines]");
    assert_eq!(found("nothing", 9), "[0 of 0 matching lines]");
}

#[test]
fn a_request_s_view_is_noted_with_its_covers() {
    let known = |context: &Context| {
        let response = Response::from_message(Given {
            content: Value::text("Yes"),
            calls: Value::List(Box::default()),
            usage: Value::Nil,
            model: None,
            finish: None,
        });
        let times = AnswerTimes {
            requested_at: Some(at(1)),
            ..AnswerTimes::default()
        };
        context
            .add_answer(&response.unwrap(), times, stamp())
            .unwrap()
    };
    let context = turns(5).user("Next").drop_range(1, 2, at(0));
    let first = known(&context);
    let second = known(&first.user("Next").drop_range(3, 3, at(0)));
    let third = known(&second.user("Next"));
    let noted = |number| {
        let (since, view) = third
            .request_view(third.iteration(number).unwrap())
            .unwrap();
        let cover = view.unwrap().covers().next().unwrap();
        (since, cover.0, cover.1.last)
    };
    assert_eq!(noted(6), (6, 1, 2));
    assert_eq!(noted(7), (7, 1, 3));
    // The same view once more is noted once.
    assert_eq!(noted(8), (7, 1, 3));
}

/// Returns whether a stranger's struct of these fields is believed.
fn is_believed(module: &str, fields: &[(&str, Value)]) -> bool {
    let mut all = vec![("__struct__", Value::atom(module))];
    all.extend(fields.iter().cloned());
    let said = Stamp {
        metadata: Some(map(vec![("x", Value::Map(map(all)))])),
        ..stamp()
    };
    let context = Context::new("c", Value::text("Hi"), Value::Nil, said).unwrap();
    let trust = Trust {
        structs: Structs::Known,
        ..Trust::default()
    };
    Context::from_snapshot_with(&context.to_snapshot(), trust).unwrap() == context
}

fn is_changed_believed(
    module: &str,
    fields: &[(&'static str, Value)],
    key: &str,
    to: Value,
) -> bool {
    let mut fields = fields.to_vec();
    let field = fields.iter_mut().find(|(name, _)| *name == key).unwrap();
    field.1 = to;
    is_believed(module, &fields)
}

fn pair(a: i64, b: i64) -> Value {
    Value::Tuple([Value::Int(a), Value::Int(b)].into())
}

#[test]
fn times_are_believed_when_all_of_their_fields_are_right() {
    let fields = [
        ("calendar", Value::atom("Elixir.Calendar.ISO")),
        ("year", Value::Int(2024)),
        ("month", Value::Int(2)),
        ("day", Value::Int(29)),
        ("hour", Value::Int(23)),
        ("minute", Value::Int(59)),
        ("second", Value::Int(59)),
        ("microsecond", pair(999_999, 6)),
        ("time_zone", Value::text("Etc/UTC")),
        ("zone_abbr", Value::text("UTC")),
        ("utc_offset", Value::Int(0)),
        ("std_offset", Value::Int(0)),
    ];
    let time = "Elixir.DateTime";
    assert!(is_believed(time, &fields));
    assert!(!is_believed("Elixir.NaiveDateTime", &fields));
    assert!(is_believed("Elixir.NaiveDateTime", &fields[..8]));
    assert!(is_believed("Elixir.Date", &fields[..4]));
    assert!(!is_believed("Elixir.Date", &fields[..3]));
    for (key, to) in [
        ("calendar", Value::atom("Elixir.Other")),
        ("year", Value::Int(2023)),
        ("year", Value::Int(10_000)),
        ("month", Value::Int(13)),
        ("day", Value::Int(0)),
        ("hour", Value::Int(24)),
        ("minute", Value::Int(60)),
        ("second", Value::Int(-1)),
        ("microsecond", pair(1_000_000, 6)),
        ("microsecond", pair(0, 7)),
        ("microsecond", Value::Int(0)),
        ("zone_abbr", Value::text("CET")),
        ("utc_offset", Value::Int(1)),
        ("std_offset", Value::Int(1)),
        ("time_zone", Value::Nil),
    ] {
        let told = format!("{key}: {to:?}");
        assert!(!is_changed_believed(time, &fields, key, to), "{told}");
    }
    let mut zoned = fields;
    zoned[8].1 = Value::text("Europe/Paris");
    zoned[9].1 = Value::text("CET");
    zoned[10].1 = Value::Int(86_399);
    assert!(is_believed(time, &zoned));
    for (key, to) in [
        ("utc_offset", 86_400),
        ("std_offset", -86_400),
        ("utc_offset", i64::MIN),
    ] {
        assert!(
            !is_changed_believed(time, &zoned, key, Value::Int(to)),
            "{key}"
        );
    }
}

#[test]
fn decimals_are_believed_when_all_of_their_fields_are_right() {
    let fields = [
        ("sign", Value::Int(-1)),
        ("coef", Value::Int(0)),
        ("exp", Value::Int(-6176)),
    ];
    let decimal = "Elixir.Decimal";
    assert!(is_believed(decimal, &fields));
    assert!(!is_believed("Elixir.Other", &fields));
    for (key, to, expected) in [
        ("sign", Value::Int(1), true),
        ("sign", Value::Int(0), false),
        ("coef", Value::Int(-1), false),
        ("coef", Value::atom("NaN"), true),
        ("coef", Value::atom("inf"), true),
        ("coef", Value::atom("other"), false),
        ("exp", Value::Int(6176), true),
        ("exp", Value::Int(6177), false),
        ("exp", Value::text("1"), false),
    ] {
        let told = format!("{key}: {to:?}");
        assert_eq!(
            is_changed_believed(decimal, &fields, key, to),
            expected,
            "{told}"
        );
    }
}

#[test]
fn a_message_of_results_fills_slots_and_keeps_what_the_application_noted() {
    let attributes = r#"{"iterations": [{"messages": [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "a", "name": "f", "arguments": {}}]},
        {"role": "user", "metadata": {"by": "hand"}, "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": "done"}]}]}]}"#;
    let attributes = json::read(attributes.as_bytes(), 100).unwrap();
    let context = Context::from_attributes(attributes, defaults()).unwrap();
    let shown = context.messages().last().unwrap();
    let shown = shown.see();
    let MessageRef::Results(_, exchange) = shown.message() else {
        unreachable!("the results are the last message");
    };
    assert_eq!(exchange.pending(), 0);
    let noted = exchange.metadata.as_ref().unwrap();
    assert_eq!(noted.get_named("by").and_then(Value::as_name), Some("hand"));
}

#[test]
fn the_size_of_a_view_is_all_that_it_has_beside_the_log() {
    let terms = |context: &Context| context.view().map_or(0, |view| view.size().terms);
    let context = turns(3);
    let mask = |word: &str| (word.into(), "***".into());
    let masked = |masks| terms(&context.put_masks(Masks::new(masks).unwrap(), at(0)));
    let one = masked(vec![mask("a")]);
    assert_eq!(masked(vec![mask("a"), mask("b")]) - one, 1_000);
    assert_eq!(one, 1_000);
    let block = context.put_prompt_block("b", Some("text"), at(0));
    let pinned = block.pin(Pin::Fact("words".into()), at(0)).unwrap();
    assert_eq!(terms(&pinned) - terms(&block), 4);
}

#[test]
fn another_view_of_the_same_log_tells_what_it_changed() {
    let context = turns(3);
    let causes = |other: &Context| {
        let changes = context.view_changes(other);
        changes
            .iter()
            .map(|change| (change.cause, change.iteration))
            .collect::<Vec<_>>()
    };
    assert_eq!(causes(&context), []);
    assert_eq!(
        causes(&context.drop_range(1, 1, at(0))),
        [(Cause::Hidden, Some(1))]
    );
    let summarized = context.summarize(2, 2, "They talked.", at(0)).unwrap();
    assert_eq!(causes(&summarized), [(Cause::Summarized, Some(2))]);
}
