//! What providers say of their answers beside the words, and what their next request has to name of it.

use crate::make::{
    self, bytes, conversation, defaults, json_sent, reload, stamp, value, with, Talk,
};
use crate::recorded;

use ash_agent_context_core::{
    json, ChangeKind, Content, Context, Fault, Finish, Map, Message, Options, PartKind, Provider,
    Reading, Response, State, Value,
};
use recorded::{frame, wholes};
use serde_json::{json, Value as Json};

fn decode(provider: Provider, body: &Json) -> Result<Response, Fault> {
    Response::decode(body.to_string().as_bytes(), &Reading::of(provider))
}

/// A stream of these documents, to its end.
fn stream(provider: Provider, lines: &[Json]) -> Result<Response, Fault> {
    let lines: Vec<String> = lines.iter().map(Json::to_string).collect();
    let response = Response::new(&Reading::of(provider));
    let (response, _) = response.feed(&frame(provider, &lines), usize::MAX)?;
    response.finish(usize::MAX).map(|(response, _)| response)
}

fn added(context: &Context, response: &Response) -> Context {
    context.add_response(response, stamp()).unwrap()
}

fn request_with(context: &Context, provider: Provider, body: &Json) -> Json {
    let Value::Map(body) = value(&body.to_string()) else {
        panic!("not a body");
    };
    let segments = context.encode_request(&Options::new(provider), &body);
    serde_json::from_slice(&bytes(&segments.unwrap())).unwrap()
}

fn request(context: &Context, provider: Provider) -> Json {
    request_with(context, provider, &json!({}))
}

fn details(context: &Context) -> Json {
    let iteration = context.iteration(1).unwrap();
    let entry = iteration.entries().nth(1).unwrap();
    let reply = entry.message.reply.as_deref().unwrap();
    let details = reply.details.clone().unwrap_or_default();
    serde_json::from_str(&json::write(&Value::Map(details))).unwrap()
}

fn gemini(parts: Json, more: Json) -> Json {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    let fields = candidate.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    json!({"candidates": [candidate]})
}

// ---- Gemini.

#[test]
fn enums_of_gemini_may_be_numbers() {
    let list = json!([
        gemini(json!([{"text": "1 "}]), json!({"finishReason": 0})),
        gemini(json!([{"text": "2"}]), json!({"finishReason": 2})),
    ]);
    let response = decode(Provider::Gemini, &list).unwrap();
    assert_eq!(response.finish_reason(), Some(Finish::Length));
    assert_eq!(response.finish_word(), Some("MAX_TOKENS"));
    assert_eq!(
        response.message().0.content,
        Content::Text(b"1 2"[..].into())
    );

    for (number, reason, word) in [
        (1, Finish::Stop, "STOP"),
        (7, Finish::ContentFilter, "PROHIBITED_CONTENT"),
        (9, Finish::Error, "MALFORMED_FUNCTION_CALL"),
        (77, Finish::Error, "77"),
    ] {
        let body = gemini(json!([{"text": "x"}]), json!({"finishReason": number}));
        let response = decode(Provider::Gemini, &body).unwrap();
        assert_eq!(response.finish_reason(), Some(reason), "{number}");
        assert_eq!(response.finish_word(), Some(word));
    }
    let blocked = json!({"promptFeedback": {"blockReason": 6}});
    let response = decode(Provider::Gemini, &blocked).unwrap();
    assert_eq!(response.finish_reason(), Some(Finish::ContentFilter));
    assert_eq!(response.finish_word(), Some("JAILBREAK"));
}

#[test]
fn a_whole_answer_of_gemini_needs_no_reason() {
    let call = json!([{"functionCall": {"name": "get", "args": {"a": 1}}}]);
    let body = gemini(call.clone(), json!({}));
    let response = decode(Provider::Gemini, &body).unwrap();
    assert_eq!(*response.state(), State::Complete);
    assert_eq!(response.finish_reason(), None);
    let context = added(&conversation("Hi"), &response);
    assert_eq!(context.iteration(1).unwrap().pending().count(), 1);

    // A stream without a reason broke off, whatever its framing.
    assert_eq!(
        stream(Provider::Gemini, std::slice::from_ref(&body)).unwrap_err(),
        Fault::CutOff
    );
    assert!(decode(Provider::Gemini, &json!([body])).is_err());
    // So did one that says nothing.
    for nothing in [gemini(json!([]), json!({})), json!({"responseId": "r"})] {
        assert!(decode(Provider::Gemini, &nothing).is_err(), "{nothing}");
    }
}

