//! Requests: their exact bytes, and that these stay as they are while a conversation grows and forks.

use crate::make::{self, conversation, defaults, reload, sent, sent_with, stamp, value, with};
use std::collections::{BTreeMap, HashMap, HashSet};

use ash_agent_context_core::{
    steps, time, ChangeKind, Context, Defaults, Error, Fields, Map, Options, Provider, Segment,
    SystemRole, Thinking, Value,
};
use proptest::prelude::*;

fn start(input: &str) -> Context {
    Context::new("c", value(input), Value::Nil, stamp()).unwrap()
}

fn user(context: &Context, input: &str) -> Context {
    context.add_user_message(value(input), stamp()).unwrap()
}

fn assistant(context: &Context, content: &str, calls: &str) -> Context {
    let (content, calls) = (value(content), value(calls));
    context
        .add_assistant_message(content, calls, stamp())
        .unwrap()
}

/// Results from `[[id, status, value], ...]`.
fn results(context: &Context, given: &str) -> Context {
    let Value::List(items) = value(given) else {
        panic!("a list of results")
    };
    let one = |item: Value| {
        let Value::List(parts) = item else {
            panic!("a list of id, status and value")
        };
        let [id, status, value] = <[Value; 3]>::try_from(parts.into_vec()).unwrap();
        let status = Value::atom(status.as_str().unwrap());
        let result = Value::Tuple(Box::new([status, value]));
        Value::Tuple(Box::new([id, result]))
    };
    let given = Value::List(items.into_vec().into_iter().map(one).collect());
    context.add_tool_results(given, stamp()).unwrap()
}

