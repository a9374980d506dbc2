//! The note of a request is the same whether its beginning was noted before or not: whatever was appended, shown otherwise, cut or
//! put into another conversation on the way.

use crate::make::{defaults, reload, stamp, value as read};
use ash_agent_context_core::{
    Context, Dialect, Known, Map, Masks, Options, Pin, Provider, Thinking, Value,
};
use proptest::prelude::*;

/// What the user's element of an imported conversation also holds.
const IMPORTED: [(Provider, &str); 4] = [
    (
        Provider::Anthropic,
        r#"{"system":"S","messages":[{"role":"user","content":"q"},
        {"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"R"},{"type":"text","text":"more"}]},
        {"role":"assistant","content":"answer"},{"role":"user","content":"and"}]}"#,
    ),
    (
        Provider::Bedrock,
        r#"{"messages":[{"role":"user","content":[{"text":"q"}]},
        {"role":"assistant","content":[{"toolUse":{"toolUseId":"a","name":"f","input":{}}}]},
        {"role":"user","content":[{"toolResult":{"toolUseId":"a","content":[{"text":"R"}]}},{"text":"more"}]}]}"#,
    ),
    (
        Provider::Gemini,
        r#"{"contents":[{"role":"user","parts":[{"text":"q"}]},
        {"role":"model","parts":[{"functionCall":{"name":"f","args":{}}}]},
        {"role":"user","parts":[{"functionResponse":{"name":"f","response":{"output":"R"}}},{"text":"more"}]}]}"#,
    ),
    (
        Provider::Mistral,
        r#"{"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"Yes, and","prefix":true}]}"#,
    ),
];

/// Both halves of what a provider answered itself, which may come in two messages.
const HALVES: [&str; 2] = [
    r#"{"type":"provider_block","provider":"anthropic","data":{"type":"server_tool_use","id":"u","name":"web_search","input":{}}}"#,
    r#"{"type":"provider_block","provider":"anthropic","data":{"type":"web_search_tool_result","tool_use_id":"u","content":[]}}"#,
];

#[derive(Debug, Clone)]
enum Step {
    /// A call for each result of so many words, and the results.
    Work(Vec<usize>),
    Answer,
    Half(bool),
    Say,
    /// An answer that broke off.
    Interrupt,
    Block(u8),
    System(u8),
    Mask(bool),
    Pin(u64),
    Recall(bool),
    Clear(usize),
    Hide(u64),
    Summarize(u64),
    Expand,
    Shorten(bool),
    Rewind(u64),
    Fork,
    Store,
    /// Goes on with another branch.
    Switch(usize),
    Encode,
    /// Notes the request, under other options.
    Note(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let small = 0..3_u8;
    prop_oneof![
        8 => prop::collection::vec(0..40_usize, 1..4).prop_map(Step::Work),
        4 => Just(Step::Answer),
        4 => Just(Step::Say),
        1 => any::<bool>().prop_map(Step::Half),
        1 => Just(Step::Interrupt),
        1 => small.clone().prop_map(Step::Block),
        1 => small.prop_map(Step::System),
        1 => any::<bool>().prop_map(Step::Mask),
        1 => (1..4_u64).prop_map(Step::Pin),
        1 => any::<bool>().prop_map(Step::Recall),
        1 => (0..4_usize).prop_map(Step::Clear),
        1 => (1..5_u64).prop_map(Step::Hide),
        1 => (1..5_u64).prop_map(Step::Summarize),
        1 => Just(Step::Expand),
        1 => any::<bool>().prop_map(Step::Shorten),
        1 => (0..4_u64).prop_map(Step::Rewind),
        1 => Just(Step::Fork),
        1 => Just(Step::Store),
        1 => any::<usize>().prop_map(Step::Switch),
        4 => Just(Step::Encode),
        12 => prop_oneof![9 => Just(0), 1 => 1..9_u8].prop_map(Step::Note),
    ]
}

fn options(provider: Provider, variant: u8, context: &Context) -> Options<'static> {
    let mut options = Options::new(provider);
    match variant {
        1 => options.cache = true,
        2 => options.model = Some("other"),
        3 => options.max_result_bytes = Some(30),
        4 => options.from = Some(context.current_iteration().div_ceil(2)),
        5 => options.thinking = Thinking::Text,
        6 => options.dialect = Some(Dialect::DeepSeek),
        7 => options.known = Known::Response("r"),
        8 => options.known = Known::Conversation("c"),
        _ => {}
    }
    options
}

