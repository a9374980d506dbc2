//! A model that checks its thinking gets back all of what still stands behind what it was made on, and nothing else: whatever is
//! hidden, cleared, cut, masked, said otherwise or stored on the way. The service here checks by itself.

use std::collections::HashMap;

use crate::make::{at, import, json_sent, reload, stamp, with};
use ash_agent_context_core::{
    json as text_json, steps, Accounting, AnswerTimes, Context, Map, Masks, Options, Provider,
    Reading, Response, Stamp, Value,
};
use proptest::prelude::*;
use serde_json::{json, Value as Json};

const MODEL: &str = "claude-opus-5-5";

#[derive(Debug, Clone)]
enum Step {
    /// The service answers with so many calls, which get results of so many words; `true`: the time of the request is noted.
    Ask(Vec<usize>, bool),
    Hide(u64),
    Summarize(u64),
    Expand,
    Clear(usize),
    Shorten(bool),
    Mask(bool),
    Block(u8),
    System(u8),
    Tools(u8),
    Since(bool),
    Most(bool),
    Cache(bool),
    Store,
}

fn step() -> impl Strategy<Value = Step> {
    let results = prop::collection::vec(0..40_usize, 0..3);
    prop_oneof![
        12 => (results, any::<bool>()).prop_map(|(results, timed)| Step::Ask(results, timed)),
        1 => (1..5_u64).prop_map(Step::Hide),
        1 => (1..4_u64).prop_map(Step::Summarize),
        1 => Just(Step::Expand),
        1 => (0..4_usize).prop_map(Step::Clear),
        1 => any::<bool>().prop_map(Step::Shorten),
        1 => any::<bool>().prop_map(Step::Mask),
        1 => (0..3_u8).prop_map(Step::Block),
        1 => (0..2_u8).prop_map(Step::System),
        1 => (0..2_u8).prop_map(Step::Tools),
        1 => any::<bool>().prop_map(Step::Since),
        1 => any::<bool>().prop_map(Step::Most),
        1 => any::<bool>().prop_map(Step::Cache),
        2 => Just(Step::Store),
    ]
}

/// The service, which remembers what each block of thinking was made on.
struct Service {
    provider: Provider,
    made_on: HashMap<String, Vec<Json>>,
    tools: u8,
    /// Whether the view has masks, and the answers that were made while it was otherwise.
    masked: bool,
    made_masked: HashMap<String, bool>,
}

/// A block without its cache mark, and a text as a block.
fn blocks(content: &Json) -> Vec<Json> {
    match content {
        Json::String(text) => vec![json!({"type": "text", "text": text})],
        Json::Array(blocks) => {
            let kept = blocks
                .iter()
                .filter(|block| block.get("cachePoint").is_none());
            let bare = kept.map(|block| {
                let mut block = block.clone();
                if let Some(fields) = block.as_object_mut() {
                    fields.remove("cache_control");
                    for content in ["content", "toolResult"] {
                        if fields.get(content).is_some_and(Json::is_array) {
                            let inner = blocks_of(&fields[content]);
                            fields.insert(content.to_owned(), inner);
                        }
                    }
                }
                block
            });
            bare.collect()
        }
        _ => Vec::new(),
    }
}

fn blocks_of(content: &Json) -> Json {
    Json::Array(blocks(content))
}

fn signature(block: &Json) -> Option<&str> {
    let thinking = (block["type"] == "thinking").then(|| block["signature"].as_str());
    let reasoning = || block["reasoningContent"]["reasoningText"]["signature"].as_str();
    thinking.flatten().or_else(reasoning)
}

impl Service {
    fn new(provider: Provider) -> Self {
        Self {
            provider,
            made_on: HashMap::new(),
            tools: 0,
            masked: false,
            made_masked: HashMap::new(),
        }
    }

    /// All of a request in one list, each block with its role.
    fn flatten(&self, body: &Json) -> Vec<Json> {
        let system = blocks(&body["system"]).into_iter();
        let system = system.map(|block| json!(["system", block]));
        let mut all: Vec<Json> = std::iter::once(json!(["tools", self.tools]))
            .chain(system)
            .collect();
        for message in body["messages"].as_array().unwrap() {
            let of = blocks(&message["content"]).into_iter();
            all.extend(of.map(|block| json!([message["role"], block])));
        }
        all
    }

