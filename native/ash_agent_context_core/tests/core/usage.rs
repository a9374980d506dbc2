//! What providers report of tokens: read once, summed for ever.

use crate::make::{at, conversation, reload, Talk};
use ash_agent_context_core::{Context, Error, Map, Method, Report, Stamp, Usage, Value};
use proptest::prelude::*;

fn map(entries: Vec<(&str, Value)>, texts: bool) -> Value {
    let key = |name: &str| {
        if texts {
            Value::text(name)
        } else {
            Value::atom(name)
        }
    };
    let entries = entries.into_iter();
    Value::Map(Map::new(
        entries.map(|(name, value)| (key(name), value)).collect(),
    ))
}

fn int(number: u64) -> Value {
    Value::Int(i64::try_from(number).unwrap())
}

/// A number of tokens that a provider may report.
fn tokens() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..100_000_u64, 1 => Just(0), 1 => Just(i64::MAX as u64)]
}

/// The shapes of the providers: input, output, cached, reasoning.
fn shape(which: usize, [input, output, cached, reasoning]: [u64; 4], texts: bool) -> Value {
    let details = |name: &'static str, number| map(vec![(name, int(number))], texts);
    match which {
        0 => map(
            vec![
                ("prompt_tokens", int(input)),
                ("completion_tokens", int(output)),
                ("prompt_tokens_details", details("cached_tokens", cached)),
                (
                    "completion_tokens_details",
                    details("reasoning_tokens", reasoning),
                ),
            ],
            texts,
        ),
        1 => map(
            vec![
                ("input_tokens", int(input)),
                ("output_tokens", int(output)),
                ("input_tokens_details", details("cached_tokens", cached)),
                (
                    "output_tokens_details",
                    details("reasoning_tokens", reasoning),
                ),
            ],
            texts,
        ),
        2 => map(
            vec![
                ("promptTokenCount", int(input)),
                (
                    "candidatesTokenCount",
                    int(output.saturating_sub(reasoning)),
                ),
                ("thoughtsTokenCount", int(reasoning)),
                ("cachedContentTokenCount", int(cached)),
            ],
            texts,
        ),
        3 => map(
            vec![
                ("input_tokens", int(input)),
                ("output_tokens", int(output)),
                ("cached_tokens", int(cached)),
                ("reasoning_tokens", int(reasoning)),
            ],
            texts,
        ),
        _ => map(
            vec![
                ("prompt_eval_count", int(input)),
                ("eval_count", int(output)),
            ],
            texts,
        ),
    }
}

proptest! {
    #[test]
    fn all_shapes_say_the_same(
        which in 0..5_usize,
        input in tokens(),
        output in tokens(),
        cached in tokens(),
        reasoning in 0..1000_u64,
        texts in any::<bool>(),
    ) {
        let output = output.max(reasoning);
        let usage = Report::read(&shape(which, [input, output, cached, reasoning], texts)).unwrap().usage;
        prop_assert_eq!(usage.input, input);
        prop_assert_eq!(usage.output, output);
        prop_assert_eq!(usage.total, input.saturating_add(output));
        if which < 4 {
            prop_assert_eq!(usage.cached, cached);
            prop_assert_eq!(usage.reasoning, reasoning);
        }
    }

    #[test]
    fn a_report_with_each_key_twice_is_counted_once(
        which in 0..5_usize,
        numbers in [0..1000_u64, 1000..2000_u64, 0..1000_u64, 0..1000_u64],
    ) {
        let entries = |texts| match shape(which, numbers, texts) {
            Value::Map(map) => map.into_entries(),
            _ => unreachable!(),
        };
        let both = entries(true).into_iter().chain(entries(false)).collect();
        prop_assert_eq!(
            Report::read(&Value::Map(Map::new(both))).unwrap().usage,
            Report::read(&shape(which, numbers, false)).unwrap().usage
        );
    }

    #[test]
    fn sums_survive_anything(
        steps in proptest::collection::vec((0..4_u8, 0..5_usize, tokens(), tokens()), 1..80),
        to in any::<prop::sample::Index>(),
    ) {
        let stamp = || Stamp::at(at(0));
        let empty = || Value::List(Box::new([]));
        let start = conversation("Hi");
        let mut context = start;
        // By the number of the iteration.
        let mut sums = vec![Usage::default()];
        let mut spoken: Option<usize> = None;
        for (what, which, input, output) in steps {
            context = match what {
                0 => {
                    let next = context.user("q");
                    sums.resize(next.count_iterations(), Usage::default());
                    next
                }
                1 => {
                    spoken = Some(context.count_iterations() - 1);
                    context.add_assistant_message(Value::text("a"), empty(), stamp()).unwrap()
                }
                _ => {
                    let report = || shape(which, [input, output, 0, 0], what == 2);
                    match (context.add_token_usage(report(), at(0)), spoken) {
                        (Ok(next), Some(index)) => {
                            sums[index] = sums[index].plus(Report::read(&report()).unwrap().usage);
                            next
                        }
                        (Err(error), None) => {
                            prop_assert_eq!(error, Error::NoAssistantMessage);
                            context
                        }
                        (reply, spoken) => panic!("{reply:?} after {spoken:?}"),
                    }
                }
            };
        }
        let all = |count: usize| sums[..count].iter().fold(Usage::default(), |sum, one| sum.plus(*one));
        let copy = reload(&context);
        for context in [&context, &copy] {
            prop_assert_eq!(context.usage(), all(sums.len()));
            for (iteration, sum) in context.iterations().zip(&sums) {
                prop_assert_eq!(iteration.usage(), *sum);
            }
            let number = to.index(sums.len()) + 1;
            let back = context.rewind(i64::try_from(number).unwrap()).unwrap();
            prop_assert_eq!(back.usage(), all(number));
            prop_assert_eq!(
                reload(&back).count_tokens(None),
                back.count_tokens(None)
            );
        }
    }
}