fn bytes(segments: &[Segment<'_>]) -> String {
    String::from_utf8(make::bytes(segments)).unwrap()
}

fn parse(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

fn check(context: &Context, table: &[(Provider, &str)]) {
    for (provider, expected) in table {
        assert_eq!(sent(context, *provider), *expected, "{provider:?}");
        parse(expected);
    }
}

// Exact texts, by the specifications of the providers.

#[test]
fn texts() {
    let context = Context::new("c", Value::text("Hi"), Value::text("Be brief."), stamp()).unwrap();
    let context = user(&assistant(&context, r#""Hello.""#, "[]"), r#""Bye""#);
    let chat = r#"{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."},{"role":"user","content":"Bye"}]}"#;
    check(
        &context,
        &[
            (
                Provider::Anthropic,
                r#"{"system":"Be brief.","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."},{"role":"user","content":"Bye"}]}"#,
            ),
            (Provider::OpenAiChat, chat),
            (
                Provider::OpenAiResponses,
                r#"{"instructions":"Be brief.","input":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Hello."},{"role":"user","content":"Bye"}]}"#,
            ),
            (
                Provider::Gemini,
                r#"{"systemInstruction":{"parts":[{"text":"Be brief."}]},"contents":[{"role":"user","parts":[{"text":"Hi"}]},{"role":"model","parts":[{"text":"Hello."}]},{"role":"user","parts":[{"text":"Bye"}]}]}"#,
            ),
            (
                Provider::Bedrock,
                r#"{"system":[{"text":"Be brief."}],"messages":[{"role":"user","content":[{"text":"Hi"}]},{"role":"assistant","content":[{"text":"Hello."}]},{"role":"user","content":[{"text":"Bye"}]}]}"#,
            ),
            (Provider::Ollama, chat),
            (Provider::Mistral, chat),
        ],
    );
}

const TWO_CALLS: &str =
    r#"[{"id":"call_1","name":"get","arguments":{"a":1}},{"id":"call_2","name":"put"}]"#;

#[test]
fn calls_and_results() {
    let context = assistant(&start(r#""Go""#), r#""I'll check.""#, TWO_CALLS);
    let context = results(
        &context,
        r#"[["call_2","error","boom"],["call_1","ok","sunny"]]"#,
    );
    check(
        &context,
        &[
            (
                Provider::Anthropic,
                r#"{"messages":[{"role":"user","content":"Go"},{"role":"assistant","content":[{"type":"text","text":"I'll check."},{"type":"tool_use","id":"call_1","name":"get","input":{"a":1}},{"type":"tool_use","id":"call_2","name":"put","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"call_1","content":"sunny"},{"type":"tool_result","tool_use_id":"call_2","content":"boom","is_error":true}]}]}"#,
            ),
            (
                Provider::OpenAiChat,
                r#"{"messages":[{"role":"user","content":"Go"},{"role":"assistant","content":"I'll check.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"get","arguments":"{\"a\":1}"}},{"id":"call_2","type":"function","function":{"name":"put","arguments":"{}"}}]},{"role":"tool","tool_call_id":"call_1","content":"sunny"},{"role":"tool","tool_call_id":"call_2","content":"Error: boom"}]}"#,
            ),
            (
                Provider::OpenAiResponses,
                r#"{"input":[{"role":"user","content":"Go"},{"role":"assistant","content":"I'll check."},{"type":"function_call","call_id":"call_1","name":"get","arguments":"{\"a\":1}"},{"type":"function_call","call_id":"call_2","name":"put","arguments":"{}"},{"type":"function_call_output","call_id":"call_1","output":"sunny"},{"type":"function_call_output","call_id":"call_2","output":"Error: boom"}]}"#,
            ),
            (
                Provider::Gemini,
                r#"{"contents":[{"role":"user","parts":[{"text":"Go"}]},{"role":"model","parts":[{"text":"I'll check."},{"functionCall":{"id":"call_1","name":"get","args":{"a":1}},"thoughtSignature":"c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="},{"functionCall":{"id":"call_2","name":"put","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"id":"call_1","name":"get","response":{"output":"sunny"}}},{"functionResponse":{"id":"call_2","name":"put","response":{"error":"boom"}}}]}]}"#,
            ),
            (
                Provider::Bedrock,
                r#"{"messages":[{"role":"user","content":[{"text":"Go"}]},{"role":"assistant","content":[{"text":"I'll check."},{"toolUse":{"toolUseId":"call_1","name":"get","input":{"a":1}}},{"toolUse":{"toolUseId":"call_2","name":"put","input":{}}}]},{"role":"user","content":[{"toolResult":{"toolUseId":"call_1","content":[{"text":"sunny"}]}},{"toolResult":{"toolUseId":"call_2","content":[{"text":"boom"}],"status":"error"}}]}]}"#,
            ),
            (
                Provider::Ollama,
                r#"{"messages":[{"role":"user","content":"Go"},{"role":"assistant","content":"I'll check.","tool_calls":[{"id":"call_1","function":{"name":"get","arguments":{"a":1}}},{"id":"call_2","function":{"name":"put","arguments":{}}}]},{"role":"tool","content":"sunny","tool_name":"get","tool_call_id":"call_1"},{"role":"tool","content":"Error: boom","tool_name":"put","tool_call_id":"call_2"}]}"#,
            ),
            (
                Provider::Mistral,
                r#"{"messages":[{"role":"user","content":"Go"},{"role":"assistant","content":"I'll check.","tool_calls":[{"id":"a00000001","type":"function","function":{"name":"get","arguments":"{\"a\":1}"}},{"id":"a00000002","type":"function","function":{"name":"put","arguments":"{}"}}]},{"role":"tool","tool_call_id":"a00000001","name":"get","content":"sunny"},{"role":"tool","tool_call_id":"a00000002","name":"put","content":"Error: boom"}]}"#,
            ),
        ],
    );
}

#[test]
fn an_image_thinking_and_a_map_as_result() {
    let context = start(
        r#"[{"type":"text","text":"See"},{"type":"image","media_type":"image/png","data":"aGk="}]"#,
    );
    let thinking = r#"[{"type":"thinking","text":"Hm.","provider_metadata":{"provider":"anthropic","signature":"c2ln"}}]"#;
    let context = assistant(
        &context,
        thinking,
        r#"[{"id":"c1","name":"get","arguments":"{ \"a\": 1 }"}]"#,
    );
    let context = results(&context, r#"[["c1","ok",{"temp":72}]]"#);
    check(
        &context,
        &[
            (
                Provider::Anthropic,
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":"See"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}]},{"role":"assistant","content":[{"type":"thinking","thinking":"Hm.","signature":"c2ln"},{"type":"tool_use","id":"c1","name":"get","input":{ "a": 1 }}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"{\"temp\":72}"}]}]}"#,
            ),
            (
                Provider::OpenAiChat,
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":"See"},{"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}}]},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"get","arguments":"{ \"a\": 1 }"}}]},{"role":"tool","tool_call_id":"c1","content":"{\"temp\":72}"}]}"#,
            ),
            (
                Provider::OpenAiResponses,
                r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"See"},{"type":"input_image","detail":"auto","image_url":"data:image/png;base64,aGk="}]},{"type":"function_call","call_id":"c1","name":"get","arguments":"{ \"a\": 1 }"},{"type":"function_call_output","call_id":"c1","output":"{\"temp\":72}"}]}"#,
            ),
            (
                Provider::Gemini,
                r#"{"contents":[{"role":"user","parts":[{"text":"See"},{"inlineData":{"mimeType":"image/png","data":"aGk="}}]},{"role":"model","parts":[{"functionCall":{"id":"c1","name":"get","args":{ "a": 1 }},"thoughtSignature":"c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="}]},{"role":"user","parts":[{"functionResponse":{"id":"c1","name":"get","response":{"temp":72}}}]}]}"#,
            ),
            (
                Provider::Bedrock,
                r#"{"messages":[{"role":"user","content":[{"text":"See"},{"image":{"format":"png","source":{"bytes":"aGk="}}}]},{"role":"assistant","content":[{"toolUse":{"toolUseId":"c1","name":"get","input":{ "a": 1 }}}]},{"role":"user","content":[{"toolResult":{"toolUseId":"c1","content":[{"json":{"temp":72}}]}}]}]}"#,
            ),
            (
                Provider::Ollama,
                r#"{"messages":[{"role":"user","content":"See","images":["aGk="]},{"role":"assistant","content":"","tool_calls":[{"id":"c1","function":{"name":"get","arguments":{ "a": 1 }}}]},{"role":"tool","content":"{\"temp\":72}","tool_name":"get","tool_call_id":"c1"}]}"#,
            ),
            (
                Provider::Mistral,
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":"See"},{"type":"image_url","image_url":"data:image/png;base64,aGk="}]},{"role":"assistant","content":null,"tool_calls":[{"id":"a00000001","type":"function","function":{"name":"get","arguments":"{ \"a\": 1 }"}}]},{"role":"tool","tool_call_id":"a00000001","name":"get","content":"{\"temp\":72}"}]}"#,
            ),
        ],
    );
}

