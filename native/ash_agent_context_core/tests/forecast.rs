//! What a forecast says of bytes is what the two requests share, whatever happened to the view between them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use ash_agent_context_core::{
    json, read_list, time, Accounting, AnswerTimes, Context, Options, Provider, Reading, Response,
    Stamp, Time, Value,
};
use proptest::prelude::*;

fn at(micros: i64) -> Time {
    time::from_micros(micros).unwrap()
}

#[derive(Debug, Clone)]
enum Step {
    /// An answer with so many calls, and results of so many words.
    Answer(Vec<usize>),
    Block(u8),
    Clear(usize),
    Hide(u64),
    Expand,
    Shorten(bool),
    /// So many iterations back, after which the user says the same or something else.
    Rewind(u64, bool),
    Store,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => prop::collection::vec(0..80_usize, 0..3).prop_map(Step::Answer),
        1 => (0..3_u8).prop_map(Step::Block),
        2 => (0..4_usize).prop_map(Step::Clear),
        1 => (1..5_u64).prop_map(Step::Hide),
        1 => Just(Step::Expand),
        1 => any::<bool>().prop_map(Step::Shorten),
        2 => (0..3_u64, any::<bool>()).prop_map(|(back, same)| Step::Rewind(back, same)),
        1 => Just(Step::Store),
    ]
}

fn answer(context: &Context, results: &[usize]) -> Context {
    let ids = (0..results.len()).map(|index| format!("{}-{index}", context.current_iteration()));
    let ids: Vec<String> = ids.collect();
    let calls = ids.iter().map(|id| {
        format!(r#"{{"id": "{id}", "type": "function", "function": {{"name": "look", "arguments": "{{}}"}}}}"#)
    });
    let calls = calls.collect::<Vec<_>>().join(", ");
    let calls = match results.is_empty() {
        true => String::new(),
        false => format!(r#", "tool_calls": [{calls}]"#),
    };
    let body = format!(
        r#"{{"choices": [{{"message": {{"role": "assistant", "content": "Yes"{calls}}}, "finish_reason": "stop"}}],
        "usage": {{"prompt_tokens": 2000, "completion_tokens": 1}}}}"#
    );
    let reading = Reading::of(Provider::OpenAiChat);
    let response = Response::decode(body.as_bytes(), &reading).unwrap();
    let times = AnswerTimes {
        requested_at: Some(at(1)),
        first_chunk_at: None,
    };
    let stamp = || Stamp::at(at(2));
    let context = context.add_answer(&response, times, stamp()).unwrap();
    if results.is_empty() {
        return context
            .add_user_message(Value::text("And?"), stamp())
            .unwrap();
    }
    let given = ids.iter().zip(results).map(|(id, words)| {
        let text = Value::text(&"word ".repeat(*words));
        let result = Value::Tuple([Value::atom("ok"), text].into());
        Value::Tuple([Value::text(id), result].into())
    });
    let given = Value::List(given.collect());
    context.add_tool_results(given, stamp()).unwrap()
}

/// The elements of a request's list.
fn list(context: &Context) -> Vec<u8> {
    let options = Options::new(Provider::OpenAiChat);
    let segments = context
        .encode_request(&options, &Default::default())
        .unwrap();
    let body: Vec<u8> = segments
        .iter()
        .flat_map(|segment| segment.bytes())
        .copied()
        .collect();
    let start = br#"{"messages":["#.len();
    body[start..body.len() - b"]}".len()].to_vec()
}

