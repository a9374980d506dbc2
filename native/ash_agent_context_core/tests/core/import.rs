//! Foreign histories: what becomes of them, and that they come back.

use crate::make::{sent_with, with};
use ash_agent_context_core::{
    json, time, Context, Defaults, Error, Imported, Known, MessageRef, Options, Output, Provider,
    Repair, RepairKind, Role, Status, Value, BODY_DEPTH,
};

fn defaults() -> Defaults<'static> {
    Defaults {
        id: "c1",
        at: time::from_micros(0).unwrap(),
    }
}

fn request(body: &str, provider: Provider) -> Result<Imported, Error> {
    Context::from_request(Value::text(body), provider, defaults())
}

fn messages(list: &str) -> Result<Imported, Error> {
    let list = json::read(list.as_bytes(), BODY_DEPTH)?;
    Context::from_messages(list, defaults())
}

fn sent(context: &Context, provider: Provider) -> String {
    in_order(&sent_with(context, &Options::new(provider)))
}

fn in_order(text: &str) -> String {
    json::write(&json::read(text.as_bytes(), BODY_DEPTH).unwrap())
}

fn repairs(imported: &Imported) -> Vec<(RepairKind, usize, &str)> {
    let short = |repair: &Repair| (repair.kind, repair.message, repair.id.clone());
    let repairs = imported.repairs.iter().map(short);
    repairs
        .map(|(kind, message, id)| (kind, message, &*Box::leak(id.unwrap_or_default())))
        .collect()
}

/// The results of the calls of an iteration, in words.
fn results(context: &Context, number: i64) -> Vec<(String, String)> {
    let iteration = context.iteration(number).unwrap();
    let words = |outcome: &ash_agent_context_core::Outcome| {
        let text = String::from_utf8(outcome.text().unwrap_or(b"parts").to_vec()).unwrap();
        match outcome.status {
            Status::Ok => text,
            other => format!("{}: {text}", other.name()),
        }
    };
    iteration
        .calls()
        .map(|(call, outcome)| (call.id.to_string(), outcome.map_or("pending".into(), words)))
        .collect()
}

fn pair(id: &str, words: &str) -> (String, String) {
    (id.into(), words.into())
}

const USER: &str = r#"{"role":"user","content":"Hi"}"#;

fn call(id: &str) -> String {
    format!(
        r#"{{"role":"assistant","content":null,"tool_calls":[
            {{"id":"{id}","type":"function","function":{{"name":"get","arguments":"{{}}"}}}}]}}"#
    )
}

