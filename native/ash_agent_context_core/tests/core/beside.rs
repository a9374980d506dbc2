//! What providers say beside the words of an answer, and answers that do not say why they end.

use crate::make::{decode, import, json_sent, parts, reload, stream, with};

use ash_agent_context_core::{
    time, Content, Context, Dialect, Event, Fault, Framing, Map, Masks, Options, Part, PartKind,
    Provider, Reading, Response, Stamp, State, Value,
};
use serde_json::{json, Value as Json};

const CHAT: Provider = Provider::OpenAiChat;

fn choice(choice: Json) -> Json {
    json!({"choices": [choice]})
}

fn at(micros: i64) -> Stamp {
    Stamp::at(time::from_micros(micros).unwrap())
}

fn add(response: &Response) -> Context {
    Context::new("c", Value::text("?"), Value::Nil, at(0))
        .unwrap()
        .add_response(response, at(1))
        .unwrap()
}

/// What goes back in the next request for the answer.
fn sent(context: &Context, options: &Options<'_>) -> Json {
    let context = match context.current().count_pending() {
        0 => context.clone(),
        _ => context.interrupt(&Value::Nil, at(2)),
    };
    json_sent(&context, options)["messages"][1].clone()
}

/// The ids of the calls that wait for a result.
fn pending(response: &Response) -> Vec<Box<str>> {
    add(response).current().pending_ids()
}

fn about(response: &Response) -> String {
    let about = response.details().unwrap_or_default();
    ash_agent_context_core::json::write(&Value::Map(about))
}

fn texts(events: &[Event]) -> Vec<&str> {
    let texts = events.iter().filter_map(|event| match event {
        Event::Text { text, .. } => Some(&**text),
        _ => None,
    });
    texts.collect()
}

#[test]
fn the_delta_counts_where_a_chunk_has_the_whole_message_as_well() {
    let so_far = |delta: &str, message: &str, reason: Json| {
        json!({
            "choices": [{"index": 0, "delta": {"role": "assistant", "content": delta},
                "message": {"role": "assistant", "content": message}, "finish_reason": reason}],
            "citations": ["https://a.example"],
            "search_results": [{"title": "A", "url": "https://a.example"}],
        })
    };
    let lines = [
        so_far("1", "1", Json::Null),
        so_far(" 2", "1 2", Json::Null),
        so_far(" 3", "1 2 3", json!("stop")),
    ];
    let (response, events) = stream(CHAT, &lines);
    assert_eq!(texts(&events), ["1", " 2", " 3"]);
    assert_eq!(*response.state(), State::Complete);
    let kept = concat!(
        r#"{"citations":["https://a.example"],"#,
        r#""search_results":[{"title":"A","url":"https://a.example"}]}"#
    );
    assert_eq!(about(&response), kept);
    let context = add(&response);
    assert_eq!(
        sent(&context, &Options::new(CHAT)),
        json!({"role": "assistant", "content": "1 2 3"})
    );
    let stored = reload(&context);
    assert_eq!(stored, context);
    let reply = stored.current().last().unwrap().message.reply.clone();
    assert_eq!(reply.unwrap().details, response.details());
}

#[test]
fn annotations_stay_with_the_answer() {
    let cited = |url: &str| json!({"type": "url_citation", "url_citation": {"url": url}});
    let lines = [
        choice(json!({"delta": {"content": "a", "annotations": [cited("1")]}})),
        choice(json!({"delta": {"content": "b", "annotations": [cited("2"), cited("3")]}})),
        choice(json!({"delta": {}, "finish_reason": "stop"})),
    ];
    let message = json!({"content": "ab", "annotations": [cited("1"), cited("2"), cited("3")]});
    let answer = decode(
        CHAT,
        &choice(json!({"message": message, "finish_reason": "stop"})),
    );
    let (streamed, _) = stream(CHAT, &lines);
    assert_eq!(about(&streamed), about(&answer));
    assert_eq!(
        sent(&add(&answer), &Options::new(CHAT)),
        json!({"role": "assistant", "content": "ab"})
    );
    // OpenRouter parses no file again whose annotations come back.
    let options = with(CHAT, |of| of.dialect = Some(Dialect::OpenRouter));
    let back = json!({"role": "assistant", "content": "ab", "annotations": message["annotations"]});
    assert_eq!(sent(&add(&answer), &options), back);
}