    /// Checks a request, and returns all of it.
    fn check(&self, context: &Context, options: &Options<'_>) -> Result<Vec<Json>, TestCaseError> {
        let all = self.flatten(&json_sent(context, options));
        let mut sent = 0;
        for (index, one) in all.iter().enumerate() {
            if let Some(signature) = signature(&one[1]) {
                sent += 1;
                prop_assert_eq!(&self.made_on[signature], &all[..index].to_vec());
            }
        }
        // What is left out would be refused: nothing that was made on the beginning of this request is missing.
        for (signature_of, before) in &self.made_on {
            let stands = all
                .get(..before.len())
                .is_some_and(|begin| begin == before.as_slice());
            let answer = format!("answer {signature_of}");
            let follows = all
                .get(before.len())
                .is_some_and(|next| next.to_string().contains(&answer));
            // What other masks met is not known later.
            let was_masked = self.made_masked[signature_of];
            let is_alike = was_masked == self.masked || !was_masked;
            prop_assert!(
                !(stands && follows && is_alike),
                "{signature_of} is missing"
            );
        }
        let report = context.request_report(options).unwrap();
        let dropped = report
            .iter()
            .filter(|one| one.change.what.name() == "dropped_thinking")
            .count();
        let shown = self.made_on.keys().filter(|of| {
            all.iter()
                .any(|one| one.to_string().contains(&format!("answer {of}")))
        });
        prop_assert_eq!(dropped, shown.count() - sent);
        Ok(all)
    }

    fn answer(&mut self, calls: usize, before: Vec<Json>) -> Json {
        let signature = format!("sig{}x", self.made_on.len());
        self.made_on.insert(signature.clone(), before);
        self.made_masked.insert(signature.clone(), self.masked);
        let text = format!("answer {signature}");
        let ids = (0..calls).map(|index| format!("{signature}{index}"));
        if self.provider == Provider::Anthropic {
            let mut content = vec![
                json!({"type": "thinking", "thinking": "Hm.", "signature": signature}),
                json!({"type": "text", "text": text}),
            ];
            content.extend(
                ids.map(|id| json!({"type": "tool_use", "id": id, "name": "look", "input": {}})),
            );
            return json!({"id": "m", "type": "message", "role": "assistant", "model": MODEL, "content": content,
                "stop_reason": if calls > 0 { "tool_use" } else { "end_turn" },
                "usage": {"input_tokens": 10, "output_tokens": 10}});
        }
        let mut content = vec![
            json!({"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": signature}}}),
            json!({"text": text}),
        ];
        content.extend(
            ids.map(|id| json!({"toolUse": {"toolUseId": id, "name": "look", "input": {}}})),
        );
        json!({"output": {"message": {"role": "assistant", "content": content}},
            "stopReason": if calls > 0 { "tool_use" } else { "end_turn" },
            "usage": {"inputTokens": 10, "outputTokens": 10, "totalTokens": 20}})
    }
}

fn read(text: &str) -> Value {
    text_json::read(text.as_bytes(), 64).unwrap()
}

/// The request as a run notes it, with the options that it has.
fn note(context: &Context, service: &Service, options: &Options<'_>) -> Context {
    let mut request = serde_json::Map::new();
    request.extend(options.from.map(|from| ("since".to_owned(), json!(from))));
    request.extend(
        options
            .max_result_bytes
            .map(|most| ("max_result_bytes".to_owned(), json!(most))),
    );
    let provider = service.provider.name();
    let fields = json!({"provider": provider, "model": MODEL, "request": request});
    let tools = json!([{"name": "look", "description": service.tools}]);
    let noted = context
        .note_request(read(&fields.to_string()), read(&tools.to_string()))
        .unwrap();
    noted.note_sent(options).unwrap()
}

fn ask(
    context: &Context,
    service: &mut Service,
    options: &Options<'_>,
    results: &[usize],
    timed: bool,
) -> Result<Context, TestCaseError> {
    let noted = note(context, service, options);
    let before = service.check(&noted, options)?;
    answered(&noted, service, before, results, timed)
}