fn work(context: &Context, results: &[usize]) -> Context {
    let ids = (0..results.len()).map(|index| format!("{}-{index}", context.current_iteration()));
    let ids: Vec<String> = ids.collect();
    let calls = ids
        .iter()
        .map(|id| read(&format!(r#"{{"id": "{id}", "name": "look"}}"#)));
    let calls = Value::List(calls.collect());
    let asked = context.add_assistant_message(Value::text("I look."), calls, stamp());
    let given = ids.iter().zip(results).map(|(id, words)| {
        let text = Value::text(&"secret word ".repeat(*words));
        let result = Value::Tuple([Value::atom("ok"), text].into());
        Value::Tuple([Value::text(id), result].into())
    });
    let given = Value::List(given.collect());
    asked.unwrap().add_tool_results(given, stamp()).unwrap()
}

/// What the steps make of a conversation, or nothing where they do not fit it.
fn change(context: &Context, step: &Step) -> Option<Context> {
    let at = stamp().at;
    let say = |content: Value| context.add_assistant_message(content, Value::Nil, stamp());
    let last = context.current_iteration();
    match step {
        Step::Work(results) => Some(work(context, results)),
        Step::Answer => say(Value::text("A secret answer.")).ok(),
        Step::Half(is_result) => {
            say(Value::List([read(HALVES[usize::from(*is_result)])].into())).ok()
        }
        Step::Say => context
            .add_user_message(Value::text("Go on."), stamp())
            .ok(),
        Step::Interrupt => {
            let calls = Value::List([read(r#"{"id": "broken", "name": "look"}"#)].into());
            let asked = context.add_assistant_message(Value::text("I"), calls, stamp());
            Some(asked.ok()?.interrupt(&Value::text("broken off"), stamp()))
        }
        Step::Block(text) => {
            let text = (*text > 0).then(|| text.to_string());
            Some(context.put_prompt_block("b", text.as_deref(), at))
        }
        Step::System(text) => {
            let prompt = match text {
                0 => Value::Nil,
                text => Value::text(&text.to_string()),
            };
            context.put_system_prompt(prompt, at).ok()
        }
        Step::Mask(is_masked) => {
            let mask = ("secret".into(), "[masked]".into());
            let masks = is_masked.then_some(mask).into_iter().collect::<Vec<_>>();
            Some(context.put_masks(Masks::new(masks).unwrap(), at))
        }
        Step::Pin(number) => context.pin(Pin::Iteration((*number).min(last)), at).ok(),
        Step::Recall(is_on) => Some(context.put_recall(*is_on, at)),
        Step::Clear(keep) => Some(context.clear_tool_results(*keep, "-", at)),
        Step::Hide(keep) => Some(context.keep_last_iterations(*keep, at)),
        Step::Summarize(to) => context.summarize(1, *to, "So far.", at).ok(),
        Step::Expand => Some(context.expand(1, u64::MAX, at)),
        Step::Shorten(is_short) => Some(context.put_max_result_bytes(is_short.then_some(20), at)),
        Step::Rewind(back) => {
            let to = last.saturating_sub(*back).max(1);
            context.rewind(i64::try_from(to).unwrap()).ok()
        }
        Step::Fork => Some(context.fork("f", at)),
        Step::Store => Some(reload(context)),
        Step::Switch(_) | Step::Encode | Step::Note(_) => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_note_is_that_of_the_whole_request(
        provider in prop::sample::select(Provider::ALL.to_vec()),
        imported in prop::option::weighted(0.3, 0..IMPORTED.len()),
        cache in any::<bool>(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let (provider, first) = match imported.map(|index| IMPORTED[index]) {
            Some((provider, body)) => {
                let imported = Context::from_request(Value::text(body), provider, defaults());
                (provider, imported.unwrap().context)
            }
            None => (provider, Context::new("c", Value::text("?"), Value::text("S"), stamp()).unwrap()),
        };
        let mut branches = vec![first];
        for step in steps {
            let context = branches[branches.len() - 1].clone();
            let next = match &step {
                Step::Switch(branch) => Some(branches.remove(branch % branches.len())),
                Step::Encode => {
                    let mut options = options(provider, 0, &context);
                    options.cache = cache;
                    let _ = context.encode_request(&options, &Map::default());
                    None
                }
                Step::Note(variant) => {
                    let mut options = options(provider, *variant, &context);
                    options.cache ^= cache;
                    let fresh = reload(&context);
                    let expected = fresh.note_sent(&options).unwrap();
                    let noted = context.note_sent(&options).unwrap();
                    let [noted_text, expected] = [&noted, &expected].map(|context| {
                        String::from_utf8_lossy(&context.to_snapshot()).into_owned()
                    });
                    prop_assert_eq!(noted_text, expected);
                    Some(noted)
                }
                step => change(&context, step),
            };
            branches.extend(next);
            if branches.len() > 4 {
                branches.remove(0);
            }
        }
    }
}