#[test]
fn a_whole_answer_is_whole_whatever_it_gives_as_its_reason() {
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let message = json!({"content": null, "tool_calls": [call]});
    for reason in [json!(""), Json::Null] {
        let body = choice(json!({"message": message, "finish_reason": reason}));
        assert_eq!(pending(&decode(CHAT, &body)), [Box::from("c")]);
        assert_eq!(pending(&decode(Provider::Mistral, &body)), [Box::from("c")]);
    }
}

#[test]
fn done_completes_calls_but_none_that_broke_off() {
    let piece = |arguments: &str| {
        json!({"choices": [{"delta": {"tool_calls": [
            {"index": 0, "id": "c", "function": {"name": "f", "arguments": arguments}}]}}]})
    };
    let feed = |line: &Json| {
        let body = format!("data: {line}\n\ndata: [DONE]\n\n");
        let fresh = Response::new(&Reading::of(CHAT));
        fresh.feed(body.as_bytes(), usize::MAX).unwrap().0
    };
    for arguments in ["{\"a\":1}", "", "null"] {
        let response = feed(&piece(arguments));
        assert_eq!(*response.state(), State::Complete);
        assert_eq!(pending(&response), [Box::from("c")], "{arguments}");
    }
    for arguments in ["{\"a\":", "{\"a\":1", "nul"] {
        let response = feed(&piece(arguments));
        assert_eq!(*response.state(), State::Complete);
        assert!(pending(&response).is_empty(), "{arguments}");
    }
}