fn tool(id: &str, text: &str) -> String {
    format!(r#"{{"role":"tool","tool_call_id":"{id}","content":"{text}"}}"#)
}

fn list(messages: &[&str]) -> String {
    format!("[{}]", messages.join(","))
}

#[test]
fn a_valid_history_needs_no_repair() {
    let list = list(&[
        r#"{"role":"system","content":"S"}"#,
        USER,
        &call("a"),
        &tool("a", "1"),
        r#"{"role":"assistant","content":"done"}"#,
        USER,
        &call("a"),
        &tool("a", "2"),
    ]);
    let imported = messages(&list).unwrap();
    assert_eq!(imported.repairs, []);
    let context = imported.context;
    assert_eq!(context.current_iteration(), 4);
    assert_eq!(context.count_messages(), 8);
    assert_eq!(results(&context, 1), [pair("a", "1")]);
    assert_eq!(results(&context, 3), [pair("a", "2")]);
    let roles: Vec<Role> = context
        .all_messages()
        .filter_map(|message| match message {
            MessageRef::Added(message) => Some(message.role),
            MessageRef::Results(..) => None,
        })
        .collect();
    assert_eq!(roles.first(), Some(&Role::System));
}

#[test]
fn orphans_and_second_results_are_dropped() {
    let list = list(&[
        USER,
        &tool("x", "0"),
        &call("a"),
        &tool("a", "1"),
        &tool("a", "2"),
    ]);
    let imported = messages(&list).unwrap();
    assert_eq!(
        repairs(&imported),
        [
            (RepairKind::DroppedOrphanResult, 1, "x"),
            (RepairKind::DroppedDuplicateResult, 4, "a")
        ]
    );
    assert_eq!(results(&imported.context, 1), [pair("a", "1")]);
}

#[test]
fn missing_results_are_synthesised_except_at_the_end() {
    let list = list(&[USER, &call("a"), USER, &call("b")]);
    let imported = messages(&list).unwrap();
    assert_eq!(
        repairs(&imported),
        [(RepairKind::SynthesisedResult, 1, "a")]
    );
    let context = imported.context;
    assert_eq!(
        results(&context, 1),
        [pair("a", "interrupted: interrupted")]
    );
    assert_eq!(results(&context, 2), [pair("b", "pending")]);
}

#[test]
fn late_results_are_moved() {
    let list = list(&[
        USER,
        &call("a"),
        &call("b"),
        USER,
        &tool("b", "2"),
        &tool("a", "1"),
    ]);
    let imported = messages(&list).unwrap();
    assert_eq!(
        repairs(&imported),
        [
            (RepairKind::MovedResult, 4, "b"),
            (RepairKind::MovedResult, 5, "a")
        ]
    );
    assert_eq!(results(&imported.context, 1), [pair("a", "1")]);
    assert_eq!(results(&imported.context, 2), [pair("b", "2")]);
}

#[test]
fn calls_with_one_id_get_others() {
    let call = |id: &str| format!(r#"{{"id":"{id}","name":"get"}}"#);
    let calls = [call("a"), call("a"), call("a_2"), call("a")].join(",");
    let said = format!(r#"{{"role":"assistant","tool_calls":[{calls}]}}"#);
    let list = list(&[
        USER,
        &said,
        &tool("a", "1"),
        &tool("a", "2"),
        &tool("a_2", "3"),
        &tool("a", "4"),
    ]);
    let imported = messages(&list).unwrap();
    let renamed: Vec<_> = imported.repairs.iter().map(|r| r.to.as_deref()).collect();
    assert_eq!(renamed, [Some("a_3"), Some("a_4")]);
    assert_eq!(
        results(&imported.context, 1),
        [
            pair("a", "1"),
            pair("a_3", "2"),
            pair("a_2", "3"),
            pair("a_4", "4")
        ]
    );
}

#[test]
fn messages_that_say_nothing_are_dropped() {
    let empty = r#"{"role":"assistant","content":""}"#;
    let blank = r#"{"role":"assistant","content":[{"type":"text","text":""}]}"#;
    let imported = messages(&list(&[USER, empty, blank])).unwrap();
    assert_eq!(
        repairs(&imported),
        [
            (RepairKind::DroppedEmptyMessage, 1, ""),
            (RepairKind::DroppedEmptyMessage, 2, "")
        ]
    );
    assert_eq!(imported.context.count_messages(), 1);
}

#[test]
fn what_was_repaired_follows_the_rules_and_the_rest_is_as_it_was() {
    let body = r#"{"messages":[
        {"role":"user","content":[{"type":"text","text":"Hi","cache_control":{"type":"ephemeral"}}]},
        {"role":"assistant","content":[{"type":"tool_use","id":"a","name":"get","input":{},"caller":{"type":"direct"},"novelty":1}]},
        {"role":"user","content":[
            {"type":"tool_result","tool_use_id":"a","content":"1","is_error":false},
            {"type":"tool_result","tool_use_id":"x","content":"2"},
            {"type":"text","text":"go on"}]},
        {"role":"assistant","content":[{"type":"text","text":"ok"}]}]}"#;
    let imported = request(body, Provider::Anthropic).unwrap();
    assert_eq!(
        repairs(&imported),
        [(RepairKind::DroppedOrphanResult, 2, "x")]
    );
    let sent = sent(&imported.context, Provider::Anthropic);
    assert!(sent.contains("cache_control"), "{sent}");
    assert!(
        !sent.contains("novelty") && !sent.contains("is_error"),
        "{sent}"
    );
    // Who called is what the provider wants to see again.
    assert!(sent.contains(r#""caller":{"type":"direct"}"#), "{sent}");
    assert!(sent.contains("go on"), "{sent}");
}

#[test]
fn each_providers_body_comes_back() {
    let bodies = [
        (
            Provider::Anthropic,
            r#"{"system":[{"type":"text","text":"S"}],"messages":[
                {"role":"user","content":"Hi"},
                {"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},
                    {"type":"tool_use","id":"a","name":"get","input":{}},
                    {"type":"tool_use","id":"b","name":"get","input":{}}]},
                {"role":"user","content":[{"type":"tool_result","tool_use_id":"b","is_error":false},
                    {"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"1"}]},
                    {"type":"text","text":"and?"}]}]}"#,
        ),
        (
            Provider::OpenAiChat,
            r#"{"messages":[{"role":"developer","content":"S"},{"role":"user","name":"n","content":"Hi"},
                {"role":"assistant","tool_calls":[
                    {"id":"a","type":"function","function":{"name":"get","arguments":"{ }"}}]},
                {"role":"tool","tool_call_id":"a","content":[{"type":"text","text":"1"}]}]}"#,
        ),
        (
            Provider::OpenAiResponses,
            r#"{"instructions":"S","input":[{"role":"user","content":"Hi"},
                {"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e"},
                {"type":"function_call","id":"fc_1","call_id":"a","name":"get","arguments":"{}","status":"completed"},
                {"type":"function_call_output","call_id":"a","output":"1"}]}"#,
        ),
        (
            Provider::Gemini,
            r#"{"systemInstruction":{"role":"user","parts":[{"text":"S"}]},"contents":[
                {"parts":[{"text":"Hi"}]},
                {"role":"model","parts":[{"functionCall":{"name":"get"},"thoughtSignature":"YWE="}]},
                {"role":"user","parts":[{"functionResponse":{"name":"get","response":{"output":""}}}]}]}"#,
        ),
        (
            Provider::Bedrock,
            r#"{"system":[],"messages":[{"role":"user","content":[{"text":"Hi"}]},
                {"role":"assistant","content":[{"toolUse":{"toolUseId":"a","name":"get","input":{}}}]},
                {"role":"user","content":[{"toolResult":{"toolUseId":"a","status":"success",
                    "content":[{"json":{}}]}},{"cachePoint":{"type":"default"}}]}]}"#,
        ),
        (
            Provider::Ollama,
            r#"{"messages":[{"role":"user","content":"Hi"},
                {"role":"assistant","tool_calls":[{"function":{"index":0,"name":"get","arguments":{}}}]},
                {"role":"tool","content":"1","tool_name":"get"}]}"#,
        ),
        (
            Provider::Mistral,
            r#"{"messages":[{"role":"user","content":"Hi"},
                {"role":"assistant","tool_calls":[{"id":"abcdefghi","function":{"name":"get","arguments":{}}}]},
                {"role":"tool","tool_call_id":"abcdefghi","name":"get","content":"1"}]}"#,
        ),
    ];
    for (provider, body) in bodies {
        let imported = request(body, provider).unwrap();
        assert_eq!(imported.repairs, [], "{provider:?}");
        assert!(imported.rest.is_empty(), "{provider:?}");
        assert_eq!(sent(&imported.context, provider), in_order(body));
        // Everybody else gets something that can be read back without a repair.
        for other in Provider::ALL {
            let foreign = sent(&imported.context, other);
            let again = request(&foreign, other).unwrap();
            assert_eq!(again.repairs, [], "{provider:?} for {other:?}: {foreign}");
        }
    }
}

