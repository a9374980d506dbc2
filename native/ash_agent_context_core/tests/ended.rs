//! Which calls may run, by how their answer ended: each provider's words, whole and in any cut.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::expect_used
)]

#[path = "support/recorded.rs"]
#[allow(dead_code)]
mod recorded;

use ash_agent_context_core::{
    json as terms, time, CallStatus, Context, Event, Finish, Options, Provider, Reading, Response,
    Stamp, State, Status, Value,
};
use proptest::prelude::*;
use recorded::frame;
use serde_json::{json, Value as Json};

fn stamp() -> Stamp {
    Stamp::at(time::from_micros(0).unwrap())
}

fn question() -> Context {
    Context::new("c", Value::text("?"), Value::Nil, stamp()).unwrap()
}

fn add(response: &Response) -> Context {
    question().add_response(response, stamp()).unwrap()
}

fn decode(provider: Provider, whole: &Json) -> Response {
    Response::decode(whole.to_string().as_bytes(), &Reading::of(provider)).unwrap()
}

fn body(provider: Provider, events: &[Json]) -> Vec<u8> {
    let lines: Vec<String> = events.iter().map(Json::to_string).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    frame(provider, &lines)
}

/// A stream in pieces that end at these places, to its end.
fn feed(provider: Provider, body: &[u8], places: &[prop::sample::Index]) -> (Response, Vec<Event>) {
    let mut ends: Vec<usize> = places
        .iter()
        .map(|place| place.index(body.len() + 1))
        .collect();
    ends.extend([0, body.len()]);
    ends.sort_unstable();
    let mut response = Response::new(&Reading::of(provider));
    let mut events = Vec::new();
    for piece in ends.windows(2) {
        let (next, more) = response
            .feed(&body[piece[0]..piece[1]], usize::MAX)
            .unwrap();
        response = next;
        events.extend(more);
    }
    let (response, more) = response.finish(usize::MAX).unwrap();
    events.extend(more);
    (response, events)
}

fn pending(context: &Context) -> Vec<String> {
    let ids = context.current().pending_ids().into_iter();
    ids.map(Into::into).collect()
}

fn cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..6)
}

/// Each call of the first iteration: how it ended, and what the model reads of it.
fn outcomes(context: &Context) -> Vec<Option<(Status, String)>> {
    let iteration = context.iteration(1).unwrap();
    let outcomes = iteration.calls().map(|(_, outcome)| {
        outcome.map(|outcome| {
            let words = outcome.text().unwrap_or_default();
            (outcome.status, String::from_utf8_lossy(words).into_owned())
        })
    });
    outcomes.collect()
}

/// The messages of the next request; calls that wait are interrupted.
fn sent(context: &Context, provider: Provider) -> Json {
    let ready = context.without_pending();
    let context = ready.as_ref().unwrap_or(context);
    let segments = context.encode_request(&Options::new(provider), &Default::default());
    let bytes: Vec<u8> = segments
        .unwrap()
        .iter()
        .flat_map(|segment| segment.bytes().to_vec())
        .collect();
    serde_json::from_slice(&bytes).unwrap()
}

// ---- Each provider's words.