#[test]
fn sources_of_gemini_stay_with_the_message() {
    let grounding = json!({"webSearchQueries": ["fox"], "groundingChunks": [{"web": {"uri": "https://example.com"}}]});
    let citations = json!({"citationSources": [{"startIndex": 0, "endIndex": 3}]});
    let urls = json!({"urlMetadata": [{"retrievedUrl": "https://example.com"}]});
    let response = stream(
        Provider::Gemini,
        &[
            gemini(
                json!([{"text": "A "}]),
                json!({"groundingMetadata": {"webSearchQueries": ["?"]}, "citationMetadata": citations}),
            ),
            // The last word counts, and one that says nothing is none.
            gemini(
                json!([{"text": "fox"}]),
                json!({"groundingMetadata": grounding, "urlContextMetadata": urls}),
            ),
            gemini(
                json!([]),
                json!({"finishReason": "STOP", "finishMessage": "All said.", "groundingMetadata": {},
                    "citationMetadata": {"citationSources": []}}),
            ),
        ],
    )
    .unwrap();
    let context = added(&conversation("Hi"), &response);
    assert_eq!(
        details(&reload(&context)),
        json!({"groundingMetadata": grounding, "citationMetadata": citations, "urlContextMetadata": urls, "finishMessage": "All said."})
    );
    let sent = request(&context, Provider::Gemini);
    assert_eq!(
        sent["contents"][1],
        json!({"role": "model", "parts": [{"text": "A fox"}]})
    );
    // Nothing of it is something to count, and the answer is whole: only the user's next message is missing.
    let report = context
        .request_report(&Options::new(Provider::Gemini))
        .unwrap();
    let changes: Vec<_> = report.iter().map(|located| located.change.what).collect();
    assert_eq!(changes, [ChangeKind::AddedMessage]);
}

// ---- Anthropic.

fn anthropic(content: Json, more: Json) -> Json {
    let mut message = json!({"type": "message", "id": "msg_1", "role": "assistant", "model": "m", "content": content});
    let fields = message.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    message
}

/// A stream that ends as this message does.
fn streamed(more: Json) -> Response {
    stream(
        Provider::Anthropic,
        &[
            json!({"type": "message_start", "message": anthropic(json!([]), json!({"container": null, "stop_reason": null}))}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hm"}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_delta", "delta": more, "usage": {"output_tokens": 1}}),
            json!({"type": "message_stop"}),
        ],
    )
    .unwrap()
}

#[test]
fn why_anthropic_stopped_is_kept() {
    let stop = json!({"type": "refusal", "category": "cyber", "explanation": "No."});
    let context = added(
        &conversation("Hi"),
        &streamed(json!({"stop_reason": "refusal", "stop_details": stop, "stop_sequence": null})),
    );
    assert_eq!(details(&reload(&context)), json!({"stop_details": stop}));
    assert_eq!(
        request(&context, Provider::Anthropic)["container"],
        Json::Null
    );
}

#[test]
fn the_next_request_names_the_container() {
    let container = |id: &str| json!({"id": id, "expires_at": "2025-12-20T05:43:56Z"});
    let first = streamed(json!({"stop_reason": "end_turn", "container": container("container_1")}));
    let asked = conversation("Hi");
    let context = added(&asked, &first);
    assert_eq!(
        details(&context),
        json!({"container": container("container_1")})
    );

    let named = |context: &Context| {
        request(context, Provider::Anthropic)
            .get("container")
            .cloned()
    };
    let more = |context: &Context| context.user("More");
    assert_eq!(named(&asked), None);
    assert_eq!(named(&context), Some(json!("container_1")));
    // A later answer may run nothing, or run it elsewhere.
    let plain = added(
        &more(&context),
        &streamed(json!({"stop_reason": "end_turn"})),
    );
    assert_eq!(named(&reload(&plain)), Some(json!("container_1")));
    let other = anthropic(
        json!([]),
        json!({"stop_reason": "end_turn", "container": container("container_2")}),
    );
    let other = added(&more(&plain), &decode(Provider::Anthropic, &other).unwrap());
    assert_eq!(named(&other), Some(json!("container_2")));
    assert_eq!(named(&other.rewind(1).unwrap()), Some(json!("container_1")));
    assert_eq!(
        named(&other.fork("f", stamp().at)),
        Some(json!("container_2"))
    );
    // Nobody else knows of it.
    assert_eq!(request(&other, Provider::Gemini).get("container"), None);

    // What the caller says counts; skills are named in each request, and need the container's id with them.
    let skills = json!([{"type": "anthropic", "skill_id": "pptx"}]);
    for (said, sent) in [
        (json!(null), json!(null)),
        (json!("mine"), json!("mine")),
        (
            json!({"id": "mine", "skills": skills}),
            json!({"id": "mine", "skills": skills}),
        ),
        (
            json!({"skills": skills}),
            json!({"skills": skills, "id": "container_2"}),
        ),
        (
            json!({"id": null, "skills": skills}),
            json!({"skills": skills, "id": "container_2"}),
        ),
        // An object with nothing but the id is refused.
        (json!({}), json!("container_2")),
    ] {
        let body = request_with(
            &other,
            Provider::Anthropic,
            &json!({"max_tokens": 9, "container": said}),
        );
        assert_eq!(body["container"], sent);
        assert_eq!(body["max_tokens"], 9);
    }
}