fn answered(
    noted: &Context,
    service: &mut Service,
    before: Vec<Json>,
    results: &[usize],
    timed: bool,
) -> Result<Context, TestCaseError> {
    let answer = service.answer(results.len(), before);
    let reading = Reading {
        model: Some(MODEL),
        ..Reading::of(service.provider)
    };
    let response = Response::decode(answer.to_string().as_bytes(), &reading).unwrap();
    let times = AnswerTimes {
        requested_at: timed.then(|| at(1)),
        first_chunk_at: None,
    };
    let next = noted
        .add_answer(&response, times, Stamp::at(at(2)))
        .unwrap();
    if results.is_empty() {
        return Ok(next.add_user_message(Value::text("And?"), stamp()).unwrap());
    }
    let last = service.made_on.len() - 1;
    let given = results.iter().enumerate().map(|(index, words)| {
        let id = format!("sig{last}x{index}");
        let result = Value::Tuple(
            [
                Value::atom("ok"),
                Value::text(&"secret word ".repeat(*words)),
            ]
            .into(),
        );
        Value::Tuple([Value::text(&id), result].into())
    });
    let given = Value::List(given.collect());
    Ok(next.add_tool_results(given, stamp()).unwrap())
}

fn show(context: &Context, step: &Step) -> Context {
    let at = stamp().at;
    let mask = ("secret".into(), "[masked]".into());
    match step {
        Step::Hide(keep) => context.keep_last_iterations(*keep, at),
        Step::Summarize(to) => {
            let summarized = context.summarize(1, *to, "So far.", at);
            summarized.unwrap_or_else(|_| context.clone())
        }
        Step::Expand => context.expand(1, u64::MAX, at),
        Step::Clear(keep) => context.clear_tool_results(*keep, "-", at),
        Step::Shorten(is_short) => context.put_max_result_bytes(is_short.then_some(90), at),
        Step::Mask(true) => context.put_masks(Masks::new(vec![mask]).unwrap(), at),
        Step::Mask(false) => context.put_masks(Masks::new(vec![]).unwrap(), at),
        Step::Block(text) => {
            let text = (*text > 0).then(|| text.to_string());
            context.put_prompt_block("b", text.as_deref(), at)
        }
        Step::System(text) => context
            .put_system_prompt(Value::text(&format!("S{text}")), at)
            .unwrap(),
        Step::Store => reload(context),
        _ => context.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn thinking_goes_back_where_it_was_made(
        provider in prop::sample::select(vec![Provider::Anthropic, Provider::Bedrock]),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut service = Service::new(provider);
        let mut context = Context::new("c", Value::text("?"), Value::text("S0"), stamp()).unwrap();
        let mut options = with(provider, |options| options.model = Some(MODEL));
        for step in steps {
            match &step {
                Step::Ask(results, timed) => context = ask(&context, &mut service, &options, results, *timed)?,
                Step::Tools(tools) => service.tools = *tools,
                Step::Since(true) => options.from = Some(context.current_iteration().div_ceil(2)),
                Step::Since(false) => options.from = None,
                Step::Most(is_short) => options.max_result_bytes = is_short.then_some(90),
                Step::Cache(marks) => options.cache = *marks,
                step => {
                    context = show(&context, step);
                    if let Step::Mask(is_masked) = step {
                        service.masked = *is_masked;
                    }
                }
            }
        }
        let noted = note(&context, &service, &options);
        service.check(&noted, &options)?;
    }
}

/// An imported conversation of two answers with thinking by a model; the first made a call.
fn imported(provider: Provider) -> Context {
    let thinks = |signature: &str| match provider {
        Provider::Anthropic => {
            json!({"type": "thinking", "thinking": "Hm.", "signature": signature})
        }
        _ => {
            json!({"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": signature}}})
        }
    };
    let (text, call, result) = match provider {
        Provider::Anthropic => (
            json!([{"type": "text", "text": "Yes"}]),
            json!({"type": "tool_use", "id": "a", "name": "look", "input": {}}),
            json!([{"type": "tool_result", "tool_use_id": "a", "content": "Found it."}]),
        ),
        _ => (
            json!([{"text": "Yes"}]),
            json!({"toolUse": {"toolUseId": "a", "name": "look", "input": {}}}),
            json!([{"toolResult": {"toolUseId": "a", "content": [{"text": "Found it."}]}}]),
        ),
    };
    let body = json!({
        "system": match provider { Provider::Anthropic => json!([{"type": "text", "text": "S"}]), _ => json!([{"text": "S"}]) },
        "messages": [
            {"role": "user", "content": text},
            {"role": "assistant", "content": [thinks("one"), call]},
            {"role": "user", "content": result},
            {"role": "assistant", "content": [thinks("two"), text[0]]},
            {"role": "user", "content": text},
        ],
    });
    import(&body.to_string(), provider)
}

