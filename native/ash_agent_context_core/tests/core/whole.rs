//! Whatever of an imported history is written anew, because it is masked, hidden, shortened, marked for a cache or sent in
//! part: every call that is shown is sent once, with its result, and so is every text.

use crate::make::{defaults, json_sent, stamp};
use std::collections::BTreeMap;

use ash_agent_context_core::{
    Content, Context, Dialect, Known, Masks, Message, Options, PartKind, Provider, Value,
};
use proptest::prelude::*;
use serde_json::{json, Value as Json};

/// What a mask looks for.
const SECRET: &str = "xyzzy";

#[derive(Debug, Clone)]
enum Piece {
    Text,
    Call,
    /// Something that only its provider knows.
    Odd,
    Secret,
}

#[derive(Debug, Clone)]
enum Step {
    User,
    Model(Vec<Piece>),
    /// Results of so many calls that wait, and whether the user goes on in the same message.
    Results(usize, bool),
    /// A row without a neutral form, where the provider has such.
    Row,
}

#[derive(Debug, Clone)]
struct Look {
    hidden: Vec<(u64, u64)>,
    masks: bool,
    cleared: Option<usize>,
    from: Option<u64>,
    cache: bool,
    most: Option<usize>,
    /// Of a server with OpenAI's form, how it reasons.
    dialect: Option<Dialect>,
    /// Of OpenAI Responses, whether it knows what the model said last in the first iteration that is sent.
    knows: bool,
}

/// The elements of a request's list in the making.
struct Body {
    provider: Provider,
    elements: Vec<Json>,
    waiting: Vec<usize>,
    count: usize,
}

impl Body {
    fn next(&mut self) -> usize {
        self.count += 1;
        self.count
    }

    fn text(&mut self) -> String {
        format!("t{}t", self.next())
    }

    fn user(&mut self) {
        let text = self.text();
        self.elements.push(match self.provider {
            Provider::Gemini => json!({"role": "user", "parts": [{"text": text}]}),
            Provider::Bedrock => json!({"role": "user", "content": [{"text": text}]}),
            _ => json!({"role": "user", "content": text}),
        });
    }

    fn row(&mut self) {
        let number = self.next();
        self.elements.push(match self.provider {
            Provider::OpenAiResponses => json!({"role": "additional_tools", "tools": [{"type": "function", "name": format!("f{number}")}]}),
            Provider::Anthropic => json!({"role": "system", "content": [{"type": "tool_addition", "name": format!("f{number}")}]}),
            Provider::Bedrock => json!({"role": "system", "content": [{"toolAddition": {"name": format!("f{number}")}}]}),
            _ => return self.user(),
        });
    }