/// An answer with two complete calls and this word for its end: the documents of a stream, and the whole.
fn forms(provider: Provider, word: &Json) -> (Vec<Json>, Json) {
    let ids = ["t1", "t2"];
    match provider {
        Provider::Anthropic => {
            let used = |id| json!({"type": "tool_use", "id": id, "name": "pay", "input": {}});
            let mut events = vec![json!({"type": "message_start", "message": {"content": []}})];
            for (index, id) in ids.iter().enumerate() {
                events.push(json!({"type": "content_block_start", "index": index, "content_block": used(id)}));
                events.push(json!({"type": "content_block_delta", "index": index,
                    "delta": {"type": "input_json_delta", "partial_json": "{\"eur\":9}"}}));
                events.push(json!({"type": "content_block_stop", "index": index}));
            }
            events.push(json!({"type": "message_delta", "delta": {"stop_reason": word}}));
            events.push(json!({"type": "message_stop"}));
            let block =
                |id| json!({"type": "tool_use", "id": id, "name": "pay", "input": {"eur": 9}});
            let whole = json!({"type": "message", "content": ids.map(block), "stop_reason": word});
            (events, whole)
        }
        Provider::Bedrock => {
            let mut events = vec![json!({"messageStart": {"role": "assistant"}})];
            for (index, id) in ids.iter().enumerate() {
                events.push(json!({"contentBlockStart": {"contentBlockIndex": index,
                    "start": {"toolUse": {"toolUseId": id, "name": "pay"}}}}));
                events.push(json!({"contentBlockDelta": {"contentBlockIndex": index,
                    "delta": {"toolUse": {"input": "{\"eur\":9}"}}}}));
                events.push(json!({"contentBlockStop": {"contentBlockIndex": index}}));
            }
            events.push(json!({"messageStop": {"stopReason": word}}));
            let block =
                |id| json!({"toolUse": {"toolUseId": id, "name": "pay", "input": {"eur": 9}}});
            let message = json!({"role": "assistant", "content": ids.map(block)});
            (
                events,
                json!({"output": {"message": message}, "stopReason": word}),
            )
        }
        Provider::Gemini => {
            let part = |id| json!({"functionCall": {"id": id, "name": "pay", "args": {"eur": 9}}});
            let answer = |parts: Vec<Json>, word: &Json| json!({"candidates": [{"content": {"parts": parts}, "finishReason": word}]});
            let mut events: Vec<Json> = ids
                .iter()
                .map(|id| answer(vec![part(*id)], &Json::Null))
                .collect();
            events.push(answer(Vec::new(), word));
            (events, answer(ids.map(part).to_vec(), word))
        }
        Provider::Ollama => {
            let call =
                |id: &str| json!({"id": id, "function": {"name": "pay", "arguments": {"eur": 9}}});
            let line = |calls: Vec<Json>, more: Json| {
                let mut line = json!({"message": {"role": "assistant", "content": "", "tool_calls": calls}, "done": false});
                line.as_object_mut()
                    .unwrap()
                    .extend(more.as_object().unwrap().clone());
                line
            };
            let end = json!({"done": true, "done_reason": word});
            let mut events: Vec<Json> = ids
                .iter()
                .map(|id| line(vec![call(id)], json!({})))
                .collect();
            events.push(line(Vec::new(), end.clone()));
            (events, line(ids.map(call).to_vec(), end))
        }
        Provider::OpenAiResponses => responses(word),
        Provider::OpenAiChat | Provider::Mistral => {
            let chunk = |delta: Json, word: &Json| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": word}]});
            let call = |index: usize, id: &str, arguments: &str| {
                json!({"index": index, "id": id, "type": "function",
                    "function": {"name": "pay", "arguments": arguments}})
            };
            let mut events = Vec::new();
            for (index, id) in ids.iter().enumerate() {
                events.push(chunk(
                    json!({"tool_calls": [call(index, id, "")]}),
                    &Json::Null,
                ));
                let more = json!({"index": index, "function": {"arguments": "{\"eur\":9}"}});
                events.push(chunk(json!({"tool_calls": [more]}), &Json::Null));
            }
            events.push(chunk(json!({}), word));
            let calls = [call(0, "t1", "{\"eur\":9}"), call(1, "t2", "{\"eur\":9}")];
            let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
            let whole =
                json!({"choices": [{"index": 0, "message": message, "finish_reason": word}]});
            (events, whole)
        }
    }
}

