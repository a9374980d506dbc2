//! When old results are cleared: never the newest, never for nothing, and never for more than the rent that was paid.

use crate::make::{at, conversation, map, reload, Talk};
use ash_agent_context_core::{
    read_list, AnswerTimes, Context, Due, Method, Prices, Provider, Reading, Rent, Response, Stamp,
    Value,
};
use proptest::prelude::*;

const MINUTE: i64 = 60_000_000;

fn start() -> Context {
    conversation("Go")
}

/// An answer with so many calls, and their results of so many words.
fn step(context: &Context, said: usize, results: &[usize]) -> Context {
    let number = context.current_iteration();
    let id = |index| Value::text(&format!("{number}-{index}"));
    let calls = results.iter().enumerate();
    let calls = calls.map(|(index, _)| map(vec![("id", id(index)), ("name", Value::text("read"))]));
    let text = Value::text(&"word ".repeat(said));
    let calls = Value::List(calls.collect());
    let context = context
        .add_assistant_message(text, calls, Stamp::at(at(1)))
        .unwrap();
    let answers = results.iter().enumerate().map(|(index, words)| {
        let text = Value::text(&"text ".repeat(*words));
        let result = Value::Tuple([Value::atom("ok"), text].into());
        map(vec![("id", id(index)), ("result", result)])
    });
    let answers = Value::List(answers.collect());
    context.add_tool_results(answers, Stamp::at(at(2))).unwrap()
}

fn rent(keep: usize) -> Rent<'static> {
    Rent {
        keep,
        share: None,
        prices: None,
        model: None,
        window: None,
    }
}

fn tokens(context: &Context) -> u64 {
    context.tokens(Method::Estimate).total()
}

/// How many results of the view are not cleared.
fn count_whole(context: &Context) -> usize {
    let place = place(context);
    let results = context.iterations().flat_map(|iteration| {
        let calls = iteration.calls().enumerate();
        calls.map(|(call, _)| (iteration.number, call))
    });
    results.filter(|result| *result >= place).count()
}

/// The place before which results are cleared: an iteration, and calls of it.
fn place(context: &Context) -> (u64, usize) {
    let cleared = context.view().and_then(|view| view.cleared());
    cleared.map_or((0, 0), |cleared| (cleared.iteration, cleared.calls))
}

