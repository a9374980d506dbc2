//! Encodings of old iterations become larger pieces. Whatever is appended, cut, forked, hidden or asked for on the way,
//! a request has the bytes that a conversation without any encodings makes.

use crate::make::{bytes, reload, stamp, Talk};
use ash_agent_context_core::{Context, Map, Options, Provider, Value};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Op {
    /// So many turns with a call and its result.
    Work(usize),
    /// So many turns of question and answer.
    Talk(usize),
    /// The user speaks right after a result.
    Interrupt,
    LongResult,
    /// To a place in the conversation, in hundredths.
    Rewind(usize),
    Fork,
    /// Goes on with another branch.
    Switch(usize),
    Hide(usize, usize),
    Clear(usize),
    ShowAll,
    Note(usize),
    Ask(Asked),
}

#[derive(Debug, Clone)]
struct Asked {
    provider: usize,
    cache: bool,
    since: Option<usize>,
    most: Option<usize>,
}

fn text(text: &str) -> Value {
    Value::text(text)
}

fn start() -> Context {
    Context::new("c", text("Begin"), Value::Nil, stamp()).unwrap()
}

fn map(fields: &[(&str, Value)]) -> Value {
    let fields = fields.iter().map(|(key, value)| (text(key), value.clone()));
    Value::Map(Map::new(fields.collect()))
}

fn work(context: &Context, n: usize, result: &str) -> Context {
    let id = format!("call_{n}");
    let call = map(&[("id", text(&id)), ("name", text("search"))]);
    let calls = Value::List(Box::new([call]));
    let asked = context.add_assistant_message(text(&format!("looking {n}")), calls, stamp());
    asked.unwrap().answers(&[(&id, text(result))])
}

fn say(context: &Context, said: &str) -> Context {
    context.add_user_message(text(said), stamp()).unwrap()
}

fn answer(context: &Context, n: usize) -> Context {
    let none = Value::List(Box::default());
    context
        .add_assistant_message(text(&format!("answer {n}")), none, stamp())
        .unwrap()
}

fn at(context: &Context, hundredth: usize) -> u64 {
    1 + (context.current_iteration() - 1) * hundredth as u64 / 100
}

fn check(context: &Context, asked: &Asked) {
    let provider = Provider::ALL[asked.provider % Provider::ALL.len()];
    let mut options = Options::new(provider);
    options.cache = asked.cache;
    options.from = asked.since.map(|since| at(context, since));
    options.max_result_bytes = asked.most;
    let body = Map::default();
    let sent = context.encode_request(&options, &body).unwrap();
    let fresh = reload(context);
    let expected = fresh.encode_request(&options, &body).unwrap();
    assert_eq!(bytes(&sent), bytes(&expected));
}

fn asked() -> impl Strategy<Value = Asked> {
    let since = prop::option::weighted(0.2, 0..=100usize);
    let most = prop::option::weighted(0.2, prop::sample::select(vec![40, 1_000]));
    // Mostly the same few, so that pieces are met again.
    (
        prop::sample::select(vec![0, 0, 0, 1, 1, 2, 3, 4, 5, 6]),
        any::<bool>(),
        since,
        most,
    )
        .prop_map(|(provider, cache, since, most)| Asked {
            provider,
            cache,
            since,
            most,
        })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1..40usize).prop_map(Op::Work),
        3 => (1..40usize).prop_map(Op::Talk),
        1 => Just(Op::Interrupt),
        1 => Just(Op::LongResult),
        1 => (0..=100usize).prop_map(Op::Rewind),
        1 => Just(Op::Fork),
        1 => any::<usize>().prop_map(Op::Switch),
        1 => (0..=100usize, 0..=30usize).prop_map(|(first, len)| Op::Hide(first, len)),
        1 => (0..10usize).prop_map(Op::Clear),
        1 => Just(Op::ShowAll),
        1 => (0..=100usize).prop_map(Op::Note),
        10 => asked().prop_map(Op::Ask),
    ]
}