#[test]
fn a_search_of_the_applications_own_finds_tools() {
    let call = json!([{"id": "t1", "name": "search_tools", "arguments": {"q": "weather"}}]);
    let found = json!([
        {"type": "provider_block", "provider": "anthropic", "data": {"type": "tool_reference", "tool_name": "get_weather"}},
        {"type": "provider_block", "provider": "anthropic", "data": {"type": "tool_reference", "tool_name": "get_wind"}},
    ]);
    let results = |found: &Json| make::results(&[("t1", value(&found.to_string()))]);
    let context = conversation("Hi").calls(&call.to_string());
    let answered = context.add_tool_results(results(&found), stamp()).unwrap();
    let references = json!([
        {"type": "tool_reference", "tool_name": "get_weather"},
        {"type": "tool_reference", "tool_name": "get_wind"},
    ]);
    let answered = reload(&answered);
    let sent = request(&answered, Provider::Anthropic);
    assert_eq!(
        sent["messages"][2]["content"],
        json!([{"type": "tool_result", "tool_use_id": "t1", "content": references}])
    );
    // All others read the names.
    for provider in Provider::ALL {
        let sent = request(&answered, provider).to_string();
        assert!(
            sent.contains("get_weather") && sent.contains("get_wind"),
            "{sent}"
        );
    }
    // An imported one is sent also when it has to be written anew.
    let body = json!({"messages": sent["messages"]}).to_string();
    let imported =
        Context::from_request(Value::text(&body), Provider::Anthropic, defaults()).unwrap();
    let options = with(Provider::Anthropic, |of| of.cache = true);
    let anew = json_sent(&imported.context, &options);
    assert_eq!(anew["messages"][2]["content"][0]["content"], references);

    // What cannot stand in a result is refused when it is given.
    for data in [
        json!({"type": "tool_use", "id": "x"}),
        json!({"type": "container_upload"}),
    ] {
        let block = json!([{"type": "provider_block", "provider": "anthropic", "data": data}]);
        assert!(
            context.add_tool_results(results(&block), stamp()).is_err(),
            "{data}"
        );
    }
}

// ---- Blocks of providers that an application gives.