/// The word is a status, or the reason of one that is incomplete.
fn responses(word: &Json) -> (Vec<Json>, Json) {
    let call = |id: &str| {
        json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "pay",
            "arguments": "{\"eur\":9}", "status": "completed"})
    };
    let mut whole = json!({"object": "response", "id": "r", "output": [call("t1"), call("t2")]});
    match word.as_str() {
        None => {}
        Some(status @ ("completed" | "cancelled")) => whole["status"] = json!(status),
        Some(reason) => {
            whole["status"] = json!("incomplete");
            whole["incomplete_details"] = json!({"reason": reason});
        }
    }
    let mut events = Vec::new();
    for (index, id) in ["t1", "t2"].iter().enumerate() {
        let mut open = call(id);
        open["arguments"] = json!("");
        events.push(
            json!({"type": "response.output_item.added", "output_index": index, "item": open}),
        );
        events.push(json!({"type": "response.function_call_arguments.delta", "output_index": index, "delta": "{\"eur\":9}"}));
        events.push(
            json!({"type": "response.output_item.done", "output_index": index, "item": call(id)}),
        );
    }
    let closed = match whole["status"].as_str() {
        Some("incomplete") => "response.incomplete",
        _ => "response.completed",
    };
    events.push(json!({"type": closed, "response": whole}));
    (events, whole)
}

/// A word, and the reason that it means beside calls.
type Word = (&'static str, Finish);

/// What is known of each vendor's words, from the types of its SDK and from servers with the same API. A word that its vendor does not
/// know ends the calls where the vendor's list is closed.
fn words() -> Vec<(Provider, Option<&'static str>, Option<Finish>)> {
    use Finish::{ContentFilter, Error, Length, Pause, Refusal, ToolCalls};
    let chat = [
        ("stop", ToolCalls),
        ("tool_calls", ToolCalls),
        ("function_call", ToolCalls),
        ("eos", ToolCalls),
        ("of_tomorrow", ToolCalls),
        ("length", Length),
        ("model_length", Length),
        ("content_filter", ContentFilter),
        ("content_filter: PROHIBITED_CONTENT", ContentFilter),
        ("sensitive", ContentFilter),
        ("SAFETY", ContentFilter),
        ("guardrail_intervened", ContentFilter),
        ("refusal", Refusal),
        ("error", Error),
        ("insufficient_system_resource", Error),
        ("network_error", Error),
        ("function_call_filter: MALFORMED_FUNCTION_CALL", Error),
    ];
    let anthropic = [
        ("end_turn", ToolCalls),
        ("stop_sequence", ToolCalls),
        ("tool_use", ToolCalls),
        ("max_tokens", Length),
        ("model_context_window_exceeded", Length),
        ("pause_turn", Pause),
        ("compaction", Pause),
        ("refusal", Refusal),
        ("content_filter", ContentFilter),
        ("of_tomorrow", Error),
    ];
    let bedrock = [
        ("end_turn", ToolCalls),
        ("stop_sequence", ToolCalls),
        ("tool_use", ToolCalls),
        ("max_tokens", Length),
        ("model_context_window_exceeded", Length),
        ("guardrail_intervened", ContentFilter),
        ("content_filtered", ContentFilter),
        ("malformed_model_output", Error),
        ("malformed_tool_use", Error),
        ("of_tomorrow", Error),
    ];
    let gemini = [
        ("STOP", ToolCalls),
        ("stop", ToolCalls),
        ("FINISH_REASON_UNSPECIFIED", ToolCalls),
        ("MAX_TOKENS", Length),
        ("CONTINUATION", Length),
        ("SAFETY", ContentFilter),
        ("RECITATION", ContentFilter),
        ("LANGUAGE", ContentFilter),
        ("BLOCKLIST", ContentFilter),
        ("PROHIBITED_CONTENT", ContentFilter),
        ("SPII", ContentFilter),
        ("IMAGE_SAFETY", ContentFilter),
        ("IMAGE_PROHIBITED_CONTENT", ContentFilter),
        ("IMAGE_RECITATION", ContentFilter),
        ("ESCALATION", ContentFilter),
        ("PUP_LIMITED_DISABLED", ContentFilter),
        ("MODEL_ARMOR", ContentFilter),
        ("OTHER", Error),
        ("IMAGE_OTHER", Error),
        ("NO_IMAGE", Error),
        ("MALFORMED_FUNCTION_CALL", Error),
        ("UNEXPECTED_TOOL_CALL", Error),
        ("TOO_MANY_TOOL_CALLS", Error),
        ("MISSING_THOUGHT_SIGNATURE", Error),
        ("MALFORMED_RESPONSE", Error),
        ("OF_TOMORROW", Error),
    ];
    let responses = [
        ("completed", ToolCalls),
        ("max_output_tokens", Length),
        ("max_messages", Length),
        ("steered", Length),
        ("content_filter", ContentFilter),
        ("cancelled", Error),
    ];
    let ollama = [("stop", ToolCalls), ("load", ToolCalls), ("length", Length)];
    let tables: [(Provider, &[Word], Option<Finish>); 7] = [
        (Provider::OpenAiChat, &chat, None),
        (Provider::Mistral, &chat, None),
        (Provider::Anthropic, &anthropic, None),
        (Provider::Bedrock, &bedrock, None),
        (Provider::Gemini, &gemini, None),
        // These two are complete when they say nothing else.
        (Provider::OpenAiResponses, &responses, Some(ToolCalls)),
        (Provider::Ollama, &ollama, Some(ToolCalls)),
    ];
    let rows = tables.into_iter().flat_map(|(provider, words, missing)| {
        let words = words
            .iter()
            .map(move |(word, finish)| (provider, Some(*word), Some(*finish)));
        words.chain([(provider, None, missing)])
    });
    rows.collect()
}

/// A stream of these two needs a reason before the body ends.
fn streams_without_reason(provider: Provider) -> bool {
    !matches!(provider, Provider::Gemini | Provider::Bedrock)
}

/// The calls that may run after an end.
fn expected(provider: Provider, finish: Option<Finish>) -> &'static [&'static str] {
    match finish {
        Some(Finish::ContentFilter | Finish::Refusal | Finish::Error) => &[],
        // Nothing there says that the last call is complete.
        Some(Finish::Length) if matches!(provider, Provider::OpenAiChat | Provider::Mistral) => {
            &["t1"]
        }
        _ => &["t1", "t2"],
    }
}