#[test]
fn errors_tell_the_path() {
    let error = request(
        r#"{"messages":[{"role":"user","content":[{}]}]}"#,
        Provider::Ollama,
    );
    let path = vec![
        Value::text("messages"),
        Value::Int(0),
        Value::text("content"),
    ];
    assert!(matches!(error, Err(Error::Invalid { path: at, .. }) if at == path));
    assert!(matches!(
        request("[]", Provider::Gemini),
        Err(Error::Invalid { path, .. }) if path.is_empty()
    ));
}

#[test]
fn neighbours_that_call_cost_linear_time() {
    let body: Vec<String> = (0..20_000)
        .map(|_| {
            r#"{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"get","input":{}}]}"#
                .to_owned()
        })
        .collect();
    let body = format!(r#"{{"messages":[{}]}}"#, body.join(","));
    let imported = request(&body, Provider::Anthropic).unwrap();
    // Each call but the first has another's id.
    assert_eq!(imported.repairs.len(), 19_999);
    assert_eq!(imported.context.current().count_pending(), 20_000);
}

/// What scheduler threads have; frames of debug builds are larger.
const STACK: usize = if cfg!(debug_assertions) {
    1024 * 1024
} else {
    160 * 1024
};

#[test]
fn deep_bodies_need_no_deep_stack() {
    let deep = |levels: usize| {
        let data = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"contents":[{{"role":"user","parts":[{{"data":{data}}}]}}]}}"#)
    };
    let on_small_stack = std::thread::Builder::new().stack_size(STACK);
    let work = move || {
        let imported = request(&deep(255), Provider::Gemini).unwrap();
        assert!(sent(&imported.context, Provider::Gemini).contains("[[["));
        for levels in [256, 1_000, 1_000_000] {
            let result = request(&deep(levels), Provider::Gemini);
            assert!(matches!(result, Err(Error::TooDeep { .. })));
        }
    };
    on_small_stack.spawn(work).unwrap().join().unwrap();
}