#[test]
fn a_block_that_its_provider_would_refuse_is_refused() {
    let refused = json!([
        ["anthropic", "system", {"type": "image"}],
        ["anthropic", "user", {"type": "server_tool_use", "id": "s"}],
        ["anthropic", "user", {"type": "web_search_tool_result", "tool_use_id": "s"}],
        ["anthropic", "user", {"type": "tool_result", "tool_use_id": "t"}],
        ["anthropic", "user", {"type": "thinking", "thinking": "", "signature": "s"}],
        ["anthropic", "assistant", {"type": "tool_use", "id": "t", "name": "n", "input": {}}],
        ["anthropic", "assistant", {"type": "image"}],
        ["gemini", "system", {"inlineData": {}}],
        ["gemini", "user", {"functionResponse": {}}],
        ["gemini", "user", {"text": "hm", "thought": true}],
        ["gemini", "assistant", {"functionCall": {"name": "n"}}],
        ["bedrock", "system", {"image": {}}],
        ["bedrock", "user", {"toolResult": {"toolUseId": "t"}}],
        ["bedrock", "assistant", {"toolUse": {"toolUseId": "t", "type": "tool_use"}}],
        ["bedrock", "assistant", {"toolUse": {"toolUseId": "t"}}],
        ["openai_responses", "user", {"type": "function_call_output", "call_id": "t"}],
        ["openai_responses", "user", {"type": "reasoning", "id": "rs_1"}],
        ["openai_responses", "assistant", {"type": "function_call", "call_id": "t"}],
        ["openai_chat", "user", {"type": "refusal", "refusal": "No"}],
        ["mistral", "assistant", {"type": "image_url", "image_url": "https://example.com"}],
    ]);
    let taken = json!([
        ["anthropic", "system", {"type": "text", "text": "Be brief."}],
        ["anthropic", "user", {"type": "container_upload", "file_id": "f"}],
        ["anthropic", "assistant", {"type": "server_tool_use", "id": "s"}],
        ["anthropic", "assistant", {"type": "of_tomorrow"}],
        ["gemini", "user", {"fileData": {}, "videoMetadata": {}}],
        ["gemini", "assistant", {"toolCall": {"id": "s"}}],
        ["bedrock", "system", {"cachePoint": {"type": "default"}}],
        ["bedrock", "assistant", {"toolUse": {"toolUseId": "s", "type": "server_tool_use"}}],
        ["openai_responses", "user", {"type": "input_file", "file_id": "f"}],
        ["openai_responses", "assistant", {"type": "web_search_call", "id": "ws_1"}],
        ["openai_chat", "assistant", {"type": "refusal", "refusal": "No"}],
        ["mistral", "user", {"type": "document_url"}],
    ]);
    // Its provider, where it stands, and what it is.
    let add = |row: &Json| {
        let text = json!({"type": "text", "text": "x"});
        let block = json!({"type": "provider_block", "provider": row[0], "data": row[2]});
        let parts = value(&json!([text, block]).to_string());
        match row[1].as_str().unwrap() {
            "system" => Context::new("c", Value::text("Hi"), parts, stamp()),
            "user" => Context::new("c", parts, Value::Nil, stamp()),
            _ => conversation("Hi").add_assistant_message(
                parts,
                value(&json!([]).to_string()),
                stamp(),
            ),
        }
    };
    for row in refused.as_array().unwrap() {
        let error = add(row).unwrap_err();
        let at = ash_agent_context_core::Error::InvalidPart {
            position: 1,
            key: Value::atom("data"),
        };
        assert_eq!(error, at, "{row}");
    }
    for row in taken.as_array().unwrap() {
        let context = add(row);
        assert!(context.is_ok(), "{row}");
        reload(&context.unwrap());
    }
}

// ---- Answers, and the same as history.

/// A message without the model that was asked, which a history does not name.
fn said(message: &Message) -> (Content, Vec<(String, Option<Map>)>) {
    let calls = message.calls.iter();
    let calls = calls.map(|call| {
        (
            call.name.as_str().to_owned(),
            call.provider_metadata.clone(),
        )
    });
    let content = match &message.content {
        // One text has two forms.
        Content::Parts(parts) => match &**parts {
            [part] if part.provider_metadata.is_none() => match &part.kind {
                PartKind::Text(text) => Content::Text(text.clone()),
                _ => message.content.clone(),
            },
            [] => Content::None,
            _ => message.content.clone(),
        },
        content => content.clone(),
    };
    (content, calls.collect())
}

fn check_read_alike(provider: Provider, whole: &Json) {
    let answer = decode(provider, whole).unwrap();
    let body = match provider {
        Provider::Gemini => {
            let user = json!({"role": "user", "parts": [{"text": "Hi"}]});
            json!({"contents": [user, whole["candidates"][0]["content"]]})
        }
        _ => {
            let user = json!({"role": "user", "content": "Hi"});
            json!({"messages": [user, {"role": "assistant", "content": whole["content"]}]})
        }
    };
    let imported = Context::from_request(value(&body.to_string()), provider, defaults()).unwrap();
    let iteration = imported.context.iteration(1).unwrap();
    // One that says nothing is no history.
    let history = iteration.entries().nth(1);
    if let Some(history) = history {
        assert_eq!(said(&history.message), said(&answer.message().0), "{whole}");
    }
}

