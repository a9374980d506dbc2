//! The order in which a model spoke and called: what came is sent back in it, whichever way it was read.

use crate::make::{conversation, defaults, feed, json_sent, reload, stamp, with, Talk};

use ash_agent_context_core::{
    json, ChangeKind, Context, Masks, Options, Provider, Reading, Response, Value, BODY_DEPTH,
};
use serde_json::{json, Value as Json};

const FOUR: [Provider; 4] = [
    Provider::Anthropic,
    Provider::Bedrock,
    Provider::Gemini,
    Provider::OpenAiResponses,
];

fn value(given: &Json) -> Value {
    json::read(given.to_string().as_bytes(), BODY_DEPTH).unwrap()
}

/// A piece of an answer: `t` a text, `r` reasoning, `c` a call, `s` and `o` the use of a tool that the provider runs and
/// what came of it.
fn pieces(provider: Provider, said: &str) -> Vec<Json> {
    let piece = |(at, letter): (usize, char)| {
        let (id, text) = (format!("{letter}_{at}"), format!("text {at}"));
        match (provider, letter) {
            (Provider::Anthropic, 't') => json!({"type": "text", "text": text}),
            (Provider::Anthropic, 'r') => {
                json!({"type": "thinking", "thinking": text, "signature": id})
            }
            (Provider::Anthropic, 'c') => {
                json!({"type": "tool_use", "id": id, "name": "f", "input": {}})
            }
            (Provider::Anthropic, 's') => {
                json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}})
            }
            (Provider::Anthropic, _) => {
                json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": []})
            }
            (Provider::Bedrock, 't') => json!({"text": text}),
            (Provider::Bedrock, 'r') => {
                json!({"reasoningContent": {"reasoningText": {"text": text, "signature": id}}})
            }
            (Provider::Bedrock, 'c') => {
                json!({"toolUse": {"toolUseId": id, "name": "f", "input": {}}})
            }
            (Provider::Bedrock, 's') => {
                json!({"toolUse": {"toolUseId": "s", "name": "nova_grounding", "input": {}, "type": "server_tool_use"}})
            }
            (Provider::Bedrock, _) => {
                json!({"toolResult": {"toolUseId": "s", "content": [], "type": "nova_grounding_result"}})
            }
            (Provider::Gemini, 't') => json!({"text": text, "thoughtSignature": "c2ln"}),
            (Provider::Gemini, 'r') => {
                json!({"text": text, "thought": true, "thoughtSignature": "c2ln"})
            }
            (Provider::Gemini, 'c') => {
                json!({"functionCall": {"id": id, "name": "f", "args": {}}, "thoughtSignature": "c2ln"})
            }
            (Provider::Gemini, 's') => {
                json!({"toolCall": {"id": "s", "toolType": "GOOGLE_SEARCH_WEB", "args": {}}})
            }
            (Provider::Gemini, _) => {
                json!({"toolResponse": {"id": "s", "toolType": "GOOGLE_SEARCH_WEB", "response": {}}})
            }
            (_, 't') => {
                json!({"type": "message", "role": "assistant", "id": format!("msg_{at}"), "status": "completed",
                       "content": [{"type": "output_text", "text": text, "annotations": []}]})
            }
            (_, 'r') => {
                json!({"type": "reasoning", "id": format!("rs_{at}"), "encrypted_content": "gAAA",
                       "summary": [{"type": "summary_text", "text": text}]})
            }
            (_, 'c') => {
                json!({"type": "function_call", "id": format!("fc_{at}"), "call_id": id, "name": "f", "arguments": "{}"})
            }
            (_, _) => {
                json!({"type": "mcp_call", "id": format!("mcp_{at}"), "name": "g", "server_label": "s",
                            "arguments": "{}", "output": "o"})
            }
        }
    };
    said.chars().enumerate().map(piece).collect()
}

fn whole(provider: Provider, pieces: &[Json]) -> Response {
    let body = match provider {
        Provider::Anthropic => {
            json!({"type": "message", "id": "m", "content": pieces, "stop_reason": "tool_use"})
        }
        Provider::Bedrock => {
            json!({"output": {"message": {"role": "assistant", "content": pieces}}, "stopReason": "tool_use"})
        }
        Provider::Gemini => {
            json!({"candidates": [{"content": {"role": "model", "parts": pieces}, "finishReason": "STOP"}]})
        }
        _ => json!({"id": "resp", "status": "completed", "output": pieces}),
    };
    Response::decode(body.to_string().as_bytes(), &Reading::of(provider)).unwrap()
}

