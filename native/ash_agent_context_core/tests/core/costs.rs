//! What an operation costs does not grow with the conversation, but with what the operation has to look at.

use crate::make::{at, conversation, list, map, reload, Talk};
use ash_agent_context_core::{
    steps, AnswerTimes, Context, FactState, Fit, Masks, Method, Options, Pin, Provider, Reading,
    Rent, Response, Stamp, Value,
};

/// A conversation of so many iterations, each with a question and an answer.
fn turns(count: usize, answer: &str) -> Context {
    let mut context = conversation("Q");
    for number in 1..=count {
        if number > 1 {
            context = context.user("Q");
        }
        context = context.says(answer);
    }
    context
}

#[test]
fn rewinding_costs_the_same_of_any_conversation() {
    let count_steps = |context: &Context, to: i64| {
        steps::count_steps(|| {
            assert_eq!(context.rewind(to).unwrap().current_iteration(), to as u64)
        })
    };
    // At most what came after the last checkpoint is recounted, message by message.
    assert!(count_steps(&turns(10, "A"), 5) > 0);
    let large = turns(10_000, "A");
    for to in [9_990, 5_000, 3] {
        let steps = count_steps(&large, to);
        assert!(steps < 100, "{steps} steps to {to}");
    }
}

#[test]
fn rewinding_counts_the_texts_of_the_view_that_it_digests() {
    let block = "B".repeat(100_000);
    let context = turns(10, "A").put_prompt_block("b", Some(&block), at(0));
    assert!(context.rewind_cost(5).work.bytes > 10 * block.len());
    assert!(turns(10, "A").rewind_cost(5).work.bytes < 10_000);
}

#[test]
fn counting_tokens_reads_what_is_new() {
    let context = turns(2_000, &"some words in a sentence ".repeat(20));
    let count_steps = |context: &Context| {
        steps::count_steps(|| assert!(context.count_tokens(Some(Method::Estimate)) > 0))
    };
    let first = count_steps(&context);
    assert!(first > 1_000_000, "{first}");
    let again = count_steps(&context);
    assert!(again < 100, "{again}");
    let next = context.user("And?");
    let more = count_steps(&next);
    assert!(more < 1_000, "{more}");
}

/// An answer with a report on its tokens, and the next question.
fn reported(context: &Context) -> Context {
    let body =
        r#"{"message": {"content": "A"}, "done": true, "prompt_eval_count": 9, "eval_count": 1}"#;
    let response = Response::decode(body.as_bytes(), &Reading::of(Provider::Ollama)).unwrap();
    let next = context.add_answer(&response, AnswerTimes::default(), Stamp::at(at(0)));
    next.unwrap().user("Q")
}

#[test]
fn an_answer_with_a_report_costs_what_is_new() {
    let context = (0..1_000).fold(conversation("Q"), |context, _| reported(&context));
    let steps = steps::count_steps(|| assert!(reported(&context).usage().input > 9_000));
    assert!(steps < 200, "{steps} steps");
}

/// The first requests compare their length with what caching it costs.
#[test]
fn a_request_for_the_cache_counts_what_is_new() {
    let mut options = Options::new(Provider::Anthropic);
    options.cache = true;
    let encode = |context: &Context| {
        steps::count_steps(|| {
            drop(
                context
                    .encode_request(&options, &Default::default())
                    .unwrap(),
            )
        })
    };
    let text = "some words in a sentence ".repeat(500);
    let masked = Masks::new([("secret".into(), "[x]".into())]).unwrap();
    for context in [turns(1, &text), turns(1, &text).put_masks(masked, at(0))] {
        let mut context = reported(&context.user("Q"));
        encode(&context);
        for _ in 0..4 {
            context = reported(&context);
            let steps = encode(&context);
            assert!(steps < 300, "{steps} steps");
        }
    }
}