    fn model(&mut self, pieces: &[Piece]) {
        let (mut texts, mut calls, mut all) = (String::new(), Vec::new(), Vec::new());
        for piece in pieces {
            let number = self.next();
            let (id, name) = (format!("call{number:05}"), "get");
            let text = match piece {
                Piece::Secret => format!("t{number}t {SECRET}"),
                _ => format!("t{number}t"),
            };
            if let Piece::Call = piece {
                self.waiting.push(number);
                calls.push(json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}));
            } else if !matches!(piece, Piece::Odd) {
                texts = format!("{texts} {text}");
            }
            all.push(match (self.provider, piece) {
                (Provider::Anthropic, Piece::Call) => {
                    json!({"type": "tool_use", "id": id, "name": name, "input": {}})
                }
                (Provider::Anthropic, Piece::Odd) => {
                    json!({"type": "container_upload", "file_id": id, "note": SECRET})
                }
                (Provider::Anthropic, _) => json!({"type": "text", "text": text}),
                (Provider::Bedrock, Piece::Call) => {
                    json!({"toolUse": {"toolUseId": id, "name": name, "input": {}}})
                }
                (Provider::Bedrock, Piece::Odd) => json!({"odd": {"id": id}}),
                (Provider::Bedrock, _) => json!({"text": text}),
                (Provider::Gemini, Piece::Call) => {
                    json!({"functionCall": {"id": id, "name": name, "args": {}}})
                }
                (Provider::Gemini, Piece::Odd) => {
                    json!({"executableCode": {"language": "PYTHON", "code": id}})
                }
                (Provider::Gemini, _) => json!({"text": text}),
                (_, Piece::Call) => {
                    json!({"type": "function_call", "call_id": id, "name": name, "arguments": "{}"})
                }
                (_, Piece::Odd) => {
                    json!({"type": "mcp_call", "id": format!("mcp_{number}"), "note": SECRET})
                }
                (_, _) => json!({"role": "assistant", "content": text}),
            });
        }
        match self.provider {
            Provider::Anthropic | Provider::Bedrock => self
                .elements
                .push(json!({"role": "assistant", "content": all})),
            Provider::Gemini => self.elements.push(json!({"role": "model", "parts": all})),
            Provider::OpenAiResponses => self.elements.extend(all),
            _ if calls.is_empty() => self
                .elements
                .push(json!({"role": "assistant", "content": texts, "reasoning_content": "hm"})),
            Provider::Ollama => {
                let calls: Vec<Json> = calls
                    .iter()
                    .map(|call| json!({"id": call["id"], "function": {"name": "get", "arguments": {}}}))
                    .collect();
                self.elements
                    .push(json!({"role": "assistant", "content": texts, "tool_calls": calls}));
            }
            _ => self
                .elements
                .push(json!({"role": "assistant", "content": texts, "tool_calls": calls, "reasoning_content": "hm"})),
        }
    }

    fn results(&mut self, count: usize, goes_on: bool) {
        let count = count.min(self.waiting.len());
        let answered: Vec<usize> = self.waiting.drain(..count).collect();
        let result = |number: &usize| {
            let id = format!("call{number:05}");
            let long = if number.is_multiple_of(3) {
                "long ".repeat(40)
            } else {
                String::new()
            };
            let said = format!("r{number}r {long}");
            match self.provider {
                Provider::Anthropic => {
                    json!({"type": "tool_result", "tool_use_id": id, "content": said})
                }
                Provider::Bedrock => {
                    json!({"toolResult": {"toolUseId": id, "content": [{"text": said}]}})
                }
                Provider::Gemini => {
                    json!({"functionResponse": {"id": id, "name": "get", "response": {"output": said}}})
                }
                Provider::OpenAiResponses => {
                    json!({"type": "function_call_output", "call_id": id, "output": said})
                }
                Provider::Ollama => {
                    json!({"role": "tool", "tool_call_id": id, "tool_name": "get", "content": said})
                }
                _ => json!({"role": "tool", "tool_call_id": id, "content": said}),
            }
        };
        let mut results: Vec<Json> = answered.iter().map(result).collect();
        if results.is_empty() {
            return self.user();
        }
        let text = goes_on.then(|| self.text());
        match (self.provider, text) {
            (Provider::Anthropic, text) => {
                results.extend(text.map(|text| json!({"type": "text", "text": text})));
                self.elements
                    .push(json!({"role": "user", "content": results}));
            }
            (Provider::Bedrock, text) => {
                results.extend(text.map(|text| json!({"text": text})));
                self.elements
                    .push(json!({"role": "user", "content": results}));
            }
            (Provider::Gemini, text) => {
                results.extend(text.map(|text| json!({"text": text})));
                self.elements
                    .push(json!({"role": "user", "parts": results}));
            }
            _ => {
                self.elements.extend(results);
                if goes_on {
                    self.user();
                }
            }
        }
    }
}

fn build(provider: Provider, steps: &[Step], swaps: &[(usize, usize)]) -> Context {
    let mut body = Body {
        provider,
        elements: Vec::new(),
        waiting: Vec::new(),
        count: 0,
    };
    for step in steps {
        match step {
            Step::User => body.user(),
            Step::Row => body.row(),
            Step::Model(pieces) => body.model(pieces),
            Step::Results(count, goes_on) => body.results(*count, *goes_on),
        }
    }
    let mut elements = body.elements;
    for (from, to) in swaps {
        let len = elements.len();
        elements.swap(from % len, to % len);
    }
    let key = match provider {
        Provider::Gemini => "contents",
        Provider::OpenAiResponses => "input",
        _ => "messages",
    };
    let body = json!({key: elements}).to_string();
    let imported = Context::from_request(Value::text(&body), provider, defaults()).unwrap();
    imported.context.interrupt(&Value::text("stop"), stamp())
}

fn seen(context: &Context, look: &Look) -> Context {
    let mut context = context.clone();
    for (first, last) in &look.hidden {
        context = context.drop_range(*first, *last, stamp().at);
    }
    if look.masks {
        let masks = Masks::new([(SECRET.into(), "***".into())]).unwrap();
        context = context.put_masks(masks, stamp().at);
    }
    match look.cleared {
        Some(keep) => context.clear_tool_results(keep, "gone", stamp().at),
        None => context,
    }
}