#[test]
fn null_and_nothing_are_no_arguments() {
    for arguments in ["null", " null ", ""] {
        let chat = json!({"message": {"tool_calls": [
            {"id": "c", "function": {"name": "f", "arguments": arguments}}]}, "finish_reason": "tool_calls"});
        let bedrock = [
            json!({"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "c", "name": "f"}}}}),
            json!({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": arguments}}}}),
            json!({"contentBlockStop": {"contentBlockIndex": 0}}),
            json!({"messageStop": {"stopReason": "tool_use"}}),
        ];
        let anthropic = [
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "c", "name": "f", "input": {}}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": arguments}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_stop"}),
        ];
        let item = json!({"type": "function_call", "id": "fc_c", "call_id": "c", "name": "f", "arguments": arguments});
        let ollama = json!({"message": {"tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}, "done": true});
        let answers = [
            decode(CHAT, &choice(chat.clone())),
            decode(Provider::Mistral, &choice(chat)),
            decode(
                Provider::OpenAiResponses,
                &json!({"status": "completed", "output": [item]}),
            ),
            decode(Provider::Ollama, &ollama),
            stream(Provider::Bedrock, &bedrock).0,
            stream(Provider::Anthropic, &anthropic).0,
        ];
        for answer in answers {
            let (message, _) = answer.message();
            let empty = Value::Map(Map::default());
            assert_eq!(
                message.calls[0].arguments.value,
                empty,
                "{:?}",
                answer.provider()
            );
        }
    }
}

#[test]
fn a_stream_is_one_under_the_content_type_of_a_document() {
    let chunk = choice(json!({"delta": {"content": "Hi"}, "finish_reason": "stop"}));
    let reading = Reading {
        framing: Framing::Json,
        ..Reading::of(CHAT)
    };
    for before in [
        "",
        " \n",
        ": wait\n\n",
        "id: 1\n",
        "event: message\n",
        "retry: 5\n\n",
    ] {
        let body = format!("{before}data: {chunk}\n\ndata: [DONE]\n\n");
        for size in [1, 3, body.len()] {
            let fresh = Response::new(&reading);
            let response = body.as_bytes().chunks(size).fold(fresh, |response, piece| {
                response.feed(piece, usize::MAX).unwrap().0
            });
            assert_eq!(*response.state(), State::Complete, "{before:?}, {size}");
        }
        assert_eq!(
            Response::decode(body.as_bytes(), &reading)
                .unwrap()
                .finish_reason()
                .unwrap()
                .name(),
            "stop"
        );
    }
    // Words that only begin in the same way are told at once, or when nothing more comes.
    for words in ["date", "error", "internal error", "event"] {
        assert!(
            Response::decode(words.as_bytes(), &reading).is_err(),
            "{words}"
        );
    }
    let wrong = Response::new(&reading).feed(b"internal error", usize::MAX);
    assert!(matches!(wrong, Err(Fault::Unreadable(_))));
}

#[test]
fn a_recording_goes_back_by_its_id() {
    let lines = [
        choice(
            json!({"delta": {"role": "assistant", "audio": {"id": "audio_1", "transcript": "Good "}}}),
        ),
        choice(json!({"delta": {"audio": {"data": "AAAA"}}})),
        choice(json!({"delta": {"audio": {"transcript": "day"}}})),
        choice(json!({"delta": {"audio": {"data": "BBBB", "expires_at": 5}}})),
        choice(json!({"delta": {}, "finish_reason": "stop"})),
    ];
    let (streamed, events) = stream(CHAT, &lines);
    assert_eq!(texts(&events), ["Good ", "day"]);
    let audio =
        json!({"id": "audio_1", "transcript": "Good day", "data": "AAAABBBB", "expires_at": 5});
    let message = json!({"content": null, "audio": audio});
    let answer = decode(
        CHAT,
        &choice(json!({"message": message, "finish_reason": "stop"})),
    );
    let recorded = |response: &Response| {
        let message = response.message().0;
        let parts = parts(&message.content);
        assert_eq!(parts[0].kind, PartKind::Text(b"Good day".to_vec().into()));
        let metadata = parts[0].provider_metadata.clone().unwrap();
        let Some(Value::List(data)) = metadata.get_named("audio_data") else {
            panic!()
        };
        data.iter().filter_map(Value::as_str).collect::<String>()
    };
    assert_eq!(recorded(&streamed), "AAAABBBB");
    assert_eq!(recorded(&answer), "AAAABBBB");
    let back = json!({"role": "assistant", "content": null, "audio": {"id": "audio_1"}});
    let context = add(&answer);
    assert_eq!(sent(&context, &Options::new(CHAT)), back);
    // Others read its words, and so does the model where something in them is hidden.
    let said =
        |text: &str| json!({"role": "assistant", "content": [{"type": "text", "text": text}]});
    assert_eq!(
        sent(&context, &Options::new(Provider::Mistral)),
        said("Good day")
    );
    let deepseek = with(CHAT, |of| of.dialect = Some(Dialect::Vllm));
    assert_eq!(sent(&context, &deepseek), said("Good day"));
    let masks = Masks::new([("day".into(), "night".into())]).unwrap();
    let masked = context.put_masks(masks, at(3).at);
    assert_eq!(sent(&masked, &Options::new(CHAT)), said("Good night"));
}

#[test]
fn a_whole_completion_may_have_a_delta_that_says_nothing() {
    let delta = json!({"role": "assistant", "content": ""});
    let message = json!({"role": "assistant", "content": "4"});
    let body = choice(json!({"message": message, "delta": delta, "finish_reason": "stop"}));
    assert_eq!(
        decode(CHAT, &body).message().0.content,
        Content::Text(b"4".to_vec().into())
    );
}

#[test]
fn a_refusal_goes_back_as_one() {
    let lines = [
        choice(json!({"delta": {"refusal": "I can"}})),
        choice(json!({"delta": {"refusal": "not."}})),
        choice(json!({"delta": {}, "finish_reason": "stop"})),
    ];
    let message = json!({"content": null, "refusal": "I cannot."});
    let answer = decode(
        CHAT,
        &choice(json!({"message": message, "finish_reason": "stop"})),
    );
    let (streamed, events) = stream(CHAT, &lines);
    assert_eq!(texts(&events), ["I can", "not."]);
    assert_eq!(streamed.message().0.content, answer.message().0.content);
    let context = add(&answer);
    let back = json!({"role": "assistant", "content": null, "refusal": "I cannot."});
    assert_eq!(sent(&context, &Options::new(CHAT)), back);
    let other = sent(&context, &Options::new(Provider::Ollama));
    assert_eq!(other, json!({"role": "assistant", "content": "I cannot."}));
    let masks = Masks::new([(".*".into(), "".into())]).unwrap();
    let masked = context.put_masks(masks, at(3).at);
    assert_eq!(sent(&masked, &Options::new(CHAT)), Json::Null);
}

#[test]
fn what_a_server_signs_a_message_with_goes_back() {
    let extra = json!({"google": {"thought_signature": "c2ln"}});
    let message = json!({"content": "Hi", "extra_content": extra});
    let mut body = choice(json!({"message": message, "finish_reason": "stop"}));
    body["model"] = json!("gemini");
    let context = add(&decode(CHAT, &body));
    let asked = |model| with(CHAT, |of| of.model = Some(model));
    assert_eq!(sent(&context, &asked("gemini"))["extra_content"], extra);
    assert_eq!(sent(&context, &asked("other")).get("extra_content"), None);
}

#[test]
fn images_of_an_answer_are_parts_of_it() {
    let url = "data:image/png;base64,iVBORw0KGgo=";
    let image = json!({"type": "image_url", "image_url": {"url": url}});
    let lines = [
        choice(json!({"delta": {"content": "Here"}})),
        choice(json!({"delta": {"content": "", "images": [image]}})),
        choice(json!({"delta": {}, "finish_reason": "stop"})),
    ];
    let message = json!({"content": "Here", "images": [image]});
    let answer = decode(
        CHAT,
        &choice(json!({"message": message, "finish_reason": "stop"})),
    );
    let (streamed, _) = stream(CHAT, &lines);
    assert_eq!(streamed.message().0.content, answer.message().0.content);
    let options = with(CHAT, |of| of.dialect = Some(Dialect::OpenRouter));
    let back = json!({"role": "assistant", "content": "Here", "images": [image]});
    assert_eq!(sent(&add(&answer), &options), back);
    // OpenAI takes none there.
    let told = sent(&add(&answer), &Options::new(CHAT));
    assert_eq!(told["content"][0]["text"], "Here");
    assert!(told.get("images").is_none());
}

// ---- Bedrock.

fn converse(content: &Json) -> Json {
    json!({"output": {"message": {"role": "assistant", "content": content}}, "stopReason": "end_turn"})
}

/// The events of blocks, each of which comes in pieces.
fn blocks(content: &[[Json; 2]]) -> Vec<Json> {
    let mut lines = Vec::new();
    for (index, [start, deltas]) in content.iter().enumerate() {
        if !start.is_null() {
            lines.push(json!({"contentBlockStart": {"contentBlockIndex": index, "start": start}}));
        }
        for delta in deltas.as_array().unwrap() {
            lines.push(json!({"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}}));
        }
        lines.push(json!({"contentBlockStop": {"contentBlockIndex": index}}));
    }
    lines.push(json!({"messageStop": {"stopReason": "end_turn"}}));
    lines
}

/// That an answer goes back as it came, whole, as a stream, and imported.
fn goes_back(content: &Json, streamed: &[[Json; 2]]) -> Response {
    let options = Options::new(Provider::Bedrock);
    let answer = decode(Provider::Bedrock, &converse(content));
    assert_eq!(sent(&add(&answer), &options)["content"], *content);
    let (stream, _) = stream(Provider::Bedrock, &blocks(streamed));
    assert_eq!(stream.message().0, answer.message().0);
    assert_eq!(sent(&add(&stream), &options)["content"], *content);
    let body = json!({"messages": [{"role": "user", "content": [{"text": "?"}]},
        {"role": "assistant", "content": content}]});
    let imported = import(&body.to_string(), Provider::Bedrock);
    // Made anew, as it is before a cache breakpoint.
    let anew = Options {
        cache: true,
        ..options
    };
    let mut made = sent(&imported, &anew)["content"].clone();
    made.as_array_mut()
        .unwrap()
        .retain(|block| block.get("cachePoint").is_none());
    assert_eq!(made, *content);
    answer
}

#[test]
fn a_call_is_bedrocks_own_only_where_it_says_so() {
    for kind in [
        Json::Null,
        json!("tool_use"),
        json!("new_tool_use"),
        json!("server_tool_use"),
    ] {
        let mut tool = json!({"toolUseId": "u", "name": "f"});
        if !kind.is_null() {
            tool["type"] = kind.clone();
        }
        let (stream, _) = stream(
            Provider::Bedrock,
            &blocks(&[[
                json!({"toolUse": tool}),
                json!([{"toolUse": {"input": "{\"a\":1}"}}]),
            ]]),
        );
        tool["input"] = json!({"a": 1});
        let content = json!([{"toolUse": tool}]);
        let answer = decode(Provider::Bedrock, &converse(&content));
        let body = json!({"messages": [{"role": "user", "content": [{"text": "?"}]},
            {"role": "assistant", "content": content}]});
        let imported = import(&body.to_string(), Provider::Bedrock);
        let expected: &[Box<str>] = match kind.as_str() {
            Some("server_tool_use") => &[],
            _ => &["u".into()],
        };
        assert_eq!(pending(&stream), expected, "{kind}");
        assert_eq!(pending(&answer), expected, "{kind}");
        assert_eq!(imported.current().pending_ids(), expected, "{kind}");
    }
}

#[test]
fn what_bedrock_ran_itself_goes_back() {
    let used = json!({"toolUse": {"toolUseId": "u", "name": "nova_grounding", "type": "server_tool_use", "input": {"q": "x"}}});
    let result = json!({"toolResult": {"toolUseId": "u", "status": "success", "type": "nova_grounding_result", "content": [{"text": "[HIDDEN]"}]}});
    let content = json!([used, result, {"text": "It is."}]);
    let mut start = used.clone();
    start["toolUse"].as_object_mut().unwrap().remove("input");
    let mut begun = result.clone();
    begun["toolResult"]
        .as_object_mut()
        .unwrap()
        .remove("content");
    let streamed = [
        [
            start,
            json!([{"toolUse": {"input": "{\"q\":"}}, {"toolUse": {"input": "\"x\"}"}}]),
        ],
        [begun, json!([{"toolResult": [{"text": "[HIDDEN]"}]}])],
        [Json::Null, json!([{"text": "It "}, {"text": "is."}])],
    ];
    goes_back(&content, &streamed);
}

#[test]
fn cited_text_is_text_and_goes_back_with_what_it_cites() {
    let cites = |page: u8| json!({"location": {"documentPage": {"documentIndex": 0, "start": page, "end": page + 1}}, "sourceContent": [{"text": "s"}], "title": "t"});
    let web = json!({"location": {"web": {"domain": "a.example", "url": "https://a.example"}}});
    let content = json!([
        {"text": "He said "},
        {"citationsContent": {"content": [{"text": "it is so"}], "citations": [cites(1), cites(3)]}},
        {"text": "."},
        {"citationsContent": {"citations": [web]}},
        {"text": " Yes"},
    ]);
    let streamed = [
        [Json::Null, json!([{"text": "He said "}])],
        [
            Json::Null,
            json!([{"citation": cites(1)}, {"text": "it is"}, {"text": " so"}, {"citation": cites(3)}]),
        ],
        [Json::Null, json!([{"text": "."}])],
        [Json::Null, json!([{"citation": web}])],
        [Json::Null, json!([{"text": " Yes"}])],
    ];
    let answer = goes_back(&content, &streamed);
    // Others read its words.
    let said = sent(&add(&answer), &Options::new(Provider::Ollama))["content"].clone();
    assert!(said.as_str().unwrap().contains("it is so"), "{said}");
}

#[test]
fn images_that_bedrock_streams_are_kept() {
    let image = |source: Json| json!({"image": {"format": "png", "source": source}});
    let streamed = [[
        json!({"image": {"format": "png"}}),
        json!([{"image": {"source": {"bytes": "iVBORw0KGgo="}}}]),
    ]];
    let (stream, _) = stream(Provider::Bedrock, &blocks(&streamed));
    let content = json!([image(json!({"bytes": "iVBORw0KGgo="}))]);
    let answer = decode(Provider::Bedrock, &converse(&content));
    assert_eq!(stream.message().0, answer.message().0);
    assert!(matches!(stream.message().0.content, Content::Parts(_)));
}

// ---- Mistral and Ollama.

#[test]
fn a_thought_goes_back_with_its_references() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let refers = |id: u8| json!({"type": "reference", "reference_ids": [id]});
    let thought = |pieces: Json| json!({"type": "thinking", "thinking": pieces});
    let mut content = json!([
        thought(json!([
            text("Söme"),
            refers(1),
            refers(2),
            text("more"),
            refers(3)
        ])),
        text("Hi"),
        refers(4),
    ]);
    content[0]["closed"] = json!(true);
    let body =
        |content: &Json| choice(json!({"message": {"content": content}, "finish_reason": "stop"}));
    let answer = decode(Provider::Mistral, &body(&content));
    let delta = |content: Json| choice(json!({"delta": {"content": content}}));
    let mut last = thought(json!([text("re"), refers(3)]));
    last["closed"] = json!(true);
    let lines = [
        delta(json!([thought(json!([text("Sö")]))])),
        delta(json!([thought(json!([text("me"), refers(1)]))])),
        delta(json!([thought(json!([refers(2), text("mo")]))])),
        delta(json!([last])),
        delta(json!([text("Hi"), refers(4)])),
        choice(json!({"delta": {"content": ""}, "finish_reason": "stop"})),
    ];
    let (streamed, _) = stream(Provider::Mistral, &lines);
    assert_eq!(streamed.message().0, answer.message().0);
    let options = Options::new(Provider::Mistral);
    for response in [&streamed, &answer] {
        assert_eq!(sent(&add(response), &options)["content"], content);
    }
    // As they are imported, so they are read.
    let messages = json!({"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": content}]});
    let read = import(&messages.to_string(), Provider::Mistral);
    let parts = read.current().last().unwrap().message.content.clone();
    assert_eq!(parts, answer.message().0.content);
}

#[test]
fn a_message_is_read_alike_in_an_answer_and_in_a_request() {
    let call = |more: Json| {
        let mut call =
            json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        call.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        call
    };
    let messages = [
        json!({"content": "Hi"}),
        json!({"content": null, "refusal": "No"}),
        json!({"content": "Well", "refusal": "No"}),
        json!({"content": [{"type": "text", "text": "Well"}, {"type": "refusal", "refusal": "No"}]}),
        json!({"content": null, "audio": {"id": "a", "transcript": "Hi"}}),
        json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Hi"}]}),
        json!({"content": "Hi", "reasoning_content": "hm"}),
        json!({"content": "Hi", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]}),
        json!({"content": [{"type": "image_url", "image_url": {"url": "https://a.example"}}]}),
        json!({"content": null, "tool_calls": [call(json!({}))]}),
        json!({"content": null, "tool_calls": [call(json!({"extra_content": {"google": {"thought_signature": "s"}}}))]}),
        json!({"content": null, "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": "text"}}]}),
        json!({"content": null, "tool_calls": [{"id": "c", "type": "new", "new": {"a": 1}}]}),
        json!({"content": null, "function_call": {"name": "f", "arguments": "{\"a\":1}"}}),
        json!({"content": "Hi", "function_call": {"name": "", "arguments": ""}, "audio": {"id": ""}}),
        json!({"content": null, "function_call": {"name": "", "arguments": ""}, "tool_calls": [call(json!({}))]}),
    ];
    for message in messages {
        for provider in [CHAT, Provider::Mistral] {
            let answer = decode(
                provider,
                &choice(json!({"message": message, "finish_reason": "stop"})),
            );
            let mut sent = message.clone();
            sent["role"] = json!("assistant");
            let body = json!({"messages": [{"role": "user", "content": "?"}, sent]});
            let read = import(&body.to_string(), provider);
            let read = &read.iteration(1).unwrap().entries().last().unwrap().message;
            let answer = add(&answer);
            let told = &answer
                .iteration(1)
                .unwrap()
                .entries()
                .last()
                .unwrap()
                .message;
            let parts = |content: &Content| match content {
                Content::Text(text) => vec![(PartKind::Text(text.clone()), None)],
                Content::Parts(parts) => {
                    let part = |part: &Part| (part.kind.clone(), part.provider_metadata.clone());
                    parts.iter().map(part).collect()
                }
                Content::None => Vec::new(),
            };
            assert_eq!(
                parts(&told.content),
                parts(&read.content),
                "{provider:?}: {message}"
            );
            assert_eq!(told.calls, read.calls, "{provider:?}: {message}");
        }
    }
}