#[test]
fn roles_in_an_order_that_providers_refuse() {
    let context = user(&start(r#""A""#), r#""B""#);
    let context = assistant(&assistant(&context, r#""x""#, "[]"), r#""y""#, "[]");
    check(
        &context,
        &[
            (
                Provider::Bedrock,
                r#"{"messages":[{"role":"user","content":[{"text":"A"},{"text":"B"}]},{"role":"assistant","content":[{"text":"x"},{"text":"y"}]}]}"#,
            ),
            (
                Provider::Gemini,
                r#"{"contents":[{"role":"user","parts":[{"text":"A"}]},{"role":"user","parts":[{"text":"B"}]},{"role":"model","parts":[{"text":"x"}]},{"role":"model","parts":[{"text":"y"}]},{"role":"user","parts":[{"text":"Continue."}]}]}"#,
            ),
        ],
    );
    let blank = assistant(&start(r#""  \n""#), r#""x""#, "[]");
    check(
        &blank,
        &[
            (
                Provider::Anthropic,
                r#"{"messages":[{"role":"user","content":"Continue."},{"role":"assistant","content":"x"}]}"#,
            ),
            (
                Provider::Bedrock,
                r#"{"messages":[{"role":"user","content":[{"text":"Continue."}]},{"role":"assistant","content":[{"text":"x"}]}]}"#,
            ),
        ],
    );
}

#[test]
fn a_user_message_that_stands_in_is_reported_where_it_stands() {
    let added = |context: &Context, options: &Options<'_>| -> Vec<_> {
        let report = context.request_report(options).unwrap();
        let added = report.into_iter().map(|one| {
            let is_added = one.change.what == ChangeKind::AddedMessage;
            assert_eq!((is_added, one.change.from.as_str()), (true, ""));
            assert_eq!(one.change.to.as_deref(), Some("Continue."));
            assert!(sent_with(context, options).contains("Continue."));
            (one.iteration, one.position)
        });
        added.collect()
    };
    let said = assistant(&start(r#""A""#), r#""B""#, "[]");
    let two = take(&said, &Step::Calls("null", vec!["call_1"], r#""x""#));
    let context = assistant(&two, r#""C""#, "[]");
    for provider in Provider::ALL {
        let options = Options::new(provider);
        let wants_last = matches!(provider, Provider::Gemini | Provider::Mistral);
        let last = if wants_last { vec![(1, 2)] } else { vec![] };
        assert_eq!(added(&said, &options), last, "{provider:?}");
        let later = Options {
            from: Some(2),
            ..options
        };
        let wants_first = matches!(
            provider,
            Provider::Anthropic | Provider::Gemini | Provider::Bedrock
        );
        let first = wants_first.then_some((2, 0));
        let last = wants_last.then_some((2, 1));
        let both: Vec<_> = first.into_iter().chain(last).collect();
        assert_eq!(added(&context, &later), both, "{provider:?}");
    }
}

#[test]
fn a_pending_call_is_not_sent_and_own_fields_stand_in_front() {
    let context = assistant(&start(r#""Go""#), "null", TWO_CALLS);
    let some = results(&context, r#"[["call_1","ok","1"]]"#);
    for (context, ids) in [(&context, &["call_1", "call_2"][..]), (&some, &["call_2"])] {
        let ids: Vec<Box<str>> = ids.iter().map(|id| (*id).into()).collect();
        for provider in Provider::ALL {
            let found = context.encode_request(&Options::new(provider), &Map::default());
            assert_eq!(
                found.unwrap_err(),
                Error::PendingToolCalls { ids: ids.clone() }
            );
        }
    }
    let body = Map::new(vec![(Value::atom("model"), Value::text("m"))]);
    let context = start(r#""Hi""#);
    let found = context
        .encode_request(&Options::new(Provider::Ollama), &body)
        .unwrap();
    let expected = r#"{"model":"m","messages":[{"role":"user","content":"Hi"}]}"#;
    assert_eq!(bytes(&found), expected);
    for (provider, key) in [
        (Provider::Gemini, "contents"),
        (Provider::Anthropic, "system"),
    ] {
        let body = Map::new(vec![(Value::text(key), Value::Nil)]);
        let found = context.encode_request(&Options::new(provider), &body);
        assert_eq!(found.unwrap_err(), Error::ReservedField { key: key.into() });
    }
}

#[test]
fn a_field_that_is_given_as_atom_and_as_text_is_sent_once() {
    let fields = vec![
        (Value::atom("model"), Value::text("a")),
        (Value::text("model"), Value::text("b")),
    ];
    let context = start(r#""Hi""#);
    let found = context.encode_request(&Options::new(Provider::Anthropic), &Map::new(fields));
    let body = bytes(&found.unwrap());
    assert_eq!(body.matches(r#""model":"#).count(), 1, "{body}");
}

fn fragment(text: &str) -> Value {
    let name = "Elixir.AshAgent.Context.JSON.Fragment";
    let fields = [
        ("__struct__", Value::atom(name)),
        ("text", Value::text(text)),
    ];
    let fields = fields.map(|(key, value)| (Value::atom(key), value));
    Value::Map(Map::new(fields.into()))
}

#[test]
fn ready_made_fields_are_sent_as_they_are() {
    let context = start(r#""Hi""#);
    let body = |field: Value| {
        let body = Map::new(vec![(Value::text("tools"), field)]);
        context.encode_request(&Options::new(Provider::Ollama), &body)
    };
    for given in [r#"[{"b": 1, "a": 2}]"#, " 1.50 ", "null", r#""\u00e9""#] {
        let text = given.trim();
        let inside = Value::List([Value::Int(0), fragment(given)].into());
        for (field, sent_as) in [
            (fragment(given), text.to_owned()),
            (inside, format!("[0,{text}]")),
        ] {
            let sent = bytes(&body(field).unwrap());
            let begin = format!(r#"{{"tools":{sent_as},"messages":["#);
            assert!(sent.starts_with(&begin), "{sent}");
        }
    }
}

#[test]
fn a_ready_made_field_cannot_add_other_fields() {
    let context = start(r#""Hi""#);
    for text in [r#"1,"messages":[]"#, "", "[1", "1 2", "nan"] {
        let body = Map::new(vec![(Value::atom("tools"), fragment(text))]);
        let found = context.encode_request(&Options::new(Provider::Ollama), &body);
        let path = vec![Value::text("tools"), Value::text("text")];
        let expected = "the text of one JSON value".into();
        assert_eq!(found.unwrap_err(), Error::Invalid { path, expected });
        let inside = Value::List([fragment(text)].into());
        let body = Map::new(vec![(Value::atom("tools"), inside)]);
        let found = context.encode_request(&Options::new(Provider::Ollama), &body);
        let sent: serde_json::Value = serde_json::from_str(&bytes(&found.unwrap())).unwrap();
        assert_eq!(sent["tools"], serde_json::json!([{"text": text}]));
        assert_eq!(sent["messages"][0]["content"], "Hi");
    }
}

// Conversations that grow and fork.

/// Steps of a conversation; every context they lead to can be sent.
#[derive(Debug, Clone)]
enum Step {
    User(&'static str),
    Assistant(&'static str),
    Calls(&'static str, Vec<&'static str>, &'static str),
    Fork(usize),
}

const USERS: [&str; 5] = [
    r#""Hi""#,
    r#"" ""#,
    r#"[{"type":"text","text":"See"},{"type":"image","media_type":"image/png","data":"aGk="}]"#,
    r#"[{"type":"file","media_type":"application/pdf","data":"aGk=","filename":"a.pdf"}]"#,
    "null",
];

const ASSISTANTS: [&str; 6] = [
    r#""Yes. ""#,
    r#""""#,
    "null",
    r#"[{"type":"thinking","text":"Hm.","provider_metadata":{"provider":"bedrock","signature":"c2ln"}},{"type":"text","text":"So."}]"#,
    r#"[{"type":"thinking","text":"Hm.","provider_metadata":{"provider":"gemini","signature":"c2ln"}}]"#,
    r#"[{"type":"text","text":"a"},{"type":"redacted_thinking","data":"aGk=","provider_metadata":{"provider":"anthropic"}}]"#,
];

const RESULTS: [&str; 6] = [
    r#""sunny""#,
    "null",
    r#"{"temp":72}"#,
    "[1,2]",
    r#"[{"type":"image","media_type":"image/png","data":"aGk="}]"#,
    r#"[{"type":"text","text":"ok"},{"type":"file","url":"https://example.com/a.pdf"}]"#,
];

const IDS: [&str; 12] = [
    "call_1",
    "a b",
    "a_b",
    "a.b",
    "a:b",
    "a_b_2",
    "a00000001",
    "a00000002",
    "b00000003",
    "abcdefghi",
    "é",
    "an-id-that-is-longer-than-the-forty-characters-that-older-models-take-and-than-sixty-four",
];

fn step() -> impl Strategy<Value = Step> {
    let calls = (
        proptest::sample::select(&ASSISTANTS[..]),
        proptest::sample::subsequence(&IDS[..], 1..4),
        proptest::sample::select(&RESULTS[..]),
    );
    prop_oneof![
        4 => proptest::sample::select(&USERS[..]).prop_map(Step::User),
        3 => proptest::sample::select(&ASSISTANTS[..]).prop_map(Step::Assistant),
        5 => calls.prop_map(|(content, ids, result)| Step::Calls(content, ids, result)),
        1 => any::<usize>().prop_map(Step::Fork),
    ]
}

fn take(context: &Context, step: &Step) -> Context {
    match step {
        Step::User(content) => user(context, content),
        Step::Assistant(content) => assistant(context, content, "[]"),
        Step::Calls(content, ids, result) => call_and_answer(context, content, ids, result),
        Step::Fork(_) => unreachable!(),
    }
}

fn call_and_answer(context: &Context, content: &str, ids: &[&str], result: &str) -> Context {
    let call = |id: &&str| format!(r#"{{"id":"{id}","name":"to do","arguments":{{}}}}"#);
    let calls: Vec<String> = ids.iter().map(call).collect();
    let status = |n: usize| if n.is_multiple_of(2) { "ok" } else { "error" };
    let answer = |(n, id): (usize, &&str)| format!(r#"["{id}","{}",{result}]"#, status(n));
    let answers: Vec<String> = ids.iter().enumerate().map(answer).collect();
    let asked = assistant(context, content, &format!("[{}]", calls.join(",")));
    results(&asked, &format!("[{}]", answers.join(",")))
}

fn all_options() -> Vec<Options<'static>> {
    let mut all = Vec::new();
    for provider in Provider::ALL {
        let plain = Options::new(provider);
        let cache = Options {
            cache: true,
            ..plain.clone()
        };
        let text = Options {
            thinking: Thinking::Text,
            ..plain.clone()
        };
        let model = Options {
            model: Some("gemini-3-pro"),
            ..plain.clone()
        };
        all.extend([plain, cache, text, model]);
    }
    all
}

/// The context that the same steps lead to, sharing nothing with any other.
fn replay(steps: &[Step]) -> Context {
    steps
        .iter()
        .fold(start(r#""Begin""#), |context, step| take(&context, step))
}

const STAND_INS: [&str; 3] = [
    r#"{"role":"user","content":"Continue."}"#,
    r#"{"role":"user","parts":[{"text":"Continue."}]}"#,
    r#"{"role":"user","content":[{"text":"Continue."}]}"#,
];

/// What must stand in front of everything that is appended: all but the closing brackets and what
/// stands in for a message that is not there yet.
fn stem(body: &str, provider: Provider) -> &str {
    let list = body.strip_suffix("]}").unwrap();
    let kept = STAND_INS
        .iter()
        .find_map(|stand_in| list.strip_suffix(stand_in));
    let kept = kept.map_or(list, |kept| kept.trim_end_matches(','));
    if provider == Provider::Bedrock {
        kept.strip_suffix("]}").unwrap_or(kept)
    } else {
        kept
    }
}

/// The offsets of the cache breakpoints in what is left without them, and that.
fn without_breakpoints(body: &str, provider: Provider) -> (Vec<usize>, String) {
    let mark = match provider {
        Provider::Anthropic => r#","cache_control":{"type":"ephemeral"}"#,
        Provider::Bedrock => r#",{"cachePoint":{"type":"default"}}"#,
        _ => return (Vec::new(), body.to_owned()),
    };
    let mut plain = String::new();
    let mut offsets = Vec::new();
    for piece in body.split(mark) {
        plain.push_str(piece);
        offsets.push(plain.len());
    }
    offsets.pop();
    (offsets, plain)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_appended_changes_nothing_in_front(steps in proptest::collection::vec(step(), 1..25)) {
        let mut context = start(r#""Begin""#);
        for step in steps.iter().filter(|step| !matches!(step, Step::Fork(_))) {
            let next = take(&context, step);
            for options in all_options() {
                let provider = options.provider;
                let (_, before) = without_breakpoints(&sent_with(&context, &options), provider);
                let (_, after) = without_breakpoints(&sent_with(&next, &options), provider);
                prop_assert!(
                    after.starts_with(stem(&before, provider)),
                    "{:?}\n{}\n{}", options, before, after
                );
                parse(&after);
            }
            context = next;
        }
    }

    #[test]
    fn kept_encodings_are_never_those_of_another_context(
        steps in proptest::collection::vec(step(), 1..25),
        order in proptest::collection::vec(0..28usize, 1..8),
    ) {
        let all = all_options();
        let mut history = vec![(start(r#""Begin""#), Vec::new())];
        let mut current = 0;
        for (number, step) in steps.iter().enumerate() {
            if let Step::Fork(n) = step {
                current = n % history.len();
                continue;
            }
            let (context, path) = &history[current];
            // Some are encoded before they grow, some after, some never.
            if number % 3 > 0 {
                sent_with(context, &all[order[number % order.len()]]);
            }
            let mut path: Vec<Step> = path.clone();
            path.push(step.clone());
            history.push((take(context, step), path));
            current = history.len() - 1;
        }
        for (context, path) in &history {
            for n in &order {
                prop_assert_eq!(sent_with(context, &all[*n]), sent_with(&replay(path), &all[*n]));
            }
        }
    }

    #[test]
    fn ids_are_one_in_call_and_result_and_differ_between_calls(
        rounds in proptest::collection::vec(proptest::sample::subsequence(&IDS[..], 1..5).prop_shuffle(), 1..12)
    ) {
        let steps: Vec<_> = rounds
            .iter()
            .map(|ids| Step::Calls("null", ids.clone(), r#""x""#))
            .collect();
        let context = replay(&steps);
        let given: Vec<&str> = rounds.iter().flatten().copied().collect();
        for provider in Provider::ALL {
            check_ids(&context, provider, &given);
        }
    }

    /// Also where a provider refuses some of them, and where results no longer stand in what was imported.
    #[test]
    fn imported_ids_are_one_in_call_and_result_and_differ_between_calls(
        rounds in proptest::collection::vec(proptest::sample::subsequence(&IDS[..], 1..5).prop_shuffle(), 1..8)
    ) {
        let given: Vec<&str> = rounds.iter().flatten().copied().collect();
        let mut unique = (0..given.len()).map(|number| format!("id{number:04}xyz"));
        let context = rounds.iter().fold(start(r#""Begin""#), |context, round| {
            let unique: Vec<String> = unique.by_ref().take(round.len()).collect();
            let ids: Vec<&str> = unique.iter().map(String::as_str).collect();
            call_and_answer(&context, "null", &ids, r#""x""#)
        });
        for provider in Provider::ALL {
            let body = given.iter().enumerate().fold(sent(&context, provider), |body, (number, id)| {
                body.replace(&format!("id{number:04}xyz"), id)
            });
            let at = time::from_micros(0).unwrap();
            let read = Context::from_request(Value::text(&body), provider, Defaults { id: "c", at });
            let context = read.unwrap().context;
            let more = user(&call_and_answer(&context, "null", &["a_b"], r#""x""#), r#""B""#);
            let given_more: Vec<&str> = given.iter().copied().chain(["a_b"]).collect();
            for (context, given) in [(user(&context, r#""B""#), &given), (more, &given_more)] {
                let loaded = reload(&context);
                prop_assert_eq!(sent(&loaded, provider), sent(&context, provider));
                for provider in Provider::ALL {
                    check_ids(&context, provider, given);
                    check_ids(&context.clear_tool_results(0, "-", at), provider, given);
                }
            }
        }
    }
}

/// Each call and its result have one id, which the provider takes, and that of no other id that was given.
fn check_ids(context: &Context, provider: Provider, given: &[&str]) {
    let text = sent(context, provider);
    let (called, answered) = ids(&parse(&text), provider);
    assert_eq!(called, answered, "{provider:?}: {text}");
    assert_eq!(called.len(), given.len());
    let mut owners = HashMap::new();
    for (id, given) in called.iter().zip(given) {
        assert!(is_taken(id, provider), "{provider:?} takes no {id:?}");
        let owner = owners.entry(id.clone()).or_insert(given);
        assert_eq!(owner, &given, "{provider:?}: {id:?} is the id of two");
    }
    if provider == Provider::OpenAiResponses {
        assert_eq!(owners.len(), given.len(), "{called:?}");
    }
}

/// Whether the provider takes an id.
fn is_taken(id: &str, provider: Provider) -> bool {
    let all = |more: &str| {
        id.chars()
            .all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    match provider {
        Provider::Anthropic => !id.is_empty() && all("_-"),
        Provider::OpenAiChat => (1..=40).contains(&id.len()),
        Provider::OpenAiResponses => (1..=64).contains(&id.len()),
        Provider::Bedrock => (1..=64).contains(&id.len()) && all("_.:-"),
        Provider::Mistral => id.len() == 9 && all(""),
        Provider::Gemini | Provider::Ollama => !id.is_empty(),
    }
}

/// The ids of calls and of results, in their order.
fn ids(body: &serde_json::Value, provider: Provider) -> (Vec<String>, Vec<String>) {
    let (call, result) = match provider {
        Provider::Anthropic => (&["tool_use", "id"], &["tool_result", "tool_use_id"]),
        Provider::OpenAiResponses => (
            &["function_call", "call_id"],
            &["function_call_output", "call_id"],
        ),
        Provider::Gemini => (&["functionCall", "id"], &["functionResponse", "id"]),
        Provider::Bedrock => (&["toolUse", "toolUseId"], &["toolResult", "toolUseId"]),
        _ => (&["tool_calls", "id"], &["tool", "tool_call_id"]),
    };
    let (mut called, mut answered) = (Vec::new(), Vec::new());
    find(body, call, &mut called);
    find(body, result, &mut answered);
    (called, answered)
}

/// Texts under `key` in objects of this type or role, or directly under a key of that name.
fn find(value: &serde_json::Value, [kind, key]: &[&str; 2], found: &mut Vec<String>) {
    use serde_json::Value as Json;
    match value {
        Json::Array(items) => items
            .iter()
            .for_each(|item| find(item, &[kind, key], found)),
        Json::Object(object) => {
            let is = |name: &str| object.get(name).and_then(Json::as_str) == Some(kind);
            if is("type") || is("role") {
                found.push(object[*key].as_str().unwrap().to_owned());
            }
            for (name, inner) in object {
                match inner {
                    Json::Object(inner) if name == kind => {
                        found.push(inner[*key].as_str().unwrap().to_owned());
                    }
                    Json::Array(items) if name == kind => {
                        let texts = items.iter().map(|item| item[*key].as_str().unwrap());
                        found.extend(texts.map(str::to_owned));
                    }
                    _ => find(inner, &[kind, key], found),
                }
            }
        }
        _ => {}
    }
}

// Caches.

fn kept(segments: &[Segment<'_>]) -> HashSet<(usize, usize)> {
    segments
        .iter()
        .filter_map(|segment| match segment {
            Segment::Kept(kept) => Some((kept.bytes().as_ptr() as usize, kept.bytes().len())),
            Segment::Lent(_) | Segment::Made(_) => None,
        })
        .filter(|(_, len)| *len > 10)
        .collect()
}

#[test]
fn forks_share_encodings() {
    let mut context = start(r#""Begin""#);
    for _ in 0..4 {
        context = take(&context, &Step::Calls("null", vec!["call_1"], r#""x""#));
    }
    let options = Options::new(Provider::Anthropic);
    let body = Map::default();
    let shared = kept(&context.encode_request(&options, &body).unwrap());
    assert!(shared.len() >= 4);
    let (one, other) = (user(&context, r#""one""#), user(&context, r#""other""#));
    let one = kept(&one.encode_request(&options, &body).unwrap());
    let other = kept(&other.encode_request(&options, &body).unwrap());
    let in_both: HashSet<_> = one.intersection(&other).copied().collect();
    assert!(in_both.len() >= 4);
    assert!(in_both.is_subset(&shared));
}

/// A message added to the iteration that an older context completed and had encoded.
#[test]
fn contexts_that_share_an_iteration_keep_their_own_bytes() {
    let old = assistant(&start(r#""A""#), r#""one""#, "[]");
    let completed = user(&old, r#""B""#);
    for provider in Provider::ALL {
        let before = sent(&old, provider);
        sent(&completed, provider);
        let grown = assistant(&old, r#""two""#, "[]");
        assert!(sent(&grown, provider).contains("two"));
        let grown_completed = user(&grown, r#""C""#);
        assert!(sent(&grown_completed, provider).contains("two"));
        assert_eq!(sent(&old, provider), before);
        assert!(!sent(&completed, provider).contains("two"));
        let noted = completed
            .put_iteration_metadata(1, Value::Nil, Value::Nil, stamp().at)
            .unwrap();
        assert_eq!(sent(&noted, provider), sent(&completed, provider));
    }
}

#[test]
fn two_answers_to_one_call_are_not_mixed() {
    let asked = assistant(&start(r#""A""#), "null", TWO_CALLS);
    let one = results(&asked, r#"[["call_1","ok","red"]]"#);
    let first = results(&one, r#"[["call_2","ok","green"]]"#);
    for provider in Provider::ALL {
        assert!(sent(&first, provider).contains("green"));
        let second = results(&one, r#"[["call_2","ok","blue"]]"#);
        let body = sent(&second, provider);
        assert!(body.contains("red") && body.contains("blue") && !body.contains("green"));
        let interrupted = sent(&one.interrupt(&Value::text("stop"), stamp()), provider);
        assert!(interrupted.contains("stop") && !interrupted.contains("green"));
    }
}

#[test]
fn encodings_for_many_models_are_right_beyond_what_is_kept() {
    let context = take(
        &start(r#""A""#),
        &Step::Calls("null", vec!["call_1"], r#""x""#),
    );
    let models: Vec<String> = (0..40).map(|n| format!("gemini-{}-{n}", n % 4)).collect();
    for model in models.iter().chain(&models) {
        let options = with(Provider::Gemini, |of| of.model = Some(model));
        let signed = sent_with(&context, &options).contains("thoughtSignature");
        assert_eq!(
            signed,
            !model.starts_with("gemini-1") && !model.starts_with("gemini-2")
        );
    }
}

/// A context that has a system message in its midst.
fn with_system_inside() -> Context {
    let attributes = r#"{"iterations":[
        {"messages":[{"role":"user","content":"A"},{"role":"assistant","content":"B"},{"role":"system","content":"Be brief."}]},
        {"messages":[{"role":"user","content":"C"}]}]}"#;
    Context::from_attributes(value(attributes), defaults()).unwrap()
}

#[test]
fn the_role_of_a_system_message_is_that_of_the_options() {
    let context = with_system_inside();
    for provider in [Provider::OpenAiChat, Provider::OpenAiResponses] {
        let plain = Options::new(provider);
        let developer = Options {
            system_role: SystemRole::Developer,
            ..plain.clone()
        };
        for _ in 0..2 {
            let body = sent_with(&context, &plain);
            assert!(body.contains(r#""role":"system""#), "{body}");
            let body = sent_with(&context, &developer);
            assert!(body.contains(r#""role":"developer""#), "{body}");
        }
    }
}

// Breakpoints.

#[test]
fn earlier_cache_breakpoints_stay_where_they_are() {
    for (provider, system) in [
        (Provider::Anthropic, Value::Nil),
        (Provider::Anthropic, Value::text("Be brief.")),
        (Provider::Bedrock, Value::Nil),
        (Provider::Bedrock, Value::text("Be brief.")),
    ] {
        let options = with(provider, |of| of.cache = true);
        let mut context = Context::new("c", Value::text("Hi"), system.clone(), stamp()).unwrap();
        let mut before: Vec<usize> = Vec::new();
        for turn in 0..60 {
            let body = sent_with(&context, &options);
            parse(&body);
            let (all, plain) = without_breakpoints(&body, provider);
            assert!((1..=4).contains(&all.len()), "{provider:?} {all:?}");
            assert_eq!(body.matches("cache").count(), all.len());
            let (newest, stable) = all.split_last().unwrap();
            assert!(stable.is_sorted() && stable.last() != Some(newest));
            // The newest one is behind the last content.
            assert!(plain.len() - newest < 8, "{}", &plain[*newest..]);
            // The one at the end of the last request moves with each request.
            before.pop();
            for gone in before.iter().filter(|offset| !stable.contains(offset)) {
                assert_eq!(all.len(), 4, "turn {turn}: {before:?}, {all:?}");
                assert!(stable
                    .iter()
                    .all(|offset| offset > gone || stable[0] == *offset));
            }
            if turn > 30 {
                assert_eq!(all.len(), 4);
            }
            before = stable.to_vec();
            let result = RESULTS[turn % RESULTS.len()];
            context = match turn % 4 {
                0 => take(
                    &context,
                    &Step::Calls("null", vec!["call_1", "a b"], result),
                ),
                1 => user(&assistant(&context, r#""Yes.""#, "[]"), r#""And?""#),
                2 => take(&context, &Step::Calls(r#""So.""#, vec!["call_1"], result)),
                _ => user(
                    &assistant(&context, ASSISTANTS[turn % 6], "[]"),
                    USERS[turn % 4],
                ),
            };
        }
    }
}

#[test]
fn breakpoints_are_for_those_who_know_them() {
    let context = take(
        &start(r#""A""#),
        &Step::Calls("null", vec!["call_1"], r#""x""#),
    );
    for provider in Provider::ALL {
        let cache = with(provider, |of| of.cache = true);
        if !matches!(provider, Provider::Anthropic | Provider::Bedrock) {
            assert_eq!(sent_with(&context, &cache), sent(&context, provider));
        }
    }
}

// Budgets.

#[test]
fn a_budget_stops_the_work_and_a_larger_one_ends_it() {
    let long = format!(r#""{}""#, "x".repeat(1000));
    let build = || {
        let mut context = start(&long);
        for _ in 0..5 {
            context = user(&assistant(&context, &long, "[]"), &long);
        }
        context
    };
    for provider in Provider::ALL {
        let (context, fresh) = (build(), build());
        let budget = |most| Options {
            most,
            ..Options::new(provider)
        };
        let body = Map::default();
        let error = context.encode_request(&budget(999), &body).unwrap_err();
        assert_eq!(error, Error::TooMuchWork);
        // Every attempt gets further: what was encoded is kept.
        let attempts = (1..20).find(|_| context.encode_request(&budget(2500), &body).is_ok());
        assert!(
            attempts.is_some_and(|attempts| attempts > 2),
            "{provider:?} {attempts:?}"
        );
        assert_eq!(sent_with(&context, &budget(0)), sent(&fresh, provider));
    }
}

#[test]
fn a_request_looks_at_no_more_pieces_than_its_budget_allows() {
    let conversation = |said: &str| {
        let ask = |context, _| user(&assistant(&context, r#""a""#, "[]"), said);
        (0..256).fold(start(r#""hi""#), ask)
    };
    let limited = with(Provider::Anthropic, |of| of.steps = 40);
    let body = Map::default();
    // What has a cache breakpoint stays a piece of its own.
    let marked = conversation(r#"[{"type":"text","text":"b","cache":true}]"#);
    sent_with(&marked, &Options::new(Provider::Anthropic));
    let error = marked.encode_request(&limited, &body).unwrap_err();
    assert_eq!(error, Error::TooMuchWork);
    assert!(conversation(r#""b""#)
        .encode_request(&limited, &body)
        .is_ok());
}

#[test]
fn a_long_conversation_costs_what_its_pieces_cost() {
    let mut context = start(r#""hi""#);
    for _ in 0..2_100 {
        context = user(&assistant(&context, r#""a""#, "[]"), r#""b""#);
    }
    let options = Options::new(Provider::OpenAiChat);
    let before = context.encode_cost(&options).work.terms;
    context.encode_request(&options, &Map::default()).unwrap();
    let after = context.encode_cost(&options).work.terms;
    assert!(before > 2_000 && after < 100, "{before} {after}");
}

#[test]
fn a_budget_counts_what_is_written_for_terms_without_bytes() {
    let numbers: Vec<String> = (0..100_000).map(|n| n.to_string()).collect();
    let context = assistant(&start(r#""A""#), "null", r#"[{"id":"a","name":"f"}]"#);
    let context = results(
        &context,
        &format!(r#"[["a","ok",[{}]]]"#, numbers.join(",")),
    );
    let options = with(Provider::Anthropic, |of| of.most = 10_000);
    let found = context.encode_request(&options, &Map::default());
    let len = found.as_ref().map_or(0, |segments| bytes(segments).len());
    assert_eq!(
        found.err(),
        Some(Error::TooMuchWork),
        "{len} bytes were encoded"
    );
}

// Ids.

#[test]
fn many_uses_of_an_id_that_is_anothers_alias_are_no_quadratic_work() {
    let count_steps = |id: &'static str, uses: usize| {
        let mut context = take(
            &start(r#""A""#),
            &Step::Calls("null", vec!["a b"], r#""x""#),
        );
        let steps = steps::count_steps(|| {
            for _ in 0..uses {
                context = take(&context, &Step::Calls("null", vec![id], r#""x""#));
            }
        });
        assert_eq!(context.count_iterations(), uses + 2);
        steps
    };
    for id in ["call_1", "a_b"] {
        let (few, many) = (count_steps(id, 250), count_steps(id, 2_000));
        assert!(
            few > 250 && many < 9 * few,
            "{id}: {few} steps, then {many}"
        );
    }
}

#[test]
fn short_ids_are_the_calls_number_and_give_way_to_ids_that_look_like_them() {
    let first = |given: &[&str]| {
        let mut context = start(r#""A""#);
        for id in given {
            let calls = format!(r#"[{{"id":"{id}","name":"f"}}]"#);
            context = results(
                &assistant(&context, "null", &calls),
                &format!(r#"[["{id}","ok","x"]]"#),
            );
        }
        ids(
            &parse(&sent(&context, Provider::Mistral)),
            Provider::Mistral,
        )
        .0
    };
    assert_eq!(first(&["call_1", "abcdefghi"]), ["a00000001", "abcdefghi"]);
    assert_eq!(first(&["call_1", "a00000001"]), ["a00000001", "a00000002"]);
    assert_eq!(first(&["a00000002", "call_1"]), ["a00000002", "b00000002"]);
    assert_eq!(first(&["x", "x"]), ["a00000001", "a00000002"]);
}

#[test]
fn an_id_is_the_same_for_the_same_history() {
    let steps: Vec<_> = IDS
        .iter()
        .map(|id| Step::Calls("null", vec![*id], "null"))
        .collect();
    let (one, other) = (replay(&steps), replay(&steps));
    let bodies = |context: &Context| -> BTreeMap<Provider, String> {
        let each = Provider::ALL.into_iter();
        each.map(|provider| (provider, sent(context, provider)))
            .collect()
    };
    assert_eq!(bodies(&one), bodies(&other));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Wherever they stand among other letters, and next to each other.
    #[test]
    fn letters_that_json_escapes_come_back(
        text in "([ -~]{0,40}|[\\x00-\\x20\"\\\\]{1,3}|[\u{7f}-\u{ff}é–😀]{1,3}){0,12}x",
    ) {
        let context = conversation(&text);
        let body = sent(&context, Provider::OpenAiChat);
        let body = parse(&body);
        prop_assert_eq!(body["messages"][0]["content"].as_str(), Some(&*text));
    }
}

#[test]
fn fields_that_were_encoded_before_are_sent_as_those_of_a_map() {
    let context = start(r#""Hi""#);
    let bodies = [
        vec![],
        vec![(Value::text("model"), Value::text("m"))],
        vec![
            (Value::text("tools"), fragment("[ 1 ]")),
            (Value::text("container"), Value::Map(Map::default())),
        ],
    ];
    for (provider, body) in Provider::ALL
        .iter()
        .flat_map(|of| bodies.iter().map(move |b| (of, b)))
    {
        let (options, body) = (Options::new(*provider), Map::new(body.clone()));
        let fields = Fields::new(&body).unwrap();
        let given = bytes(&context.encode_request(&options, &body).unwrap());
        for _ in 0..2 {
            assert_eq!(
                bytes(&context.encode_with(&options, &fields).unwrap()),
                given
            );
        }
    }
    let body = Map::new(vec![(Value::text("tools"), fragment("[1"))]);
    assert!(matches!(Fields::new(&body), Err(Error::Invalid { .. })));
}