fn bedrock_events(at: usize, block: &Json) -> Vec<Json> {
    let delta =
        |delta: Json| json!({"contentBlockDelta": {"contentBlockIndex": at, "delta": delta}});
    let start =
        |start: Json| json!({"contentBlockStart": {"contentBlockIndex": at, "start": start}});
    let mut events = match block.as_object().unwrap().iter().next().unwrap() {
        (key, text) if key == "text" => vec![delta(json!({"text": text}))],
        (key, of) if key == "reasoningContent" => vec![
            delta(json!({"reasoningContent": {"text": of["reasoningText"]["text"]}})),
            delta(json!({"reasoningContent": {"signature": of["reasoningText"]["signature"]}})),
        ],
        (key, of) => {
            let mut of = of.clone();
            let fields = of.as_object_mut().unwrap();
            fields.remove("input");
            fields.remove("content");
            let begun = start(json!({key: of}));
            match key == "toolUse" {
                true => vec![begun, delta(json!({"toolUse": {"input": "{}"}}))],
                false => vec![begun],
            }
        }
    };
    events.push(json!({"contentBlockStop": {"contentBlockIndex": at}}));
    events
}

fn anthropic_events(at: usize, block: &Json) -> Vec<Json> {
    let mut begun = block.clone();
    let kind = block["type"].as_str().unwrap();
    let mut deltas = Vec::new();
    match kind {
        "text" => {
            begun["text"] = json!("");
            deltas.push(json!({"type": "text_delta", "text": block["text"]}));
        }
        "thinking" => {
            begun["thinking"] = json!("");
            begun["signature"] = json!("");
            deltas.push(json!({"type": "thinking_delta", "thinking": block["thinking"]}));
            deltas.push(json!({"type": "signature_delta", "signature": block["signature"]}));
        }
        _ if block.get("input").is_some() => {
            begun["input"] = json!({});
            deltas.push(
                json!({"type": "input_json_delta", "partial_json": block["input"].to_string()}),
            );
        }
        _ => {}
    }
    let deltas = deltas
        .into_iter()
        .map(|delta| json!({"type": "content_block_delta", "index": at, "delta": delta}));
    std::iter::once(json!({"type": "content_block_start", "index": at, "content_block": begun}))
        .chain(deltas)
        .chain([json!({"type": "content_block_stop", "index": at})])
        .collect()
}

fn streamed(provider: Provider, pieces: &[Json]) -> Response {
    let numbered = || pieces.iter().enumerate();
    let lines: Vec<Json> = match provider {
        Provider::Anthropic => numbered()
            .flat_map(|(at, piece)| anthropic_events(at, piece))
            .chain([
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
                json!({"type": "message_stop"}),
            ])
            .collect(),
        Provider::Bedrock => numbered()
            .flat_map(|(at, piece)| bedrock_events(at, piece))
            .chain([json!({"messageStop": {"stopReason": "tool_use"}})])
            .collect(),
        Provider::Gemini => numbered()
            .map(|(_, piece)| json!({"candidates": [{"content": {"role": "model", "parts": [piece]}}]}))
            .chain([json!({"candidates": [{"finishReason": "STOP"}]})])
            .collect(),
        // All items begin before the first one ends, and the last one ends first.
        _ => numbered()
            .flat_map(|(at, item)| {
                let begun = json!({"type": item["type"], "call_id": item["call_id"], "name": item["name"]});
                let text = &item["content"][0]["text"];
                [
                    json!({"type": "response.output_item.added", "output_index": at, "item": begun}),
                    json!({"type": "response.output_text.delta", "output_index": at, "delta": text}),
                ]
            })
            .chain(numbered().rev().map(|(at, item)| {
                json!({"type": "response.output_item.done", "output_index": at, "item": item})
            }))
            .chain([json!({"type": "response.completed", "response": {"status": "completed"}})])
            .collect(),
    };
    feed(provider, &lines).0.finish(usize::MAX).unwrap().0
}