#[test]
fn images_of_ollama_are_parts() {
    let body = json!({"message": {"content": "Here", "images": ["iVBORw0KGgo="]}, "done": true});
    let message = decode(Provider::Ollama, &body).message().0;
    assert!(parts(&message.content)[1].kind.media().is_some());
}

/// Servers that speak Anthropic's format without signing their thinking want it back; Anthropic refuses it.
#[test]
fn thinking_that_nobody_signed_goes_back_in_a_dialect_of_anthropic() {
    const OWN: Provider = Provider::Anthropic;
    let text = json!({"type": "text", "text": "Fine."});
    let call = json!({"type": "tool_use", "id": "t1", "name": "look", "input": {}});
    for signature in [None, Some("s1")] {
        for last in [&text, &call] {
            let mut thinking = json!({"type": "thinking", "thinking": "Hm."});
            if let Some(signature) = signature {
                thinking["signature"] = json!(signature);
            }
            let content = json!([thinking, last]);
            let message = json!({"type": "message", "model": "m", "role": "assistant", "content": content,
                "stop_reason": "end_turn"});
            let mut events = vec![
                json!({"type": "message_start", "message": {"model": "m", "content": []}}),
                json!({"type": "content_block_start", "index": 0, "content_block":
                    {"type": "thinking", "thinking": "", "signature": ""}}),
                json!({"type": "content_block_delta", "index": 0, "delta":
                    {"type": "thinking_delta", "thinking": "Hm."}}),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "content_block_start", "index": 1, "content_block": last}),
                json!({"type": "content_block_stop", "index": 1}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
                json!({"type": "message_stop"}),
            ];
            if let Some(signature) = signature {
                let delta = json!({"type": "signature_delta", "signature": signature});
                let delta = json!({"type": "content_block_delta", "index": 0, "delta": delta});
                events.insert(3, delta);
            }
            let user = json!({"role": "user", "content": "?"});
            let said = json!({"role": "assistant", "content": content});
            let done = json!({"role": "user", "content": "So?"});
            let messages = match last == &call {
                true => json!([user, said]),
                false => json!([user, said, done]),
            };
            let imported = import(&json!({"messages": messages}).to_string(), OWN);
            for context in [
                add(&decode(OWN, &message)),
                add(&stream(OWN, &events).0),
                imported,
            ] {
                let dialect = |one: Option<Dialect>| with(OWN, |options| options.dialect = one);
                for context in [reload(&context), context] {
                    let back = sent(&context, &dialect(Some(Dialect::DeepSeek)));
                    assert_eq!(back["content"], content, "{signature:?}");
                    let back = sent(&context, &dialect(None));
                    let is_kept = back.to_string().contains("Hm.");
                    assert_eq!(is_kept, signature.is_some(), "{back}");
                    let back = sent(&context, &Options::new(Provider::Bedrock));
                    assert!(!back.to_string().contains("Hm."), "{back}");
                }
            }
        }
    }
}