/// How often each thing is in what is shown, or sent.
type Counts = BTreeMap<String, usize>;

fn count_tokens(text: &str, counts: &mut Counts) {
    for token in text.split(|letter: char| !letter.is_ascii_alphanumeric()) {
        let digits = token
            .strip_prefix('t')
            .and_then(|rest| rest.strip_suffix('t'));
        if digits.is_some_and(|digits| {
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        }) {
            *counts.entry(token.to_owned()).or_default() += 1;
        }
    }
}

fn shown(context: &Context, from: u64) -> Counts {
    let mut counts = Counts::new();
    let mut add = |name: String| *counts.entry(name).or_default() += 1;
    let mut texts = String::new();
    let mut said = |message: &Message| {
        let words = |bytes: &[u8]| format!(" {}", String::from_utf8_lossy(bytes));
        match &message.content {
            Content::None => {}
            Content::Text(text) => texts.push_str(&words(text)),
            Content::Parts(parts) => {
                for part in &**parts {
                    if let PartKind::Text(text) = &part.kind {
                        texts.push_str(&words(text));
                    }
                }
            }
        }
    };
    for iteration in context.iterations() {
        if iteration.number < from || context.cover(iteration.number).is_some() {
            continue;
        }
        for entry in iteration.entries() {
            said(&entry.message);
        }
        for (call, outcome) in iteration.calls() {
            add(format!("call {}", call.id));
            if outcome.is_some() {
                add(format!("result {}", call.id));
            }
        }
    }
    count_tokens(&texts, &mut counts);
    counts
}

fn sent(provider: Provider, body: &Json) -> Counts {
    let (call, result): (&[&str], &str) = match provider {
        Provider::Anthropic => (&["/id"], "/tool_use_id"),
        Provider::Bedrock => (&["/toolUse/toolUseId"], "/toolResult/toolUseId"),
        Provider::Gemini => (&["/functionCall/id"], "/functionResponse/id"),
        Provider::OpenAiResponses => (&["/call_id"], "/call_id"),
        _ => (&["/id"], "/tool_call_id"),
    };
    let mut counts = Counts::new();
    let mut waiting = vec![body];
    while let Some(value) = waiting.pop() {
        let id = |path: &str| value.pointer(path).and_then(Json::as_str);
        let is_output = value["type"] == "function_call_output";
        let is_items = provider == Provider::OpenAiResponses;
        if let Some(id) =
            id(call[0]).filter(|id| id.starts_with("call") && !(is_items && is_output))
        {
            *counts.entry(format!("call {id}")).or_default() += 1;
        }
        if let Some(id) = id(result).filter(|_| !is_items || is_output) {
            *counts.entry(format!("result {id}")).or_default() += 1;
        }
        match value {
            Json::Array(items) => waiting.extend(items),
            Json::Object(fields) => waiting.extend(fields.values()),
            Json::String(text) => count_tokens(text, &mut counts),
            _ => {}
        }
    }
    counts
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        2 => Just(Piece::Text),
        3 => Just(Piece::Call),
        1 => Just(Piece::Odd),
        1 => Just(Piece::Secret),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::User),
        4 => proptest::collection::vec(piece(), 1..4).prop_map(Step::Model),
        4 => (1..3usize, any::<bool>()).prop_map(|(count, goes_on)| Step::Results(count, goes_on)),
        2 => Just(Step::Row),
    ]
}