#[test]
fn the_facts_of_a_text_are_found_once() {
    let text = "at lib/a.ex:17 it was 430 ms, id QX7R2M. ".repeat(50);
    let context = turns(200, &text).put_recall(true, at(0));
    let context = context.put_index(Some(20), None, at(0));
    let hide = |context: &Context| {
        steps::count_steps(|| assert!(context.keep_last_iterations(2, at(0)).has_view()))
    };
    let receipt = |context: &Context| {
        let hidden = context.keep_last_iterations(2, at(0));
        steps::count_steps(|| assert!(hidden.receipt(10).count(FactState::Visible) > 2))
    };
    let all = hide(&context);
    let next = context.user("Q").says("A").user("Q").says("A");
    let (more, told) = (hide(&next), receipt(&next));
    assert!(
        all > 20 * more && all > 20 * told,
        "{all}, then {more} and {told}"
    );
}

#[test]
fn a_turn_later_a_note_and_a_receipt_read_what_is_new() {
    let text = "at lib/a.ex:17 it was 430 ms, id QX7R2M. ";
    let looked_up = |context: &Context, count: usize| {
        (0..count).fold(context.clone(), |context, _| {
            let id = context.current_iteration().to_string();
            let arguments = r#"{"id":"QX7R2M"}"#;
            let calls = format!(r#"[{{"id":"{id}","name":"look","arguments":{arguments}}}]"#);
            context.calls(&calls).answers(&[(&id, Value::text(text))])
        })
    };
    let hide = |context: &Context| context.keep_last_iterations(2, at(0));
    let clear = |context: &Context| context.clear_tool_results(2, "-", at(0));
    for forget in [&hide as &dyn Fn(&Context) -> Context, &clear] {
        let later = [100, 800].map(|count| {
            let start = conversation("Q").put_recall(true, at(0));
            let context = looked_up(&start.put_index(Some(500), None, at(0)), count);
            let first = forget(&context);
            let told = first.receipt(10);
            assert!(told.count(FactState::Visible) > 1, "{told:?}");
            let next = looked_up(&first, 1);
            steps::count_steps(|| {
                let next = forget(&next);
                assert_eq!(told, next.receipt(10));
            })
        });
        let [few, many] = later;
        assert!(many < few + few / 4, "{few} and {many} steps");
    }
}

#[test]
fn the_last_context_with_what_a_receipt_kept_is_heavy_to_drop() {
    let told = turns(300, "at lib/a.ex it was 430 ms").keep_last_iterations(2, at(0));
    let key = Value::atom("seen");
    let new = told.put_iteration_metadata(1, key, Value::Int(1), at(1));
    assert!(!told.is_heavy_to_drop(), "the new one has nearly all of it");
    assert!(told.receipt(10).count(FactState::Visible) > 0);
    let mut copy = told.clone();
    assert!(!copy.is_heavy_to_drop() && !new.unwrap().is_heavy_to_drop());
    drop(told);
    assert!(copy.is_heavy_to_drop() && copy.let_go());
}

#[test]
fn a_receipt_reads_what_is_shown_once() {
    let text = "at lib/a.ex:17 it was 430 ms, id QX7R2M. ".repeat(50);
    let hidden = turns(200, &text).hide_iterations(1, 2, at(0)).unwrap();
    let receipt = |context: &Context| {
        steps::count_steps(|| assert!(context.receipt(10).count(FactState::Visible) > 2))
    };
    let (all, more) = (receipt(&hidden), receipt(&hidden.user("Q").says("A")));
    assert!(all > 20 * more, "{all}, then {more}");
}

#[test]
fn noting_a_request_looks_at_what_is_new() {
    let options = Options::new(Provider::Anthropic);
    let note = |context: &Context| {
        let mut noted = None;
        let steps = steps::count_steps(|| noted = context.note_sent(&options).ok());
        (noted.unwrap(), steps)
    };
    // Of such a number, many pieces stay alone.
    let (noted, all) = note(&turns(2_047, "A"));
    assert!(all > 1_000, "{all}");
    let next = noted.user("Q").says("A");
    next.encode_request(&options, &Default::default()).unwrap();
    let (_, new) = note(&next);
    // Under another view it has to look at each piece.
    let (_, whole) = note(&next.put_prompt_block("b", Some("B"), at(0)));
    assert!(new < 50 && 4 * new < whole, "{new} of {whole}");
}

#[test]
fn a_rent_looks_at_what_is_new() {
    let rent = Rent {
        keep: 3,
        share: Some(10_000_000),
        prices: None,
        model: None,
        window: None,
    };
    let step = |context: &Context, number: usize| {
        let call = list(vec![map(vec![
            ("id", Value::text(&number.to_string())),
            ("name", Value::text("read")),
        ])]);
        let stamp = || Stamp::at(at(0));
        let asked = context.add_assistant_message(Value::Nil, call, stamp());
        let result = Value::Tuple([Value::atom("ok"), Value::text(&"text ".repeat(99))].into());
        let result = Value::Tuple([Value::text(&number.to_string()), result].into());
        let results = list(vec![result]);
        asked.unwrap().add_tool_results(results, stamp()).unwrap()
    };
    let mut context = conversation("Q");
    for number in 0..500 {
        context = step(&context, number);
    }
    let find = |context: &Context| {
        let mut next = None;
        let steps = steps::count_steps(|| next = Some(context.clear_when_due(&rent, at(0))));
        let (next, due) = next.unwrap();
        assert_eq!(due, None);
        (next, steps)
    };
    let (context, all) = find(&context);
    let (_, new) = find(&step(&context, 500));
    // The text of the new result is counted.
    assert!(all > 200_000 && new < 1_000, "{all}, then {new}");
}

#[test]
fn fitting_costs_what_it_hides() {
    let context = turns(5_000, "a few words");
    let tokens = context.count_tokens(None);
    let fit = Fit {
        budget: tokens - 40,
        reserve: 0,
        keep_first: 0,
        keep_last: 1,
        step: 1,
        method: None,
    };
    let mut hidden = None;
    let steps = steps::count_steps(|| hidden = context.fit(&fit, at(0)).unwrap().1);
    let (first, last) = hidden.unwrap();
    assert!(first == 1 && last < 10, "{first} to {last}");
    assert!(steps < 1_000, "{steps}");
}

#[test]
fn a_view_of_many_pieces_costs_in_proportion_to_them() {
    let count_steps = |count: u64| {
        let mut context = turns(count as usize, "b");
        steps::count_steps(|| {
            for number in (1..count).step_by(2) {
                let range = context.compactable(Some((number, number)), 0, 0).unwrap();
                let (first, last) = range.unwrap();
                context = context.drop_range(first, last, at(0));
            }
            assert_eq!(context.view().unwrap().covers().count() as u64, count / 2);
            let copy = reload(&context);
            assert_eq!(copy.count_tokens(None), context.count_tokens(None));
            assert_eq!(copy.messages().count(), copy.count_messages());
        })
    };
    let (few, many) = (count_steps(400), count_steps(4_000));
    assert!(few > 400 && many < 12 * few, "{few} and {many}");
}

/// To look through the summary for each pinned line would take quadratic time.
#[test]
fn pinned_lines_are_looked_up_in_a_summary() {
    let count_steps = |count: usize| {
        let mut context = turns(1, "A");
        for number in 0..count {
            let said = format!("id {number} {}", "of many words ".repeat(20));
            let added = context.add_user_message(Value::text(&said), Stamp::at(at(0)));
            context = added.unwrap().says("A");
        }
        let next = context.add_user_message(Value::text("Q"), Stamp::at(at(0)));
        let context = next.unwrap().pin(Pin::Fact("id ".into()), at(0)).unwrap();
        let last = context.turn() - 1;
        let context = context.summarize(1, last, "They talked.", at(0)).unwrap();
        let lines = context
            .summary(1)
            .unwrap()
            .split(|byte| *byte == b'\n')
            .count();
        assert_eq!(lines, count + 1);
        steps::count_steps(|| {
            let anew = context.put_recall(true, at(0));
            assert_eq!(
                anew.summary(1)
                    .unwrap()
                    .split(|byte| *byte == b'\n')
                    .count(),
                lines
            );
        })
    };
    let (few, many) = (count_steps(40), count_steps(400));
    assert!(few >= 40 && many < 12 * few, "{few} and {many}");
}