#[test]
fn results_are_what_they_say() {
    let body = r#"{"contents":[{"role":"user","parts":[{"text":"Hi"}]},
        {"role":"model","parts":[{"functionCall":{"name":"a"}},{"functionCall":{"name":"b"}},{"functionCall":{"name":"c"}}]},
        {"role":"user","parts":[
            {"functionResponse":{"name":"c","response":{"n":1}}},
            {"functionResponse":{"name":"a","response":{"output":"text"}}},
            {"functionResponse":{"name":"b","response":{"error":"no"}}}]}]}"#;
    let imported = request(body, Provider::Gemini).unwrap();
    assert_eq!(imported.repairs, []);
    let outcomes: Vec<_> = imported.context.iteration(1).unwrap().calls().collect();
    let output = |at: usize| &outcomes[at].1.unwrap().output;
    assert_eq!(output(0), &Output::Value(Value::text("text")));
    assert!(outcomes[1].1.unwrap().is_error());
    assert!(matches!(output(2), Output::Value(Value::Map(map)) if map.len() == 1));
}

#[test]
fn an_imported_element_that_the_rules_leave_out_takes_nothing_with_it() {
    let blank = "\\u001c";
    let first = format!(
        r#"{{"messages":[{{"role":"user","content":[{{"text":"{blank}"}}]}},{{"role":"user","content":[{{"text":"hi"}}]}}]}}"#
    );
    let imported = request(&first, Provider::Bedrock).unwrap();
    let sent_now = sent(&imported.context, Provider::Bedrock);
    assert_eq!(
        sent_now,
        in_order(r#"{"messages":[{"role":"user","content":[{"text":"hi"}]}]}"#)
    );

    let last = format!(
        r#"{{"messages":[{{"role":"user","content":[{{"text":"q"}}]}},{{"role":"assistant","content":[{{"text":"ok"}}]}},{{"role":"user","content":[{{"text":"{blank}"}}]}}]}}"#
    );
    let imported = request(&last, Provider::Bedrock).unwrap();
    let stamp = ash_agent_context_core::Stamp::at(time::from_micros(0).unwrap());
    let context = imported
        .context
        .add_user_message(Value::text("go"), stamp)
        .unwrap();
    assert_eq!(
        sent(&context, Provider::Bedrock),
        in_order(
            r#"{"messages":[{"role":"user","content":[{"text":"q"}]},{"role":"assistant","content":[{"text":"ok"}]},{"role":"user","content":[{"text":"go"}]}]}"#
        )
    );
}

/// Each of these was read as something else, or not at all, and nobody was told.
#[test]
fn a_history_in_another_form_is_named_with_what_reads_it() {
    let user = r#"{"role":"user","content":"Hi"}"#;
    let anthropic =
        r#"{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]}"#;
    let bedrock = r#"{"role":"user","content":[{"text":"Hi"}]}"#;
    let gemini = r#"{"role":"model","parts":[{"functionCall":{"name":"f"}}]}"#;
    let item = r#"{"type":"function_call","call_id":"t","name":"f","arguments":"{}"}"#;
    let codex = r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]}"#;
    let chat = r#"{"role":"assistant","tool_calls":[{"id":"t","function":{"name":"f","arguments":"{}"}}]}"#;
    let vercel = r#"{"id":"m","role":"user","parts":[{"type":"text","text":"Hi"}]}"#;
    let older =
        r#"{"role":"assistant","content":"","toolInvocations":[{"toolName":"f","args":{}}]}"#;
    let dump = r#"{"type":"human","content":"Hi","additional_kwargs":{}}"#;
    let forms = [
        (anthropic, ":anthropic", Some(Provider::Anthropic)),
        (bedrock, ":bedrock", Some(Provider::Bedrock)),
        (gemini, ":gemini", Some(Provider::Gemini)),
        (item, ":openai_responses", Some(Provider::OpenAiResponses)),
        (codex, ":openai_responses", Some(Provider::OpenAiResponses)),
        (chat, "from_messages", Some(Provider::OpenAiChat)),
        (vercel, "Vercel", None),
        (older, "Vercel", None),
        (dump, "LangChain", None),
    ];
    for (form, told, of) in forms {
        let list = list(&[user, form]);
        if of != Some(Provider::OpenAiChat) {
            let error = messages(&list).unwrap_err().to_string();
            assert!(error.contains(told), "{form}: {error}");
        }
        for provider in Provider::ALL {
            let is_chat = |of| {
                matches!(
                    of,
                    Provider::OpenAiChat | Provider::Mistral | Provider::Ollama
                )
            };
            if of.is_some_and(|of| of == provider || (is_chat(of) && is_chat(provider))) {
                continue;
            }
            let key = match provider {
                Provider::Gemini => "contents",
                Provider::OpenAiResponses => "input",
                _ => "messages",
            };
            let body = format!(r#"{{"{key}":{list}}}"#);
            let error = request(&body, provider).unwrap_err().to_string();
            assert!(error.contains(told), "{provider:?}: {form}: {error}");
        }
    }
    for (key, wrong) in [
        ("contents", Provider::Anthropic),
        ("input", Provider::Gemini),
        ("messages", Provider::OpenAiResponses),
    ] {
        let error = request(&format!(r#"{{"{key}":[{user}]}}"#), wrong).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("read it with that provider's name"),
            "{error}"
        );
    }
}

#[test]
fn langchains_name_for_arguments_is_read() {
    let call = r#"{"role":"assistant","content":"","tool_calls":[{"name":"f","args":{"x":1},"id":"t","type":"tool_call"}]}"#;
    let imported = messages(&list(&[USER, call])).unwrap();
    let iteration = imported.context.iteration(1).unwrap();
    let (call, _) = iteration.calls().next().unwrap();
    assert_eq!(json::write(&call.arguments.value), r#"{"x":1}"#);
}

/// It was made behind the words.
#[test]
fn thinking_that_is_checked_does_not_move() {
    let words = r#"{"type":"text","text":"So."}"#;
    let thought = r#"{"type":"thinking","thinking":"Hm","signature":"s"}"#;
    let said = format!(r#"{{"role":"assistant","content":[{words},{thought}]}}"#);
    let list = list(&[USER, &said, r#"{"role":"user","content":"Again"}"#]);
    let imported = request(&format!(r#"{{"messages":{list}}}"#), Provider::Anthropic).unwrap();
    for (model, is_sent) in [("claude-opus-5-5", false), ("claude-opus-4-5", true)] {
        let options = with(Provider::Anthropic, |options| options.model = Some(model));
        let body = sent_with(&imported.context, &options);
        assert_eq!(body.contains("Hm"), is_sent, "{body}");
    }
}

/// Its own provider refuses thinking that nothing follows, whoever wrote it.
#[test]
fn thinking_that_nothing_follows_is_left_out_of_imported_messages() {
    let reasoning = r#"{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"g"}"#;
    let again = r#"{"role":"user","content":"Again"}"#;
    let said = r#"{"role":"assistant","content":"So."}"#;
    let thought = r#"{"type":"thinking","thinking":"Hm","signature":"s"}"#;
    let anthropic =
        format!(r#"{{"role":"assistant","content":[{{"type":"text","text":"So."}},{thought}]}}"#);
    let bedrock = r#"{"role":"assistant","content":[{"text":"So."},{"reasoningContent":{"reasoningText":{"text":"Hm","signature":"s"}}}]}"#;
    let (first, last) = (
        r#"{"role":"user","content":[{"text":"Hi"}]}"#,
        r#"{"role":"user","content":[{"text":"Again"}]}"#,
    );
    for (provider, key, list, gone) in [
        (
            Provider::OpenAiResponses,
            "input",
            list(&[USER, reasoning, again]),
            "reasoning",
        ),
        (
            Provider::OpenAiResponses,
            "input",
            list(&[USER, said, reasoning, again]),
            "reasoning",
        ),
        // OpenAI refuses it before a message that has no id, too.
        (
            Provider::OpenAiResponses,
            "input",
            list(&[USER, reasoning, said, again]),
            "reasoning",
        ),
        (
            Provider::Anthropic,
            "messages",
            list(&[USER, &anthropic, again]),
            "thinking",
        ),
        (
            Provider::Bedrock,
            "messages",
            list(&[first, bedrock, last]),
            "reasoningContent",
        ),
    ] {
        let imported = request(&format!(r#"{{"{key}":{list}}}"#), provider).unwrap();
        for context in [&imported.context, &crate::make::reload(&imported.context)] {
            let body = sent(context, provider);
            // Our own messages of Anthropic and Bedrock have it before the words.
            let leads = key == "messages" && body.rfind(gone) < body.find("So.");
            assert!(leads || !body.contains(gone), "{body}");
            assert_eq!(body.contains("So."), list.contains("So."), "{body}");
        }
    }
}

/// Half a character in an escape is U+FFFD, in the history as in what goes back.
#[test]
fn half_a_character_keeps_no_history_out() {
    let body = r#"{"messages":[{"role":"user","content":"half \ud83d of it"},{"role":"assistant","tool_calls":[
        {"id":"t","type":"function","function":{"name":"f","arguments":"{\"b\":\"\\ude00\",\"a\":1}"}}]},
        {"role":"tool","tool_call_id":"t","content":"ok"}]}"#;
    let imported = request(body, Provider::OpenAiChat).unwrap();
    for provider in Provider::ALL {
        let body = sent(&imported.context, provider);
        assert!(body.contains("half \u{fffd} of it"), "{body}");
        assert!(!body.contains("ud83d"), "{body}");
        // OpenAI gets the arguments as the text that it sent.
        assert!(
            provider == Provider::OpenAiChat || !body.contains("ude00"),
            "{body}"
        );
    }
    let iteration = imported.context.iteration(1).unwrap();
    let (call, _) = iteration.calls().next().unwrap();
    assert_eq!(
        json::write(&call.arguments.value),
        "{\"a\":1,\"b\":\"\u{fffd}\"}"
    );
}

#[test]
fn gemini_takes_an_object_where_a_list_is_meant() {
    let body = |one: &str, content: &str| {
        format!(r#"{{"systemInstruction":{{"parts":{one}}},"contents":{content}}}"#)
    };
    let part = r#"{"text":"Hi"}"#;
    let list = format!("[{part}]");
    let content = |parts: &str| format!(r#"{{"role":"user","parts":{parts}}}"#);
    let wanted = request(
        &body(&list, &format!("[{}]", content(&list))),
        Provider::Gemini,
    )
    .unwrap();
    for (one, contents) in [
        (part, format!("[{}]", content(part))),
        (&*list, content(part)),
        (part, content(&list)),
    ] {
        let imported = request(&body(one, &contents), Provider::Gemini).unwrap();
        for provider in [Provider::Anthropic, Provider::OpenAiChat] {
            assert_eq!(
                sent(&imported.context, provider),
                sent(&wanted.context, provider)
            );
        }
    }
}

/// Arguments are JSON text within JSON: what no reader takes in them does not go back.
#[test]
fn half_of_a_character_in_arguments_is_replaced() {
    let table = [
        (
            r#"{\"a\":\"b\\ud83d\", \"c\":1}"#,
            r#"{"a":"b\ufffd", "c":1}"#,
        ),
        (r#"{\"a\":\"\\ude00\"}"#, r#"{"a":"\ufffd"}"#),
        // These go back as they came.
        (r#"{\"a\": \"\\ud83d\\ude00\"}"#, r#"{"a": "\ud83d\ude00"}"#),
        (r#"{\"a\":  1}"#, r#"{"a":  1}"#),
        (r"{}", r"{}"),
        ("", ""),
    ];
    for (given, expected) in table {
        let chat = format!(
            r#"{{"messages":[{{"role":"user","content":"Hi"}},{{"role":"assistant","content":null,"tool_calls":[{{"id":"abcdefghi","type":"function","function":{{"name":"f","arguments":"{given}"}}}}]}},{{"role":"tool","tool_call_id":"abcdefghi","content":"1"}}]}}"#
        );
        let responses = format!(
            r#"{{"input":[{{"role":"user","content":"Hi"}},{{"type":"function_call","call_id":"abcdefghi","name":"f","arguments":"{given}"}},{{"type":"function_call_output","call_id":"abcdefghi","output":"1"}}]}}"#
        );
        let bodies = [
            (Provider::OpenAiChat, &chat),
            (Provider::Mistral, &chat),
            (Provider::OpenAiResponses, &responses),
        ];
        for (provider, body) in bodies {
            let context = request(body, provider).unwrap().context;
            for context in [&context, &crate::make::reload(&context)] {
                let sent: serde_json::Value =
                    serde_json::from_str(&sent_with(context, &Options::new(provider))).unwrap();
                let call = sent.pointer("/messages/1/tool_calls/0/function/arguments");
                let arguments = call.or(sent.pointer("/input/1/arguments")).unwrap();
                assert_eq!(arguments.as_str().unwrap(), expected, "{provider:?}");
            }
        }
    }
}

/// Anthropic takes a system row after the user and before the model, and no two of them (verified live in pydantic-ai#6765).
#[test]
fn system_rows_of_anthropic_stand_after_the_user_and_before_the_model() {
    let row = |letter: char| match letter {
        'u' => r#"{"role":"user","content":"u"}"#,
        'a' => r#"{"role":"assistant","content":"a"}"#,
        's' => r#"{"role":"system","content":"s"}"#,
        _ => r#"{"role":"system","content":[{"type":"tool_addition","tool":{"name":"t"}}]}"#,
    };
    let lists = (1..5).flat_map(|length| {
        (0..4_usize.pow(length)).map(move |number| {
            let letter = |at| ['u', 'a', 's', 't'][number / 4_usize.pow(at) % 4];
            (0..length).map(letter).collect::<String>()
        })
    });
    for list in lists {
        let rows: Vec<_> = list.chars().map(row).collect();
        let body = format!(r#"{{"messages":[{}]}}"#, rows.join(","));
        let context = request(&body, Provider::Anthropic).unwrap().context;
        for context in [&context, &crate::make::reload(&context)] {
            let sent = sent_with(context, &Options::new(Provider::Anthropic));
            let sent: serde_json::Value = serde_json::from_str(&sent).unwrap();
            let messages = sent["messages"].as_array().unwrap();
            let roles = messages
                .iter()
                .map(|message| message["role"].as_str().unwrap());
            let roles: Vec<_> = roles.collect();
            for (at, _) in roles
                .iter()
                .enumerate()
                .filter(|(_, role)| **role == "system")
            {
                assert!(at > 0 && roles[at - 1] == "user", "{list}: {roles:?}");
                let next = roles.get(at + 1).copied();
                assert!(
                    matches!(next, None | Some("assistant")),
                    "{list}: {roles:?}"
                );
            }
            // Nothing is lost but a second row with tools before one answer, and a list that was right comes back as it was.
            let all = sent.to_string();
            let count = |what: &str| all.matches(what).count();
            for (letter, said) in [('u', r#""u""#), ('a', r#""a""#), ('s', r#""s""#)] {
                assert_eq!(count(said), list.matches(letter).count(), "{list}: {all}");
            }
            let turns = list.split('a').filter(|turn| turn.contains('t'));
            assert_eq!(count("addition"), turns.count(), "{list}: {all}");
            let is_right =
                ["us", "ut", "usa", "uta", "usau", "utau", "auta", "uaut"].contains(&&*list);
            if is_right && !list.starts_with('a') {
                assert_eq!(in_order(&sent.to_string()), in_order(&body), "{list}");
            }
        }
    }
}

/// The output of an asynchronous call may come in any later turn. It stays where it came, and other providers read
/// it there.
#[test]
fn late_outputs_of_asynchronous_calls_stay_where_they_came() {
    let list = |is_async: bool| {
        format!(
            r#"{{"input":[{{"role":"user","content":"Hi"}},
                {{"type":"function_call","call_id":"c1","name":"get","namespace":"n","arguments":"{{}}","async":{is_async}}},
                {{"role":"assistant","content":"It runs."}},
                {{"role":"user","content":"Well?"}},
                {{"role":"assistant","content":"Wait."}},
                {{"type":"function_call_output","call_id":"c1","output":"72"}},
                {{"role":"assistant","content":"72!"}},
                {{"role":"user","content":"Thanks"}}]}}"#
        )
    };
    let late = request(&list(true), Provider::OpenAiResponses).unwrap();
    assert_eq!(repairs(&late), []);
    for context in [&late.context, &crate::make::reload(&late.context)] {
        assert_eq!(
            sent(context, Provider::OpenAiResponses),
            in_order(&list(true))
        );
        let anthropic = sent(context, Provider::Anthropic);
        let at = |what| anthropic.find(what).unwrap();
        assert!(
            at("It runs.") < at("<late_result") && at("Wait.") < at("72") && at("72") < at("72!"),
            "{anthropic}"
        );
        // Written anew, it stands there too, and says whose it is.
        let options = Options {
            cache: true,
            ..Options::new(Provider::OpenAiResponses)
        };
        let anew: serde_json::Value = serde_json::from_str(&sent_with(context, &options)).unwrap();
        let output = &anew["input"][5];
        assert_eq!(output["type"], "function_call_output");
        assert_eq!(
            (&output["name"], &output["namespace"]),
            (&"get".into(), &"n".into())
        );
    }
    let moved = request(&list(false), Provider::OpenAiResponses).unwrap();
    assert_eq!(repairs(&moved), [(RepairKind::MovedResult, 5, "c1")]);
}

#[test]
fn an_output_may_name_its_tool_instead_of_its_call() {
    let body = r#"{"input":[{"role":"user","content":"Hi"},
        {"type":"function_call","call_id":"c1","name":"get","arguments":"{}"},
        {"type":"function_call","call_id":"c2","name":"put","arguments":"{}"},
        {"type":"function_call_output","name":"put","output":"stored"},
        {"type":"function_call_output","name":"get","output":"72"}]}"#;
    let imported = request(body, Provider::OpenAiResponses).unwrap();
    assert_eq!(repairs(&imported), []);
    assert_eq!(
        sent(&imported.context, Provider::OpenAiResponses),
        in_order(body)
    );
    let chat: serde_json::Value =
        serde_json::from_str(&sent(&imported.context, Provider::OpenAiChat)).unwrap();
    let results = [&chat["messages"][2], &chat["messages"][3]];
    let said = results.map(|result| (result["tool_call_id"].as_str(), result["content"].as_str()));
    assert_eq!(
        said,
        [(Some("c1"), Some("72")), (Some("c2"), Some("stored"))]
    );
}

#[test]
fn a_thread_of_anthropic_goes_on_after_the_message_that_it_keeps() {
    let body = r#"{"thread":{"type":"continue","previous_message_id":"msg_1"},"messages":[
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"72"}]},
        {"role":"user","content":"Well?"}]}"#;
    let imported = request(body, Provider::Anthropic).unwrap();
    assert_eq!(repairs(&imported), []);
    let options = Options {
        known: Known::Response("msg_1"),
        ..Options::new(Provider::Anthropic)
    };
    assert_eq!(
        in_order(&sent_with(&imported.context, &options)),
        in_order(body)
    );
    // Alone it is a whole conversation, for all.
    for provider in Provider::ALL {
        assert!(sent(&imported.context, provider).contains("unknown"));
    }
}