fn run(ops: &[Op]) {
    let now = stamp().at;
    let mut branches = vec![start()];
    let mut open = 0;
    let mut count = 0;
    for op in ops {
        let context = &branches[open];
        let next = match op {
            Op::Work(times) => (0..*times).fold(context.clone(), |context, _| {
                count += 1;
                work(&context, count, "found")
            }),
            Op::Talk(times) => (0..*times).fold(context.clone(), |context, _| {
                count += 1;
                say(&answer(&context, count), "and then?")
            }),
            Op::Interrupt => say(context, "wait"),
            Op::LongResult => {
                count += 1;
                work(context, count, &"long ".repeat(100))
            }
            Op::Rewind(to) => context.rewind(at(context, *to) as i64).unwrap(),
            Op::Fork => {
                branches.push(context.clone());
                continue;
            }
            Op::Switch(to) => {
                open = to % branches.len();
                continue;
            }
            Op::Hide(first, len) => {
                let first = at(context, *first);
                let last = (first + *len as u64).min(context.current_iteration() - 1);
                context.drop_range(first, last, now)
            }
            Op::Clear(keep) => context.clear_tool_results(*keep, "-", now),
            Op::ShowAll => context.expand(0, u64::MAX, now),
            Op::Note(to) => context
                .put_iteration_metadata(at(context, *to) as i64, text("k"), text("v"), now)
                .unwrap(),
            Op::Ask(asked) => {
                check(context, asked);
                continue;
            }
        };
        branches[open] = next;
    }
    let last = Asked {
        provider: 0,
        cache: true,
        since: None,
        most: None,
    };
    for context in &branches {
        check(context, &last);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn pieces_change_no_byte(ops in prop::collection::vec(op(), 1..40)) {
        run(&ops);
    }
}

fn count(context: &Context, provider: Provider) -> usize {
    let options = Options::new(provider);
    context
        .encode_request(&options, &Map::default())
        .unwrap()
        .len()
}

#[test]
fn a_long_conversation_is_few_pieces() {
    for provider in Provider::ALL {
        let mut context = start();
        let mut most = 0;
        for n in 0..1_500 {
            context = work(&context, n, "found");
            most = most.max(count(&context, provider));
        }
        // 5 of 256 iterations, up to 15 of 16 and of one, and what is around them.
        assert!(most < 50, "{most} for {provider:?}");
        let fresh = reload(&context);
        count(&fresh, provider);
        assert!(count(&fresh, provider) < 50);
    }
}

#[test]
fn a_rewound_conversation_uses_what_there_is() {
    let long = (0..600).fold(start(), |context, n| work(&context, n, "found"));
    count(&long, Provider::Anthropic);
    let options = Options::new(Provider::Anthropic);
    let body = Map::default();
    let whole = long.encode_request(&options, &body).unwrap();
    let first = whole.iter().map(|segment| segment.bytes().as_ptr()).nth(2);
    for to in [1, 17, 300, 601] {
        let rewound = long.rewind(to).unwrap();
        let sent = rewound.encode_request(&options, &body).unwrap();
        assert!(sent.len() < 40, "{} at {to}", sent.len());
        if to > 256 {
            let pointers: Vec<_> = sent
                .iter()
                .map(|segment| segment.bytes().as_ptr())
                .collect();
            assert!(first.is_some_and(|first| pointers.contains(&first)));
        }
    }
}

/// An iteration whose result is shortened stands between others that are as in the log.
#[test]
fn what_looks_different_is_not_joined() {
    let long = "long ".repeat(100);
    let results = (0..16).map(|n| if n == 7 { &*long } else { "found" });
    let context = results
        .enumerate()
        .fold(start(), |context, (n, result)| work(&context, n, result));
    for most in [Some(40), None, Some(40)] {
        let asked = Asked {
            provider: 0,
            cache: false,
            since: None,
            most,
        };
        check(&context, &asked);
    }
}

#[test]
fn threads_that_ask_at_once_get_the_same_bytes() {
    let context = (0..700).fold(start(), |context, n| work(&context, n, "found"));
    let options = Options::new(Provider::OpenAiChat);
    let body = Map::default();
    let fresh = reload(&context);
    let expected = bytes(&fresh.encode_request(&options, &body).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let sent = context.encode_request(&options, &body).unwrap();
                    assert_eq!(bytes(&sent), expected);
                }
            });
        }
    });
}