/// The iteration and the call of the next result after a place.
fn next_result(context: &Context, (number, call): (u64, usize)) -> u64 {
    let iteration = context.iteration(number as i64);
    let is_done = iteration.is_none_or(|its| its.calls().count() == call);
    (number + u64::from(is_done)).max(1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn results_are_cleared_when_the_rent_is_paid_and_never_before(
        steps in prop::collection::vec((0..60_usize, prop::collection::vec(20..400_usize, 1..4)), 1..40),
        keep in 0..5_usize,
        share in prop::option::of(100..1500_u64),
    ) {
        let rent = Rent { share, ..rent(keep) };
        let mut context = start();
        // What could have been cleared at each request since the last clearing.
        let mut carried: u64 = 0;
        for (said, results) in steps {
            context = step(&context, said, &results);
            let all = context.clear_tool_results(keep, "[Old tool result cleared]", at(3));
            let (next, due) = context.clear_when_due(&rent, at(3));
            prop_assert_eq!(next.current(), context.current());
            // What was kept of earlier steps is what is found anew.
            prop_assert_eq!(reload(&context).clear_when_due(&rent, at(3)).1, due);
            if place(&all) <= place(&context) {
                prop_assert_eq!(due, None);
                continue;
            }
            carried += tokens(&context) - tokens(&all);
            // The first that could be cleared and the first that stays stand in these iterations.
            let (first, newest) = (next_result(&context, place(&context)), next_result(&all, place(&all)));
            let behind = |from| all.view_tokens(Method::Estimate, from, u64::MAX).total();
            // What writing a token costs more than reading it, in hundredths of a price, and shares in thousandths.
            let is_paid = |behind: u64, newest: u64| {
                let due = match share {
                    Some(share) => behind * share,
                    None if place(&context) == (0, 0) => behind * 1000,
                    None => (newest * 1000).max(behind * 250).min(behind * 500),
                };
                1000 * 10 * carried >= (125 - 10) * due
            };
            prop_assert!(due.is_some() || !is_paid(behind(first), behind(newest)));
            prop_assert!(due.is_none() || is_paid(behind(first + 1), behind(newest + 1)));
            match due {
                None => prop_assert_eq!(context.clear_when_due(&rent, at(3)).1, None),
                Some(due) => {
                    prop_assert_eq!(due, Due::Paid);
                    prop_assert_eq!(place(&next), place(&all));
                    prop_assert_eq!(count_whole(&next), keep);
                    prop_assert_eq!(next.clear_when_due(&rent, at(3)).1, None);
                    carried = 0;
                    context = next;
                }
            }
        }
    }
}

/// The steps whose requests clear results, of so many with a result of 400 words each.
fn find_dues(rent: &Rent<'_>, said: usize) -> Vec<usize> {
    let mut context = start();
    let mut dues = Vec::new();
    for number in 1..=23 {
        context = step(&context, said, &[400]);
        let (next, due) = context.clear_when_due(rent, at(3));
        if due.is_some() {
            dues.push(number);
        }
        context = next;
    }
    dues
}

#[test]
fn the_first_clearing_waits_for_the_whole_price_and_later_ones_for_the_newest_results() {
    // Results of 400 words are 401 tokens with the words around them and 8 more or less when cleared. With keep 1, each
    // step carries the older ones, and behind the first are their placeholders, the answers and the last result.
    let of = |share| Rent { share, ..rent(1) };
    // Rent after n steps: 10 * (0 + 1 + 2 + ... + n - 1) results; price: 115 of about one result and n placeholders.
    assert_eq!(find_dues(&of(Some(500)), 0), [5, 9, 13, 17, 21]);
    assert_eq!(find_dues(&of(Some(1000)), 0), [7, 13, 19]);
    // The newest result is nearly all of what stays: half has to be paid.
    assert_eq!(find_dues(&rent(1), 0), [7, 11, 15, 19, 23]);
    // Here it is less than half, and more than a quarter.
    assert_eq!(find_dues(&of(Some(1000)), 120), [12, 23]);
    assert_eq!(find_dues(&of(Some(500)), 120), [7, 13, 19]);
    assert_eq!(find_dues(&of(Some(250)), 120), [5, 9, 13, 17, 21]);
    assert_eq!(find_dues(&rent(1), 120), [12, 17, 22]);
    // Answers are nearly all: a quarter has to be paid.
    assert_eq!(find_dues(&of(Some(250)), 200), [6, 11, 16, 21]);
    assert_eq!(find_dues(&rent(1), 200), [16, 21]);
    // Without a price of the cache, whatever can be cleared is.
    let free = prices(vec![("input", Value::Int(10)), ("output", Value::Int(10))]);
    let context = step(&step(&start(), 0, &[400]), 0, &[400]);
    let due = |rent: &Rent<'_>| context.clear_when_due(rent, at(3)).1;
    assert_eq!(due(&rent(1)), None);
    assert_eq!(
        due(&Rent {
            prices: Some(&free),
            ..rent(1)
        }),
        Some(Due::Paid)
    );
    assert_eq!(due(&of(Some(0))), Some(Due::Paid));
    // Nothing to clear is never due.
    assert_eq!(
        due(&Rent {
            share: Some(0),
            ..rent(2)
        }),
        None
    );
}

#[test]
fn a_request_is_never_longer_than_the_window() {
    let context = step(&step(&start(), 0, &[400]), 0, &[400]);
    let due = |rent: &Rent<'_>| context.clear_when_due(rent, at(3)).1;
    let window = |window| Rent {
        window: Some(window),
        ..rent(1)
    };
    assert_eq!(due(&window(tokens(&context))), None);
    assert_eq!(due(&window(tokens(&context) - 1)), Some(Due::Window));
    let known = prices(vec![
        ("input", Value::Int(10)),
        ("cache_read", Value::Int(1)),
        ("output", Value::Int(10)),
        ("context_window", Value::Int(100)),
    ]);
    let known = Rent {
        prices: Some(&known),
        ..rent(1)
    };
    assert_eq!(due(&known), Some(Due::Window));
}

fn prices(rates: Vec<(&str, Value)>) -> Prices {
    let any = ("model", Value::atom("any"));
    let price = map([vec![any], rates].concat());
    read_list(&Value::List([price].into())).unwrap()
}

/// An answer of a provider to a request of a time, with what it read and wrote.
fn answer(context: &Context, provider: &str, minute: i64, written: &str) -> Context {
    let body = match provider {
        "openai_chat" => r#"{"choices": [{"message": {"content": "Yes"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 900, "completion_tokens": 1}}"#
            .to_owned(),
        _ => format!(
            r#"{{"type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn",
            "content": [{{"type": "text", "text": "Yes"}}],
            "usage": {{"input_tokens": 1, "output_tokens": 1, "cache_read_input_tokens": 0, {written}}}}}"#
        ),
    };
    let reading = Reading::of(Provider::from_name(provider).unwrap());
    let response = Response::decode(body.as_bytes(), &reading).unwrap();
    let times = AnswerTimes {
        requested_at: Some(at(minute * MINUTE)),
        first_chunk_at: None,
    };
    let stamp = || Stamp::at(at(minute * MINUTE));
    let context = context.add_answer(&response, times, stamp()).unwrap();
    context.user("And?")
}