proptest! {
    #[test]
    fn hiding_leaves_no_more_than_the_share_of_a_report(
        sizes in proptest::collection::vec((1..400_usize, 1..20_u64), 2..12),
        percent in 0..400_u64,
        hidden in any::<prop::sample::Index>(),
        more in 0..200_usize,
    ) {
        let stamp = || Stamp::at(at(0));
        let empty = || Value::List(Box::new([]));
        let mut context = conversation("Hi");
        for (words, _) in &sizes {
            let text = Value::text(&"and a word ".repeat(*words));
            context = context.add_assistant_message(text, empty(), stamp()).unwrap().user("Go on");
        }
        let estimate = |context: &Context| context.count_tokens(Some(Method::Estimate));
        let covered = estimate(&context);
        let length = covered * percent / 100;
        let context = context.add_token_usage(shape(0, [length, 0, 0, 0], false), at(0)).unwrap();
        let last = hidden.index(sizes.len()) as u64 + 1;
        let shorter = context.hide_iterations(1, last, at(0)).unwrap();
        let shorter = shorter.user(&"and more ".repeat(more));
        for context in [&reload(&shorter), &shorter] {
            let (counted, shown) = (context.count_tokens(None), estimate(context));
            prop_assert!(counted > 0);
            // The report counted what the estimate has up to the model's last message, at least half of all.
            let most = shown as f64 * (percent as f64 / 100.0 * 1.5).max(1.0) + 10.0;
            prop_assert!(counted as f64 <= most, "{} of {} at {}%", counted, shown, percent);
        }
    }
}

#[test]
fn what_is_no_number_of_tokens_is_refused_by_its_key() {
    for wrong in [
        Value::Int(-1),
        Value::Float(1.0),
        Value::text("1"),
        Value::Bool(true),
        Value::List(Box::new([])),
    ] {
        for texts in [true, false] {
            let key = if texts {
                Value::text("input_tokens")
            } else {
                Value::atom("input_tokens")
            };
            let report = map(vec![("input_tokens", wrong.clone())], texts);
            assert_eq!(Report::read(&report), Err(Error::InvalidUsage { key }));
        }
    }
    for nothing in [
        Value::Nil,
        Value::Int(1),
        map(vec![], true),
        map(vec![("model", Value::text("m"))], false),
        map(vec![("usage", map(vec![], true))], true),
    ] {
        let refused = Err(Error::InvalidUsage { key: Value::Nil });
        assert_eq!(Report::read(&nothing), refused);
    }
}

#[test]
fn caches_that_are_counted_apart_are_part_of_the_input() {
    for texts in [true, false] {
        let anthropic = map(
            vec![
                ("input_tokens", int(1)),
                ("cache_read_input_tokens", int(20)),
                ("cache_creation_input_tokens", int(300)),
                ("output_tokens", int(4000)),
            ],
            texts,
        );
        let bedrock = map(
            vec![
                ("inputTokens", int(1)),
                ("cacheReadInputTokens", int(20)),
                ("cacheWriteInputTokens", int(300)),
                ("outputTokens", int(4000)),
                ("totalTokens", int(4321)),
            ],
            texts,
        );
        for report in [anthropic, bedrock] {
            let usage = Report::read(&report).unwrap().usage;
            let expected = Usage {
                input: 321,
                output: 4000,
                total: 4321,
                cached: 20,
                written: 300,
                reasoning: 0,
            };
            assert_eq!(usage, expected);
        }
    }
}