fn check(provider: Provider, word: Option<&str>, finish: Option<Finish>, response: &Response) {
    let row = format!("{provider:?} {word:?} {:?}", response.state());
    assert_eq!(*response.state(), State::Complete, "{row}");
    assert_eq!(response.finish_reason(), finish, "{row}");
    if let Some(word) = word {
        let kept = response.finish_word().unwrap_or_default();
        assert!(kept.contains(word), "{row}: {kept}");
    }
    let context = add(response);
    let expected = expected(provider, finish);
    assert_eq!(pending(&context), expected, "{row}");
    // The recorded answer is kept, and a call that does not run says so to the model.
    let calls = outcomes(&context);
    assert_eq!(calls.len(), 2, "{row}");
    for outcome in calls.into_iter().skip(expected.len()) {
        let (status, words) = outcome.unwrap();
        assert_eq!(status, Status::Interrupted, "{row}");
        assert!(words.ends_with("It was not run."), "{row}: {words}");
        let ended = match finish {
            Some(Finish::Error) => "malformed or failed",
            Some(Finish::Length) => "limit of tokens",
            _ => "refused or filtered",
        };
        assert!(words.contains(ended), "{row}: {words}");
    }
    let again = Context::from_snapshot(&context.to_snapshot()).unwrap();
    assert_eq!(again, context, "{row}");
}

#[test]
fn the_word_of_an_end_decides_whether_calls_run() {
    for (provider, word, finish) in words() {
        let (events, whole) = forms(provider, &json!(word));
        check(provider, word, finish, &decode(provider, &whole));
        if word.is_some() || streams_without_reason(provider) {
            let body = body(provider, &events);
            check(provider, word, finish, &feed(provider, &body, &[]).0);
        }
    }
}