#[test]
fn a_cold_cache_makes_clearing_free_where_its_time_is_known() {
    let context = step(&step(&start(), 0, &[400]), 0, &[400]);
    let due = |context: &Context, minute| context.clear_when_due(&rent(1), at(minute * MINUTE)).1;
    let five = r#""cache_creation_input_tokens": 900"#;
    let claude = answer(&context, "anthropic", 1, five);
    assert_eq!(due(&claude, 5), None);
    assert_eq!(due(&claude, 7), Some(Due::Cold));
    let hour = r#""cache_creation_input_tokens": 900,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 900}"#;
    let claude = answer(&context, "anthropic", 1, hour);
    assert_eq!(due(&claude, 60), None);
    assert_eq!(due(&claude, 62), Some(Due::Cold));
    // What is not in the cache is cold at once.
    let nothing = r#""cache_creation_input_tokens": 0"#;
    assert_eq!(
        due(&answer(&context, "anthropic", 1, nothing), 1),
        Some(Due::Cold)
    );
    // Others keep it as long as they like.
    assert_eq!(due(&answer(&context, "openai_chat", 1, five), 600), None);
}

#[test]
fn a_request_that_begins_otherwise_makes_clearing_free() {
    let tool = |name: &str| Value::List([map(vec![("name", Value::text(name))])].into());
    let fields = |model: &str, form: &str| {
        let body = vec![
            ("temperature", Value::Int(1)),
            ("response_format", Value::text(form)),
        ];
        map(vec![("model", Value::text(model)), ("body", map(body))])
    };
    let context = step(&step(&start(), 0, &[400]), 0, &[400]);
    let context = context
        .note_request(fields("m", "text"), tool("read"))
        .unwrap();
    let context = answer(&context, "openai_chat", 1, "");
    let due = |context: &Context| context.clear_when_due(&rent(1), at(2 * MINUTE)).1;
    assert_eq!(due(&context), None);
    let again = context
        .note_request(fields("m", "text"), tool("read"))
        .unwrap();
    assert_eq!(due(&again), None);
    for (fields, tools) in [
        (fields("m", "text"), tool("write")),
        (fields("n", "text"), tool("read")),
        (fields("m", "json"), tool("read")),
    ] {
        let other = context.note_request(fields, tools).unwrap();
        assert_eq!(due(&other), Some(Due::Broken));
    }
    let cooler = map(vec![
        ("model", Value::text("m")),
        (
            "body",
            map(vec![
                ("temperature", Value::Int(0)),
                ("response_format", Value::text("text")),
            ]),
        ),
    ]);
    assert_eq!(
        due(&context.note_request(cooler, tool("read")).unwrap()),
        None
    );
    assert_eq!(
        due(&context.put_prompt_block("b", Some("B"), at(9))),
        Some(Due::Broken)
    );
    assert_eq!(due(&context.drop_range(1, 1, at(9))), None); // nothing is left to clear
    let longer = step(&step(&start(), 0, &[400]), 0, &[400, 400]);
    let longer = answer(&longer, "openai_chat", 1, "");
    assert_eq!(due(&longer), None);
    assert_eq!(due(&longer.drop_range(1, 1, at(9))), Some(Due::Broken));
}

#[test]
fn the_window_of_a_price_has_room_for_the_answer() {
    let context = step(&step(&start(), 0, &[400]), 0, &[400]);
    let tokens = i64::try_from(tokens(&context)).unwrap();
    let due = |context: &Context, window: i64| {
        let known = prices(vec![
            ("input", Value::Int(10)),
            ("cache_read", Value::Int(1)),
            ("output", Value::Int(10)),
            ("context_window", Value::Int(window)),
        ]);
        let known = Rent {
            prices: Some(&known),
            ..rent(1)
        };
        context.clear_when_due(&known, at(3)).1
    };
    // An answer that may have any length has a quarter, and at most 8,192 tokens.
    let least = (tokens..)
        .find(|window| window - window / 4 >= tokens)
        .unwrap();
    assert_eq!(due(&context, least - 1), Some(Due::Window));
    assert_eq!(due(&context, least), None);

    let asking = |body: Value| {
        let fields = map(vec![("body", body)]);
        context.note_request(fields, Value::Nil).unwrap()
    };
    let flat = asking(map(vec![("max_tokens", Value::Int(50))]));
    assert_eq!(due(&flat, tokens + 49), Some(Due::Window));
    assert_eq!(due(&flat, tokens + 50), None);
    let within = vec![("maxOutputTokens", Value::Int(50))];
    let within = asking(map(vec![("generationConfig", map(within))]));
    assert_eq!(due(&within, tokens + 49), Some(Due::Window));
    assert_eq!(due(&within, tokens + 50), None);
    // No view is short enough for an answer that is as long as the window.
    for most in [least, i64::MAX, -1] {
        let huge = asking(map(vec![("max_tokens", Value::Int(most))]));
        assert_eq!(due(&huge, least), None);
    }
}
