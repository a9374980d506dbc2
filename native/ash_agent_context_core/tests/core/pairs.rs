//! What a provider answers itself: the use of its tool and the result are sent both, or none of them,
//! wherever the halves stand and whatever is hidden, masked or left to an earlier request.

use crate::make::{conversation, json_sent, stamp, value, Talk};
use std::collections::{BTreeMap, BTreeSet};

use ash_agent_context_core::{ChangeKind, Context, Known, Masks, Options, Provider, Value};
use proptest::prelude::*;

/// What a mask looks for.
const SECRET: &str = "xyzzy";

/// Who has server tools whose halves name each other.
const PROVIDERS: [Provider; 4] = [
    Provider::Anthropic,
    Provider::Bedrock,
    Provider::Gemini,
    Provider::OpenAiResponses,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Half {
    pair: u8,
    is_result: bool,
    is_secret: bool,
}

#[derive(Debug, Clone)]
enum Step {
    User,
    /// The model stops between the halves, or runs tools of the application.
    Says(Vec<Half>),
    Calls(Vec<Half>),
}

#[derive(Debug, Clone)]
struct Look {
    hidden: Vec<(u64, u64)>,
    masks: bool,
    from: Option<u64>,
    knows_earlier: bool,
}

fn block(provider: Provider, half: Half) -> String {
    let id = half.pair;
    let said = if half.is_secret { SECRET } else { "plain" };
    let data = match (provider, half.is_result) {
        (Provider::Anthropic, false) => format!(
            r#"{{"type":"server_tool_use","id":"u{id}","name":"web_search","input":{{"query":"{said}"}}}}"#
        ),
        (Provider::Anthropic, true) => format!(
            r#"{{"type":"web_search_tool_result","tool_use_id":"u{id}","content":[{{"title":"{said}"}}]}}"#
        ),
        (Provider::Bedrock, false) => format!(
            r#"{{"toolUse":{{"toolUseId":"u{id}","name":"search","type":"server_tool_use","input":{{"query":"{said}"}}}}}}"#
        ),
        (Provider::Bedrock, true) => format!(
            r#"{{"toolResult":{{"toolUseId":"u{id}","type":"search_tool_result","content":[{{"json":{{"found":"{said}"}}}}]}}}}"#
        ),
        (Provider::Gemini, false) => format!(
            r#"{{"toolCall":{{"id":"u{id}","toolType":"GOOGLE_SEARCH","args":{{"q":"{said}"}}}}}}"#
        ),
        (Provider::Gemini, true) => format!(
            r#"{{"toolResponse":{{"id":"u{id}","toolType":"GOOGLE_SEARCH","response":{{"r":"{said}"}}}}}}"#
        ),
        (_, false) => format!(
            r#"{{"type":"tool_search_call","id":"tsc_{id}","call_id":"u{id}","execution":"server","arguments":{{"q":"{said}"}}}}"#
        ),
        (_, true) => format!(
            r#"{{"type":"tool_search_output","id":"tso_{id}","call_id":"u{id}","execution":"server","tools":[{{"name":"{said}"}}]}}"#
        ),
    };
    let name = provider.name();
    format!(r#"{{"type":"provider_block","provider":"{name}","data":{data}}}"#)
}

/// Which halves stand in a body.
fn sent(provider: Provider, body: &serde_json::Value) -> BTreeSet<(u8, bool)> {
    let (used, result) = match provider {
        Provider::Anthropic => ("/id", "/tool_use_id"),
        Provider::Bedrock => ("/toolUse/toolUseId", "/toolResult/toolUseId"),
        Provider::Gemini => ("/toolCall/id", "/toolResponse/id"),
        _ => ("/call_id", "/call_id"),
    };
    let mut found = BTreeSet::new();
    let mut waiting = vec![body];
    while let Some(value) = waiting.pop() {
        let is_output = value["type"] == "tool_search_output";
        for (path, is_result) in [(used, false), (result, true)] {
            let id = value.pointer(path).and_then(serde_json::Value::as_str);
            let id = id.filter(|_| provider != Provider::OpenAiResponses || is_output == is_result);
            let pair = id.and_then(|id| id.strip_prefix('u')?.parse().ok());
            if let Some(pair) = pair {
                assert!(found.insert((pair, is_result)), "twice: {value}");
            }
        }
        match value {
            serde_json::Value::Array(items) => waiting.extend(items),
            serde_json::Value::Object(fields) => waiting.extend(fields.values()),
            _ => {}
        }
    }
    found
}

/// The halves that a provider would take, with the number of the iteration of each, and the step.
type Places = BTreeMap<(u8, bool), (u64, Half, usize)>;

/// The conversation, the places, and the numbers of the iterations that the steps were made in.
fn build(provider: Provider, steps: &[Step]) -> (Context, Places, Vec<u64>) {
    let mut context = conversation("Go");
    let mut places = Places::new();
    let mut made_in = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let (halves, calls) = match step {
            Step::User => {
                context = context.user("More");
                made_in.push(context.current_iteration());
                continue;
            }
            Step::Says(halves) => (halves, "[]"),
            Step::Calls(halves) => (halves, r#"[{"id":"c","name":"get"}]"#),
        };
        let parts: Vec<_> = halves.iter().map(|half| block(provider, *half)).collect();
        let text = r#"{"type":"text","text":"So."}"#;
        let content = value(&format!(
            "[{text}{}{}]",
            if parts.is_empty() { "" } else { "," },
            parts.join(",")
        ));
        context = context
            .add_assistant_message(content, value(calls), stamp())
            .unwrap();
        made_in.push(context.current_iteration());
        for half in halves {
            let key = (half.pair, half.is_result);
            let has_use = places.contains_key(&(half.pair, false));
            if !places.contains_key(&key) && (has_use || !half.is_result) {
                places.insert(key, (context.current_iteration(), *half, at));
            }
        }
        if matches!(step, Step::Calls(_)) {
            context = context.answers(&[("c", Value::text("x"))]);
        }
    }
    (context, places, made_in)
}

fn seen(context: &Context, look: &Look) -> Context {
    let mut context = context.clone();
    for (first, last) in &look.hidden {
        if *last < context.current_iteration() {
            context = context.drop_range(*first, *last, stamp().at);
        }
    }
    if look.masks {
        let masks = Masks::new([(SECRET.into(), "***".into())]).unwrap();
        context = context.put_masks(masks, stamp().at);
    }
    context
}

fn half() -> impl Strategy<Value = Half> {
    (0..4u8, any::<bool>(), proptest::bool::weighted(0.2)).prop_map(
        |(pair, is_result, is_secret)| Half {
            pair,
            is_result,
            is_secret,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let halves = || proptest::collection::vec(half(), 0..4);
    prop_oneof![
        1 => Just(Step::User),
        3 => halves().prop_map(Step::Says),
        2 => halves().prop_map(Step::Calls),
    ]
}

fn look() -> impl Strategy<Value = Look> {
    let hidden = (1..6u64, 0..3u64).prop_map(|(first, more)| (first, first + more));
    (
        proptest::collection::vec(hidden, 0..3),
        any::<bool>(),
        proptest::option::of(1..6u64),
        any::<bool>(),
    )
        .prop_map(|(hidden, masks, from, knows_earlier)| Look {
            hidden,
            masks,
            from,
            knows_earlier,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn halves_are_sent_together_or_not_at_all(
        provider in proptest::sample::select(&PROVIDERS[..]),
        steps in proptest::collection::vec(step(), 1..12),
        look in look(),
        rewound in proptest::option::of(1..8i64),
    ) {
        let (context, mut places, made_in) = build(provider, &steps);
        let context = match rewound {
            Some(to) if to <= context.current_iteration() as i64 => {
                places.retain(|_, (number, ..)| *number <= to as u64);
                context.rewind(to).unwrap()
            }
            _ => context,
        };
        let last = context.current_iteration();
        // Anthropic goes on with a use only while nothing but results follows it.
        let is_over = |(_, _, at): &(u64, Half, usize)| {
            let behind = made_in.iter().skip(at + 1);
            provider == Provider::Anthropic && behind.clone().any(|number| *number <= last)
        };
        let context = seen(&context, &look);
        let from = look.from.map(|from| from.min(last));
        let is_stateful = look.knows_earlier && provider == Provider::OpenAiResponses;
        let options = Options {
            from,
            known: if is_stateful { Known::Response("resp_1") } else { Known::Nothing },
            ..Options::new(provider)
        };
        if is_stateful && from.is_none() {
            return Ok(()); // what is sent is decided by what the model said last
        }
        let body = json_sent(&context, &options);
        let found = sent(provider, &body);

        let is_sent = |(number, half, _): &(u64, Half, usize)| {
            *number >= from.unwrap_or(0)
                && context.cover(*number).is_none()
                && !(look.masks && half.is_secret)
        };
        // What the provider keeps need not be sent.
        let is_known = |(number, ..): &(u64, Half, usize)| is_stateful && *number < from.unwrap_or(0);
        for (key, place) in &places {
            let other = places.get(&(key.0, !key.1));
            // A use that has no result yet is how a model that was paused goes on.
            let goes_on = !key.1 && !is_over(place);
            let has_other = other.map_or(goes_on, |other| is_sent(other) || is_known(other));
            if is_stateful && place.0 == from.unwrap_or(0) {
                continue; // the provider knows some of it
            }
            prop_assert_eq!(found.contains(key), is_sent(place) && has_other, "{:?} {}", key, body);
            if is_sent(place) && !has_other {
                let report = context.request_report(&options).unwrap();
                let says = |located: &ash_agent_context_core::Located| {
                    located.iteration == place.0
                        && matches!(located.change.what, ChangeKind::DroppedPart | ChangeKind::MaskedText)
                };
                prop_assert!(report.iter().any(says), "{:?} {:?}", key, report);
            }
        }
        let known: BTreeSet<_> = places.keys().copied().collect();
        prop_assert!(found.is_subset(&known), "{:?} of {:?}", found, known);
    }
}

/// The blocks of the model's messages in the request, by their types.
fn types(context: &Context) -> Vec<String> {
    let body = json_sent(context, &Options::new(Provider::Anthropic));
    let messages = body["messages"].as_array().unwrap().iter();
    let said = messages.filter(|message| message["role"] == "assistant");
    let blocks = said.flat_map(|message| message["content"].as_array().unwrap().clone());
    let name = |block: serde_json::Value| {
        let caller = block["caller"]["tool_id"].as_str().unwrap_or_default();
        format!("{} {caller}", block["type"].as_str().unwrap())
    };
    blocks.map(|block| name(block).trim().to_owned()).collect()
}

/// A program of the model calls tools of the application one after the other: it waits for each of them, and is
/// over when the user speaks.
#[test]
fn a_program_goes_on_until_the_user_speaks() {
    let call = |id: &str| {
        value(&format!(
            r#"[{{"id":"{id}","name":"get","provider_metadata":{{"provider":"anthropic",
                "caller":{{"type":"code_execution_20250825","tool_id":"u1"}}}}}}]"#
        ))
    };
    let answered = |context: &Context, id: &str| context.answers(&[(id, Value::text("x"))]);
    let half = |is_result| Half {
        pair: 1,
        is_result,
        is_secret: false,
    };
    let block = |is_result| {
        let block = block(Provider::Anthropic, half(is_result));
        value(&format!(r#"[{{"type":"text","text":"So."}},{block}]"#))
    };
    let context = conversation("Go");
    let first = context.add_assistant_message(block(false), call("c1"), stamp());
    let first = answered(&first.unwrap(), "c1");
    let second = first.add_assistant_message(Value::Nil, call("c2"), stamp());
    let second = answered(&second.unwrap(), "c2");
    let goes_on = ["text", "server_tool_use", "tool_use u1", "tool_use u1"];
    assert_eq!(types(&first), goes_on[..3]);
    assert_eq!(types(&second), goes_on);

    let done = second.add_assistant_message(block(true), value("[]"), stamp());
    let done = done.unwrap().add_user_message(Value::text("More"), stamp());
    let ended = ["text", "web_search_tool_result"];
    assert_eq!(types(&done.unwrap()), [&goes_on[..], &ended[..]].concat());

    // The calls are calls of the model's own then.
    let over = second.user("Stop");
    assert_eq!(types(&over), ["text", "tool_use", "tool_use"]);
    let report = over
        .request_report(&Options::new(Provider::Anthropic))
        .unwrap();
    let told: Vec<_> = report.iter().map(|located| located.change.what).collect();
    assert_eq!(told, [ChangeKind::DroppedPart]);
    assert_eq!(types(&over.rewind(2).unwrap()), goes_on);
}