#[test]
fn numbers_of_gemini_from_three_on_end_the_calls() {
    for number in 0..40 {
        let (_, whole) = forms(Provider::Gemini, &json!(number));
        let context = add(&decode(Provider::Gemini, &whole));
        let expected: &[&str] = if number < 3 { &["t1", "t2"] } else { &[] };
        assert_eq!(pending(&context), expected, "{number}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn and_so_it_does_in_any_cut(
        (provider, word, finish) in prop::sample::select(words()),
        places in cuts(),
    ) {
        prop_assume!(word.is_some() || streams_without_reason(provider));
        let (events, whole) = forms(provider, &json!(word));
        let (streamed, _) = feed(provider, &body(provider, &events), &places);
        check(provider, word, finish, &streamed);
        prop_assert_eq!(outcomes(&add(&streamed)), outcomes(&add(&decode(provider, &whole))));
    }
}

/// What refuses is the model's own words, wherever they stand beside calls and whatever it gives as its reason.
#[test]
fn a_refusal_in_words_ends_the_calls() {
    let said = json!({"choices": [{"index": 0, "delta": {"refusal": "I will not."}}]});
    for word in [
        json!("stop"),
        json!("tool_calls"),
        json!("length"),
        Json::Null,
    ] {
        for provider in [Provider::OpenAiChat, Provider::Mistral] {
            let (events, mut whole) = forms(provider, &word);
            let mut streams = Vec::new();
            for place in [0, events.len() - 1, events.len()] {
                let mut events = events.clone();
                events.insert(place, said.clone());
                streams.push(feed(provider, &body(provider, &events), &[]).0);
            }
            whole["choices"][0]["message"]["refusal"] = json!("I will not.");
            streams.push(decode(provider, &whole));
            for response in streams {
                assert_eq!(response.finish_reason(), Some(Finish::Refusal), "{word}");
                let context = add(&response);
                assert!(pending(&context).is_empty(), "{word}");
                assert_eq!(outcomes(&context).len(), 2);
            }
        }
    }
    let (mut events, mut whole) = forms(Provider::OpenAiResponses, &json!("completed"));
    let item = json!({"type": "message", "id": "m", "role": "assistant", "status": "completed",
        "content": [{"type": "refusal", "refusal": "I will not."}]});
    whole["output"].as_array_mut().unwrap().push(item.clone());
    let end = events.len() - 1;
    events[end]["response"] = whole.clone();
    events.insert(
        end,
        json!({"type": "response.output_item.done", "output_index": 2, "item": item}),
    );
    let body = body(Provider::OpenAiResponses, &events);
    for response in [
        decode(Provider::OpenAiResponses, &whole),
        feed(Provider::OpenAiResponses, &body, &[]).0,
    ] {
        assert_eq!(response.finish_reason(), Some(Finish::Refusal));
        assert!(pending(&add(&response)).is_empty());
    }
}

/// Not a provider's answer: an application's own model, or a stream that another library reads.
#[test]
fn the_calls_of_a_message_end_as_those_of_a_response() {
    use ash_agent_context_core::{Delta, Given};
    for finish in Finish::ALL {
        let call = json!([{"id": "t1", "name": "pay", "arguments": {}}]);
        let given = Given {
            content: Value::Nil,
            calls: terms::read(call.to_string().as_bytes(), 9).unwrap(),
            usage: Value::Nil,
            model: None,
            finish: Some(finish.name()),
        };
        let whole = Response::from_message(given).unwrap();
        let deltas = [
            Delta::CallStarted(0, "t1", "pay"),
            Delta::CallArguments(0, "{}"),
            Delta::Finish(finish.name()),
        ];
        let pushed = Response::neutral(&Reading::of(Provider::Anthropic));
        let (pushed, _) = pushed.push(&deltas, usize::MAX).unwrap();
        let denied = matches!(
            finish,
            Finish::ContentFilter | Finish::Refusal | Finish::Error
        );
        for response in [whole, pushed] {
            assert_eq!(pending(&add(&response)).is_empty(), denied, "{finish:?}");
        }
    }
}

// ---- The token limit.

/// What each provider does with calls before its limit is written in the guide to responses. Its SDK decides: where the wire says that a
/// call is complete, it may run; where nothing says so, the last one is taken for cut.
#[test]
fn a_complete_call_before_the_limit_is_what_its_provider_makes_of_it() {
    let cut = json!({"eur": 9}).to_string();
    let cut = &cut[..cut.len() - 2];
    for provider in Provider::ALL {
        let word = match provider {
            Provider::Anthropic | Provider::Bedrock => "max_tokens",
            Provider::Gemini => "MAX_TOKENS",
            Provider::OpenAiResponses => "max_output_tokens",
            _ => "length",
        };
        let (events, whole) = forms(provider, &json!(word));
        let is_chat = matches!(provider, Provider::OpenAiChat | Provider::Mistral);
        let complete: &[&str] = if is_chat { &["t1"] } else { &["t1", "t2"] };
        let whole = decode(provider, &whole);
        let (streamed, _) = feed(provider, &body(provider, &events), &[]);
        assert_eq!(pending(&add(&whole)), complete, "{provider:?}");
        assert_eq!(pending(&add(&streamed)), complete, "{provider:?}");

        // The second call is cut as its provider cuts it; those of Ollama are always whole.
        let mut events = events;
        match provider {
            Provider::Ollama => continue,
            Provider::Anthropic => {
                events[5]["delta"]["partial_json"] = json!(cut);
                events.remove(6);
            }
            Provider::Bedrock => {
                events[5]["contentBlockDelta"]["delta"]["toolUse"]["input"] = json!(cut);
                events.remove(6);
            }
            Provider::Gemini => {
                let part =
                    json!({"functionCall": {"id": "t2", "name": "pay", "willContinue": true}});
                events[1]["candidates"][0]["content"]["parts"][0] = part;
            }
            Provider::OpenAiResponses => {
                events[4]["delta"] = json!(cut);
                events[5]["item"]["arguments"] = json!(cut);
                events[5]["item"]["status"] = json!("incomplete");
                events[6]["response"]["output"][1] = events[5]["item"].clone();
            }
            Provider::OpenAiChat | Provider::Mistral => {
                let delta = &mut events[3]["choices"][0]["delta"];
                delta["tool_calls"][0]["function"]["arguments"] = json!(cut);
            }
        }
        let (streamed, _) = feed(provider, &body(provider, &events), &[]);
        assert_eq!(streamed.finish_reason(), Some(Finish::Length));
        let context = add(&streamed);
        assert_eq!(pending(&context), ["t1"], "{provider:?}");
        let (status, words) = outcomes(&context).pop().unwrap().unwrap();
        assert_eq!(status, Status::Interrupted);
        assert!(words.contains("limit of tokens"), "{provider:?}: {words}");
    }
}

#[test]
fn what_an_older_version_let_wait_does_not_wait_after_loading() {
    let (_, whole) = forms(Provider::Anthropic, &json!("tool_use"));
    let context = add(&decode(Provider::Anthropic, &whole));
    assert_eq!(pending(&context).len(), 2);
    for word in ["refusal", "content_filter", "error"] {
        let old = String::from_utf8(context.to_snapshot()).unwrap();
        let is_now = format!("\"finish_reason\":\"{word}\"");
        let old = old.replace("\"finish_reason\":\"tool_calls\"", &is_now);
        let read = Context::from_snapshot(old.as_bytes()).unwrap();
        assert!(pending(&read).is_empty(), "{word} {old}");
        let statuses = ["t1", "t2"].map(|id| read.tool_call_status(id));
        assert_eq!(statuses, [Some(CallStatus::Ended(Status::Interrupted)); 2]);
        assert_eq!(
            sent(&read, Provider::Anthropic)["messages"]
                .as_array()
                .unwrap()
                .len(),
            3
        );
    }
}