fn count_same(a: &[u8], b: &[u8]) -> u64 {
    a.iter().zip(b).take_while(|(a, b)| a == b).count() as u64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_common_beginning_is_exact(
        steps in prop::collection::vec(step(), 1..40),
        is_noted in any::<bool>(),
    ) {
        let stamp = Stamp::at(at(0));
        let mut context = Context::new("c", Value::text("?"), Value::text("S"), stamp).unwrap();
        // The list of each request, by the number of the iteration with its answer.
        let mut sent: Vec<(u64, Vec<u8>)> = Vec::new();
        // The list that was cut off, if no request was sent since; and whether the view is the one of the last request.
        let mut cut: Option<Vec<u8>> = None;
        let mut is_as_asked = true;
        let mut hides = false;
        for step in steps {
            is_as_asked &= !matches!(
                step,
                Step::Block(_) | Step::Clear(_) | Step::Hide(_) | Step::Expand | Step::Shorten(_)
            );
            hides = matches!(step, Step::Hide(_)) || hides && !matches!(step, Step::Expand);
            context = match step {
                Step::Answer(results) => {
                    (cut, is_as_asked) = (None, true);
                    sent.push((context.current_iteration(), list(&context)));
                    let noted = context.note_sent(&Options::new(Provider::OpenAiChat));
                    answer(&if is_noted { noted.unwrap() } else { context }, &results)
                }
                Step::Block(text) => {
                    let text = (text > 0).then(|| text.to_string());
                    context.put_prompt_block("b", text.as_deref(), at(3))
                }
                Step::Clear(keep) => context.clear_tool_results(keep, "-", at(3)),
                Step::Hide(keep) => context.keep_last_iterations(keep, at(3)),
                Step::Expand => context.expand(1, u64::MAX, at(3)),
                Step::Shorten(is_short) => {
                    context.put_max_result_bytes(is_short.then_some(100), at(3))
                }
                Step::Rewind(back, is_same) => {
                    let to = context.current_iteration().saturating_sub(back).max(1);
                    let last = sent.last().filter(|(number, _)| *number > to);
                    // What is hidden up to there may be shown again.
                    is_as_asked &= !hides;
                    cut = cut.or(last.map(|(_, list)| list.clone()));
                    sent.retain(|(number, _)| *number <= to);
                    let to = context.rewind(i64::try_from(to).unwrap()).unwrap();
                    let said = if is_same { "And?" } else { "Again" };
                    to.add_user_message(Value::text(said), Stamp::at(at(3))).unwrap()
                }
                Step::Store => Context::from_snapshot(&context.to_snapshot()).unwrap(),
            };
            let options = Options::new(Provider::OpenAiChat);
            let forecast = context.forecast(&options, &Accounting::default(), at(4)).unwrap();
            let now = list(&context);
            // Each element follows a comma, the first one too.
            prop_assert_eq!(forecast.bytes, now.len() as u64 + 1);
            if let Some(cut) = &cut {
                let same = count_same(cut, &now) + 1;
                if is_as_asked {
                    prop_assert!(forecast.same_bytes <= same);
                    // Of a message that is not the same it is not known where it begins to differ.
                    let is_all = forecast.same_bytes + 60 > same;
                    prop_assert!(is_all || !is_noted, "{} of {same}", forecast.same_bytes);
                }
            } else {
                let same = sent.last().map_or(0, |(_, last)| count_same(last, &now) + 1);
                prop_assert_eq!(forecast.same_bytes, same);
                let is_whole = sent.last().is_some_and(|(_, last)| same == last.len() as u64 + 1);
                prop_assert_eq!(forecast.breaks.is_empty(), is_whole || sent.is_empty());
            }
            // 2,000 tokens were sent, of which 15 blocks of 128 are whole.
            prop_assert!(forecast.read <= 1920);
            prop_assert_eq!(forecast.read + forecast.written + forecast.fresh, forecast.tokens);
        }
    }
}

#[test]
fn a_request_costs_what_its_tokens_cost() {
    let prices = r#"[{"provider": "openai_chat", "model": "m", "input": 10, "cache_read": 1, "output": 50}]"#;
    let prices = read_list(&json::read(prices.as_bytes(), 100).unwrap()).unwrap();
    let accounting = Accounting {
        prices: Some(&prices),
        model: Some("m"),
        since: 0,
    };
    let stamp = Stamp::at(at(0));
    let context = Context::new("c", Value::text("?"), Value::text("S"), stamp).unwrap();
    let context = answer(&context, &[]);
    let options = Options::new(Provider::OpenAiChat);
    let forecast = context.forecast(&options, &accounting, at(4)).unwrap();
    assert_eq!(forecast.written, 0);
    assert!(forecast.read > 0 && forecast.fresh > 0);
    assert_eq!(forecast.cost, Some(forecast.read + forecast.fresh * 10));
}