/// The conversation goes on: every call has its result.
fn answered(response: &Response) -> Context {
    let context = conversation("?");
    let context = context.add_response(response, stamp()).unwrap();
    let calls = response.message().0.calls;
    let fine = Value::text("fine");
    let results: Vec<_> = calls.iter().map(|call| (&*call.id, fine.clone())).collect();
    match results.is_empty() {
        true => context.user("and?"),
        false => context.answers(&results),
    }
}

/// What a body has of the model.
fn sent(context: &Context, provider: Provider) -> Vec<Json> {
    sent_with(context, &Options::new(provider))
}

fn sent_with(context: &Context, options: &Options<'_>) -> Vec<Json> {
    let body = json_sent(context, options);
    let list = |of: &Json| of.as_array().cloned().unwrap_or_default();
    let of_model = |of: &Json| of["role"] == "assistant" || of["role"] == "model";
    match options.provider {
        Provider::Anthropic | Provider::Bedrock => list(&body["messages"])
            .iter()
            .filter(|of| of_model(of))
            .flat_map(|of| list(&of["content"]))
            .collect(),
        Provider::Gemini => list(&body["contents"])
            .iter()
            .filter(|of| of_model(of))
            .flat_map(|of| list(&of["parts"]))
            .collect(),
        _ => list(&body["input"])
            .into_iter()
            .filter(|item| item["role"] != "user" && item["type"] != "function_call_output")
            .collect(),
    }
}

fn changes(context: &Context, provider: Provider) -> Vec<ChangeKind> {
    let report = context.request_report(&Options::new(provider)).unwrap();
    report
        .into_iter()
        .map(|located| located.change.what)
        .collect()
}

/// A request with the same conversation, imported.
fn imported(context: &Context, provider: Provider, pieces: &[Json]) -> Context {
    let mut body = json_sent(context, &Options::new(provider));
    match provider {
        Provider::Anthropic | Provider::Bedrock => body["messages"][1]["content"] = json!(pieces),
        Provider::Gemini => body["contents"][1]["parts"] = json!(pieces),
        _ => {
            let items = body["input"].as_array_mut().unwrap();
            items.splice(1..=pieces.len(), pieces.iter().cloned());
        }
    }
    let imported = Context::from_request(value(&body), provider, defaults()).unwrap();
    assert!(imported.repairs.is_empty(), "{:?}", imported.repairs);
    imported.context
}

/// A look in which nothing is sent as it was imported.
fn masked(context: &Context) -> Context {
    let masks = Masks::new([("nothing has this".into(), "x".into())]).unwrap();
    context.put_masks(masks, stamp().at)
}

fn check(provider: Provider, said: &str, order: &[usize], moved: usize) {
    let pieces = pieces(provider, said);
    let wanted: Vec<Json> = order.iter().map(|at| pieces[*at].clone()).collect();
    let is_served = provider == Provider::Bedrock && said.contains('o');
    let pair = match is_served {
        true => [streamed(provider, &pieces), streamed(provider, &pieces)],
        false => [whole(provider, &pieces), streamed(provider, &pieces)],
    };
    for response in &pair {
        let context = answered(response);
        assert_eq!(sent(&context, provider), wanted, "{provider:?} {said}");
        let told = changes(&context, provider);
        assert_eq!(
            told,
            vec![ChangeKind::MovedCall; moved],
            "{provider:?} {said}"
        );
        let loaded = reload(&context);
        assert_eq!(sent(&loaded, provider), wanted, "{provider:?} {said}");
        assert_eq!(
            sent(&masked(&loaded), provider),
            wanted,
            "{provider:?} {said}"
        );
        // Read as a request, it is the same conversation, and so it is where it is written anew.
        let again = imported(&context, provider, &pieces);
        assert_eq!(sent(&again, provider), wanted, "{provider:?} {said}");
        assert_eq!(
            sent(&masked(&again), provider),
            wanted,
            "{provider:?} {said}"
        );
    }
    let [one, other] = pair.map(|response| response.message().0);
    assert_eq!(
        (one.content, one.calls),
        (other.content, other.calls),
        "{provider:?} {said}"
    );
}

#[test]
fn parts_and_calls_go_back_as_they_came() {
    for said in ["rtc", "cc", "rcrc", "rtcrc", "tsort", "trt", "sotc", "sorc"] {
        let order: Vec<usize> = (0..said.len()).collect();
        for provider in FOUR {
            check(provider, said, &order, 0);
        }
    }
}