#[test]
fn an_answer_is_read_as_history_is() {
    let caller = json!({"type": "code_execution_20250825", "tool_id": "s1"});
    check_read_alike(
        Provider::Anthropic,
        &anthropic(
            json!([
                {"type": "thinking", "thinking": "Hm", "signature": "sig"},
                {"type": "redacted_thinking", "data": "opaque"},
                {"type": "text", "text": "Two", "citations": [{"type": "char_location", "cited_text": "2"}]},
                {"type": "text", "text": "Three", "citations": null},
                {"type": "server_tool_use", "id": "s1", "name": "code_execution", "input": {"code": "1"}, "caller": {"type": "direct"}},
                {"type": "tool_use", "id": "t1", "name": "roll", "input": {"n": 1}, "caller": caller, "toolset_name": "dice"},
                {"type": "tool_use", "id": "t2", "name": "roll", "input": {}},
                {"type": "code_execution_tool_result", "tool_use_id": "s1", "content": {"type": "code_execution_result", "stdout": "1"}},
                {"type": "mcp_tool_use", "id": "m1", "name": "ask", "server_name": "docs", "input": {}},
                {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": false, "content": []},
                {"type": "container_upload", "file_id": "f1"},
                {"type": "compaction", "content": "So far.", "encrypted_content": "e"},
                {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},
                {"type": "of_tomorrow", "x": [1]},
            ]),
            json!({"stop_reason": "tool_use"}),
        ),
    );
    check_read_alike(
        Provider::Gemini,
        &gemini(
            json!([
                {"text": "Hm", "thought": true, "thoughtSignature": "c2ln"},
                {"text": "Two", "thoughtSignature": "c2ln"},
                {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
                {"inlineData": {"mimeType": "image/png", "data": "aGk="}, "thoughtSignature": "c2ln"},
                {"inlineData": {"mimeType": "image/png", "data": "aGk="}, "thought": true},
                {"fileData": {"mimeType": "video/mp4", "fileUri": "https://example.com/v"}},
                {"executableCode": {"language": "PYTHON", "code": "1"}},
                {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
                {"toolCall": {"id": "s1", "toolType": "GOOGLE_SEARCH"}},
                {"toolResponse": {"id": "s1", "response": {}}},
                {"functionCall": {"id": "c1", "name": "get", "args": {"a": 1}}, "thoughtSignature": "c2ln"},
                {"functionCall": {"name": "get"}},
            ]),
            json!({"finishReason": "STOP"}),
        ),
    );
}

#[test]
fn recorded_answers_are_read_as_history_is() {
    for recorded in wholes() {
        let is_ours = matches!(recorded.provider, Provider::Anthropic | Provider::Gemini);
        let body: Json = match serde_json::from_slice(&recorded.body) {
            Ok(body) if is_ours => body,
            _ => continue,
        };
        let says = body.get("content").is_some() || body.get("candidates").is_some();
        if says {
            check_read_alike(recorded.provider, &body);
        }
    }
}

/// What Gemini made goes back to it as it came, an image as well.
#[test]
fn an_image_of_gemini_goes_back() {
    let image = json!({"inlineData": {"mimeType": "image/png", "data": "aGk="}});
    let thought = json!({"inlineData": {"mimeType": "image/png", "data": "aGk="}, "thought": true});
    let body = gemini(json!([thought, image]), json!({"finishReason": "STOP"}));
    let context = added(
        &conversation("Hi"),
        &decode(Provider::Gemini, &body).unwrap(),
    );
    let sent = request(&context, Provider::Gemini);
    assert_eq!(sent["contents"][1]["parts"], json!([thought, image]));
}

/// Anthropic takes rows of the system's behind the user's alone, whatever a view hides.
#[test]
fn a_row_that_adds_tools_never_comes_first() {
    let row = json!({"role": "system", "content": [
        {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "get"}}]});
    let body = json!({"messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "find", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "1"}]},
        row,
        {"role": "assistant", "content": "Done"},
        {"role": "user", "content": "More"},
    ]});
    let context = Context::from_request(value(&body.to_string()), Provider::Anthropic, defaults())
        .unwrap()
        .context;
    let roles = |context: &Context, options: &Options<'_>| {
        let messages = json_sent(context, options)["messages"]
            .as_array()
            .unwrap()
            .clone();
        let role = |message: &Json| message["role"].as_str().unwrap().to_owned();
        messages.iter().map(role).collect::<Vec<_>>().join(" ")
    };
    let plain = Options::new(Provider::Anthropic);
    assert_eq!(request(&context, Provider::Anthropic), body);
    let hidden = context.drop_range(1, 1, stamp().at);
    let since = Options {
        from: Some(2),
        ..plain.clone()
    };
    for cache in [false, true] {
        for (context, options) in [(&hidden, &plain), (&context, &since)] {
            let options = Options {
                cache,
                ..options.clone()
            };
            assert_eq!(roles(context, &options), "user system assistant user");
        }
    }
    // Nor behind the model, where what is hidden stood between them.
    let before = context
        .add_assistant_message(Value::text("So"), value(&json!([]).to_string()), stamp())
        .unwrap();
    let call = json!([{"id": "t2", "name": "find"}]);
    let called = before.user("And?").calls(&call.to_string());
    let row = json!([{"type": "provider_block", "provider": "anthropic", "data": row}]);
    let context = called
        .answers(&[("t2", Value::text("1"))])
        .add_user_message(value(&row.to_string()), stamp())
        .unwrap();
    assert_eq!(
        roles(&context, &plain),
        "user assistant user system assistant user assistant user assistant user system"
    );
    let hidden = context.drop_range(4, 4, stamp().at);
    assert_eq!(
        roles(&hidden, &plain),
        "user assistant user system assistant user assistant user system"
    );
}