fn look() -> impl Strategy<Value = Look> {
    let hidden = (1..6u64, 0..3u64).prop_map(|(first, more)| (first, first + more));
    (
        proptest::collection::vec(hidden, 0..3),
        any::<bool>(),
        proptest::option::of(0..4usize),
        proptest::option::of(1..6u64),
        any::<bool>(),
        proptest::option::of(60..90usize),
        proptest::option::of(proptest::sample::select(
            &[Dialect::OpenAi, Dialect::DeepSeek][..],
        )),
        any::<bool>(),
    )
        .prop_map(
            |(hidden, masks, cleared, from, cache, most, dialect, knows)| Look {
                hidden,
                masks,
                cleared,
                from,
                cache,
                most,
                dialect,
                knows,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_call_is_sent_once_with_its_result(
        provider in proptest::sample::select(&Provider::ALL[..]),
        steps in proptest::collection::vec(step(), 1..14),
        swaps in proptest::collection::vec((0..20usize, 0..20usize), 0..3),
        looks in proptest::collection::vec(look(), 1..4),
        other in proptest::sample::select(&Provider::ALL[..]),
    ) {
        let context = build(provider, &steps, &swaps);
        // What is encoded for one look is there for the next one.
        for look in looks {
            let context = seen(&context, &look);
            let from = look.from.map(|from| from.min(context.current_iteration()));
            for provider in [provider, other] {
                let knows = look.knows && provider == Provider::OpenAiResponses && from.is_some();
                let options = Options {
                    from,
                    cache: look.cache,
                    max_result_bytes: look.most,
                    dialect: look.dialect.filter(|_| provider == Provider::OpenAiChat),
                    known: if knows { Known::Response("resp_1") } else { Known::Nothing },
                    ..Options::new(provider)
                };
                let body = json_sent(&context, &options);
                let (mut wanted, mut sent) = (shown(&context, from.unwrap_or(0)), sent(provider, &body));
                if let Some(from) = from.filter(|_| knows) {
                    // Some of its first iteration is known.
                    let later = shown(&context, from + 1);
                    wanted.clone_from(&later);
                    sent.retain(|name, _| later.contains_key(name));
                }
                prop_assert_eq!(sent, wanted, "{:?} {:?} {}", provider, look, body);
                if !knows {
                    // What is sent is read without repairs, and sent again as it is.
                    let imported = Context::from_request(Value::text(&body.to_string()), provider, defaults()).unwrap();
                    prop_assert!(imported.repairs.is_empty(), "{:?} {}", imported.repairs, body);
                    let options = Options::new(provider);
                    let again = json_sent(&imported.context, &options);
                    prop_assert_eq!(again, body, "{:?} {:?}", provider, look);
                }
            }
        }
    }
}

#[test]
fn a_row_goes_behind_one_message_of_the_user_and_no_answer() {
    let steps = [
        Step::Row,
        Step::Model(vec![Piece::Odd]),
        Step::User,
        Step::Model(vec![Piece::Text]),
        Step::User,
    ];
    let imported = build(Provider::Anthropic, &steps, &[]);
    let masks = Masks::new([(SECRET.into(), "***".into())]).unwrap();
    // Nothing is left of the answer between the row and the user, whose iteration is complete.
    let context = imported.drop_range(3, 3, stamp().at);
    let context = context.put_masks(masks, stamp().at);
    let body = json_sent(&context, &Options::new(Provider::Anthropic));
    let messages = body["messages"].as_array().unwrap().iter();
    let roles: Vec<&Json> = messages.map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "user", "system", "assistant"]);
}

/// A request that is imported and made again, with a look.
fn again(body: &str, look: impl Fn(Context) -> Context, options: &Options<'_>) -> Vec<String> {
    let imported = Context::from_request(Value::text(body), options.provider, defaults()).unwrap();
    assert!(imported.repairs.is_empty());
    let context = look(imported.context);
    let body = json_sent(&context, options);
    let items = body["input"].as_array().unwrap().iter();
    let name = |item: &Json| {
        ["type", "role"]
            .iter()
            .find_map(|key| item[*key].as_str().map(str::to_owned))
    };
    items.filter_map(name).collect()
}

#[test]
fn a_call_after_a_row_without_a_neutral_form_is_sent() {
    let body = r#"{"input":[{"role":"user","content":"Hi"},
        {"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"get"}]},
        {"type":"function_call","call_id":"call_1","name":"get","arguments":"{}"},
        {"type":"function_call_output","call_id":"call_1","output":"fine"}]}"#;
    let items = [
        "user",
        "additional_tools",
        "function_call",
        "function_call_output",
    ];
    let plain = Options::new(Provider::OpenAiResponses);
    let masks = || Masks::new([(SECRET.into(), "***".into())]).unwrap();
    let masked = |context: Context| context.put_masks(masks(), stamp().at);
    assert_eq!(again(body, |context| context, &plain), items);
    assert_eq!(again(body, masked, &plain), items);
    let cached = Options {
        cache: true,
        ..plain
    };
    assert_eq!(again(body, |context| context, &cached), items);
    let since = Options {
        from: Some(1),
        ..plain
    };
    assert_eq!(again(body, masked, &since), items);
}