#[test]
fn calls_before_words_stay_where_they_are_taken() {
    for said in ["ct", "tctc", "rctrct"] {
        let order: Vec<usize> = (0..said.len()).collect();
        for provider in [
            Provider::Anthropic,
            Provider::Gemini,
            Provider::OpenAiResponses,
        ] {
            check(provider, said, &order, 0);
        }
    }
    check(Provider::Bedrock, "ct", &[1, 0], 1);
    check(Provider::Bedrock, "tctc", &[0, 2, 1, 3], 1);
    check(Provider::Bedrock, "rctrct", &[0, 2, 1, 3, 5, 4], 2);
}

#[test]
fn calls_before_what_the_provider_answers_stay_where_they_are_taken() {
    for said in ["cso", "rcsot"] {
        let order: Vec<usize> = (0..said.len()).collect();
        for provider in [Provider::Gemini, Provider::OpenAiResponses] {
            check(provider, said, &order, 0);
        }
    }
    for provider in [Provider::Anthropic, Provider::Bedrock] {
        check(provider, "cso", &[1, 2, 0], 1);
        check(provider, "rcsotrc", &[0, 2, 3, 4, 1, 5, 6], 1);
    }
}

#[test]
fn calls_stand_together_where_a_server_wants_them_so() {
    let provider = Provider::OpenAiResponses;
    let pieces = pieces(provider, "tctc");
    let context = answered(&whole(provider, &pieces));
    let options = with(provider, |of| of.model = Some("deepseek-v4-flash"));
    let wanted: Vec<Json> = [0, 2, 1, 3].map(|at| pieces[at].clone()).into();
    assert_eq!(sent_with(&context, &options), wanted);
    let report = context.request_report(&options).unwrap();
    let told = report.into_iter().map(|located| located.change.what);
    assert_eq!(told.collect::<Vec<_>>(), [ChangeKind::MovedCall]);
}

#[test]
fn no_message_ends_with_thinking() {
    for provider in [Provider::Anthropic, Provider::Bedrock] {
        let pieces = pieces(provider, "rtr");
        let context = answered(&whole(provider, &pieces));
        assert_eq!(sent(&context, provider), pieces[..2]);
        assert_eq!(changes(&context, provider), [ChangeKind::DroppedThinking]);
    }
}

#[test]
fn thinking_of_a_message_that_was_put_together_comes_before_its_texts() {
    let metadata = json!({"provider": "anthropic", "signature": "sig"});
    let parts = json!([
        {"type": "text", "text": "So."},
        {"type": "thinking", "text": "Hm", "provider_metadata": metadata},
    ]);
    let context = conversation("?");
    let context = context
        .add_assistant_message(value(&parts), Value::Nil, stamp())
        .unwrap();
    let sent = sent(&context, Provider::Anthropic);
    let kinds: Vec<&Json> = sent.iter().map(|block| &block["type"]).collect();
    assert_eq!(kinds, ["thinking", "text"]);
    assert_eq!(
        changes(&context, Provider::Anthropic),
        [ChangeKind::MovedPart]
    );
}

#[test]
fn calls_keep_their_places_where_parts_are_masked() {
    let masks = || Masks::new([("web_search|GOOGLE|^g$".into(), "x".into())]).unwrap();
    for provider in [
        Provider::Anthropic,
        Provider::Gemini,
        Provider::OpenAiResponses,
    ] {
        let pieces = pieces(provider, "sotct");
        let context = answered(&whole(provider, &pieces));
        let context = context.put_masks(masks(), stamp().at);
        assert_eq!(sent(&context, provider), pieces[2..], "{provider:?}");
    }
}

#[test]
fn calls_keep_their_places_where_an_answer_breaks_off() {
    let provider = Provider::Anthropic;
    let pieces = pieces(provider, "tsctc");
    let numbered = pieces.iter().enumerate();
    let lines: Vec<Json> = numbered
        .flat_map(|(at, piece)| anthropic_events(at, piece))
        .collect();
    let response = feed(provider, &lines).0.interrupt(Value::text("closed"));
    let context = conversation("?");
    let context = context.add_response(&response, stamp()).unwrap();
    let wanted: Vec<Json> = [0, 2, 3, 4].map(|at| pieces[at].clone()).into();
    assert_eq!(sent(&context, provider), wanted);
}