/// The signatures that are sent to a model.
fn sent_to(context: &Context, provider: Provider, model: &str) -> Vec<&'static str> {
    let options = with(provider, |options| options.model = Some(model));
    let body = json_sent(context, &options).to_string();
    let sent = ["one", "two"].into_iter();
    sent.filter(|one| body.contains(&format!("\"{one}\"")))
        .collect()
}

/// Models, and whether they check.
const MODELS: [(&str, bool); 18] = [
    ("claude-opus-5-5", true),
    ("claude-sonnet-5-5-20261101", true),
    ("claude-haiku-6", true),
    ("claude-fable-5-1", true),
    ("claude-mythos-5.1", true),
    ("us.anthropic.claude-opus-5-5-v1:0", true),
    ("claude-opus-5-5@20261101", true),
    ("claude-saga-1", true),
    (
        "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/a1b2",
        true,
    ),
    ("us.amazon.nova-premier-v1:0", false),
    ("claude-opus-5", false),
    ("claude-opus-4-8", false),
    ("claude-sonnet-5-20260601", false),
    ("claude-fable-5", false),
    ("claude-3-5-sonnet-20241022", false),
    ("anthropic.claude-v2:1", false),
    ("claude-instant-1.2", false),
    ("deepseek-v4", false),
];

#[test]
fn only_models_that_check_lose_thinking_and_only_behind_the_change() {
    let at = stamp().at;
    for provider in [Provider::Anthropic, Provider::Bedrock] {
        let context = imported(provider);
        let other = context.put_system_prompt(Value::text("Other"), at).unwrap();
        let cleared = context.clear_tool_results(0, "-", at);
        for (model, checks) in MODELS {
            let all = vec!["one", "two"];
            let left = |kept: &[&'static str]| if checks { kept.to_vec() } else { all.clone() };
            for (context, kept) in [(&context, &all[..]), (&other, &[]), (&cleared, &all[..1])] {
                for context in [context.clone(), reload(context)] {
                    assert_eq!(sent_to(&context, provider, model), left(kept), "{model}");
                }
            }
            let masked = |hidden: &str| {
                let masks = Masks::new(vec![(hidden.into(), "-".into())]).unwrap();
                sent_to(&context.put_masks(masks, at), provider, model)
            };
            assert_eq!(masked("never there"), all, "{model}");
            assert_eq!(masked("Found"), left(&all[..1]), "{model}");
        }
    }
}

#[test]
fn a_forecast_says_what_a_change_costs_in_thinking() {
    let mut service = Service::new(Provider::Anthropic);
    let options = with(Provider::Anthropic, |options| options.model = Some(MODEL));
    let mut context = Context::new("c", Value::text("?"), Value::text("S"), stamp()).unwrap();
    for _ in 0..3 {
        context = ask(&context, &mut service, &options, &[3], true).unwrap();
    }
    let lost = |context: &Context| {
        let forecast = context
            .forecast(&options, &Accounting::default(), at(3))
            .unwrap();
        forecast.dropped_thinking
    };
    let other = context
        .put_system_prompt(Value::text("Other"), at(3))
        .unwrap();
    let one = lost(&other) / 3;
    assert!(one > 0);
    let cleared = context.clear_tool_results(1, "-", at(3));
    assert_eq!(
        [lost(&context), lost(&cleared), lost(&other)],
        [0, 2 * one, 3 * one]
    );
    // What is lost already costs nothing again.
    let later = ask(&cleared, &mut service, &options, &[3], true).unwrap();
    assert_eq!(lost(&later), 0);
}

/// A view that cleared older results before each answer is compared with each of them in the same time, however many there are.
#[test]
fn many_views_take_linear_time() {
    let options = with(Provider::Anthropic, |options| options.model = Some(MODEL));
    let steps = |answers: usize| {
        let mut service = Service::new(Provider::Anthropic);
        let mut context = Context::new("c", Value::text("?"), Value::text("S"), stamp()).unwrap();
        for _ in 0..answers {
            context = answered(&context, &mut service, Vec::new(), &[3], true).unwrap();
            context = context.clear_tool_results(2, "-", stamp().at);
        }
        steps::count_steps(|| assert!(context.encode_request(&options, &Map::default()).is_ok()))
    };
    let (few, many) = (steps(40), steps(400));
    assert!(many < 14 * few, "{few} and {many} steps");
}
