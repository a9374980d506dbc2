//! Which calls may run, by how their answer ended: each provider's words, whole and in any cut, and a model that declined in the middle.

use crate::make::{conversation, decode, defaults, framed, json_sent, parts, reload, stamp, Talk};
use crate::provider_answers::{self, Saying};

use ash_agent_context_core::{
    json as terms, CallStatus, ChangeKind, Content, Context, Event, Finish, Options, Provider,
    Reading, Response, State, Status, Value, BODY_DEPTH,
};
use proptest::prelude::*;
use serde_json::{json, Value as Json};

fn add(response: &Response) -> Context {
    conversation("?").add_response(response, stamp()).unwrap()
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

fn sent(context: &Context, provider: Provider) -> Json {
    let ready = context.without_pending();
    json_sent(ready.as_ref().unwrap_or(context), &Options::new(provider))
}

// ---- Each provider's words.

/// An answer with two complete calls and this word for its end: the documents of a stream, and the whole.
fn forms(provider: Provider, word: &Json) -> (Vec<Json>, Json) {
    let call = |id: &str| {
        (
            "pay".to_owned(),
            vec!["{\"eur\":9}".to_owned()],
            id.to_owned(),
        )
    };
    let saying = Saying {
        calls: ["t1", "t2"].map(call).to_vec(),
        ..Saying::default()
    };
    provider_answers::ended(provider, &saying, word)
}

/// What is known of each vendor's words, from the types of its SDK and from servers with the same API: a word, and the reason that it
/// means beside calls. A word that its vendor does not know ends the calls where the vendor's list is closed. Two are complete when
/// they say nothing else.
const WORDS: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../test/fixtures/finish_words.json"
));

fn words() -> Vec<(Provider, Option<String>, Option<Finish>)> {
    let table: Json = serde_json::from_str(WORDS).unwrap();
    let finish = |name: &Json| name.as_str().map(|name| Finish::from_name(name).unwrap());
    let mut rows = Vec::new();
    for provider in Provider::ALL {
        let known = &table[provider.name()];
        for (word, meaning) in known["words"].as_object().unwrap() {
            rows.push((provider, Some(word.clone()), finish(meaning)));
        }
        rows.push((provider, None, finish(&known["missing"])));
    }
    rows
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
    let again = reload(&context);
    assert_eq!(again, context, "{row}");
}

#[test]
fn the_word_of_an_end_decides_whether_calls_run() {
    for (provider, word, finish) in words() {
        let (events, whole) = forms(provider, &json!(word));
        check(provider, word.as_deref(), finish, &decode(provider, &whole));
        if word.is_some() || streams_without_reason(provider) {
            let body = framed(provider, &events);
            check(
                provider,
                word.as_deref(),
                finish,
                &feed(provider, &body, &[]).0,
            );
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
        let (streamed, _) = feed(provider, &framed(provider, &events), &places);
        check(provider, word.as_deref(), finish, &streamed);
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
                streams.push(feed(provider, &framed(provider, &events), &[]).0);
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
    let body = framed(Provider::OpenAiResponses, &events);
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

// ---- Answers that are left out, and turns that are not over.

/// An answer of a text, and with a call or without, that ends with this word.
fn ending(provider: Provider, word: Option<&str>, text: &[&str], calls: bool) -> Response {
    let call = ("pay".into(), vec!["{\"eur\":9}".into()], "t1".into());
    let saying = Saying {
        thinking: vec!["Hm.".into()],
        text: text.iter().map(|text| (*text).into()).collect(),
        calls: Vec::from_iter(calls.then_some(call)),
        ..Saying::default()
    };
    decode(
        provider,
        &provider_answers::ended(provider, &saying, &json!(word)).1,
    )
}

/// Anthropic's guide to refusals: what was refused must not be in the next request. Elsewhere a refused answer goes back.
#[test]
fn a_refused_answer_is_left_out_of_the_next_request_where_its_provider_wants_that() {
    for (provider, word, finish) in words() {
        let leaves_out = matches!(provider, Provider::Anthropic | Provider::Bedrock);
        for calls in [true, false] {
            let refused = add(&ending(provider, word.as_deref(), &["Sure."], calls));
            let refused = refused.interrupt(&Value::text("over"), stamp());
            let context = refused.add_user_message(Value::text("And now?"), stamp());
            let context = context.unwrap();
            for context in [reload(&context), context] {
                for to in Provider::ALL {
                    let row = format!("{provider:?} {word:?} {calls} to {to:?}");
                    let body = sent(&context, to).to_string();
                    let is_left_out =
                        leaves_out && to == provider && finish == Some(Finish::Refusal);
                    assert_eq!(body.contains("Sure."), !is_left_out, "{row}: {body}");
                    assert_eq!(body.contains("eur"), calls && !is_left_out, "{row}: {body}");
                    assert!(body.contains("And now?"), "{row}");
                    let report = context.request_report(&Options::new(to)).unwrap();
                    let mut changes = report.iter().map(|found| found.change.what);
                    let is_told = changes.any(|what| what == ChangeKind::DroppedMessage);
                    assert_eq!(is_told, is_left_out, "{row}");
                }
                // It is kept and shown.
                assert_eq!(outcomes(&context).len(), usize::from(calls));
            }
        }
    }
}

/// Uses of a provider's tools go with the answer that has their results.
#[test]
fn a_use_is_left_out_if_its_result_is_in_a_refused_answer() {
    let used = json!({"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}});
    let result = json!({"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []});
    let say = |block: &Json, word: &str| {
        let text = json!({"type": "text", "text": "So."});
        decode(
            Provider::Anthropic,
            &json!({"type": "message", "content": [text, block], "stop_reason": word}),
        )
    };
    let paused = add(&say(&used, "pause_turn"));
    for (word, is_sent) in [("refusal", false), ("end_turn", true)] {
        let context = paused.add_response(&say(&result, word), stamp()).unwrap();
        for context in [reload(&context), context] {
            let body = sent(&context, Provider::Anthropic).to_string();
            assert_eq!(body.contains("srv_1"), is_sent, "{body}");
            assert!(body.contains("So."));
        }
    }
}

#[test]
fn only_an_answer_that_says_something_or_may_say_nothing_ends_a_turn() {
    for (provider, word, _) in words() {
        for text in [&[][..], &[" "], &["Fine."]] {
            let response = ending(provider, word.as_deref(), text, false);
            let context = add(&response);
            let finish = response.finish_reason();
            let row = format!("{provider:?} {word:?} {finish:?} {text:?}");
            let is_answered = match finish {
                Some(Finish::Pause) => false,
                Some(Finish::Error | Finish::ToolCalls) => text == ["Fine."],
                _ => true,
            };
            // A model that goes on begins another iteration.
            let number = 1 + u64::from(finish == Some(Finish::Pause));
            for context in [reload(&context), context] {
                assert_eq!(context.is_answered(), is_answered, "{row}");
                assert_eq!(context.current_iteration(), number, "{row}");
            }
        }
        let calls = add(&ending(provider, word.as_deref(), &["Fine."], true));
        assert!(!calls.is_answered());
    }
    assert!(!conversation("?").is_answered());
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
        let (streamed, _) = feed(provider, &framed(provider, &events), &[]);
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
                events[5]["delta"] = json!(cut);
                events[6]["item"]["arguments"] = json!(cut);
                events[6]["item"]["status"] = json!("incomplete");
                events[7]["response"]["output"][1] = events[6]["item"].clone();
            }
            Provider::OpenAiChat | Provider::Mistral => {
                let delta = &mut events[3]["choices"][0]["delta"];
                delta["tool_calls"][0]["function"]["arguments"] = json!(cut);
            }
        }
        let (streamed, _) = feed(provider, &framed(provider, &events), &[]);
        assert_eq!(streamed.finish_reason(), Some(Finish::Length));
        let context = add(&streamed);
        assert_eq!(pending(&context), ["t1"], "{provider:?}");
        let (status, words) = outcomes(&context).pop().unwrap().unwrap();
        assert_eq!(status, Status::Interrupted);
        assert!(words.contains("limit of tokens"), "{provider:?}: {words}");
    }
}

// ---- A model that declined.

/// A block of an answer, and whether it goes back from before the last fallback.
#[derive(Debug, Clone)]
struct Block {
    json: Json,
    goes_back: bool,
}

/// A call of the application, a fallback, and everything else, each with ids of its own.
fn blocks() -> impl Strategy<Value = Vec<Block>> {
    let kinds = prop::collection::vec(0..9usize, 0..7);
    let behind = prop::collection::vec(prop::sample::select(vec![0usize, 6]), 0..4);
    (kinds, behind).prop_map(|(mut kinds, behind)| {
        kinds.push(7);
        kinds.extend(behind);
        let made = kinds.iter().enumerate().flat_map(|(n, kind)| {
            let id = format!("s{n}");
            let block = |json, goes_back| Block { json, goes_back };
            match kind {
                0 => vec![block(json!({"type": "text", "text": format!("Text {n}")}), true)],
                1 => vec![block(json!({"type": "thinking", "thinking": "Hm", "signature": "sig"}), false)],
                2 => vec![block(json!({"type": "redacted_thinking", "data": "xyz"}), false)],
                3 => vec![block(json!({"type": "connector_text", "connector_text": "So"}), false)],
                4 => vec![block(json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {"q": "a"}}), false)],
                5 => vec![
                    block(json!({"type": "server_tool_use", "id": id, "name": "web_search", "input": {"q": "a"}}), true),
                    block(json!({"type": "web_search_tool_result", "tool_use_id": id, "content": []}), true),
                ],
                6 => vec![block(json!({"type": "tool_use", "id": format!("t{n}"), "name": "pay", "input": {"eur": n}}), false)],
                _ => vec![block(
                    json!({"type": "fallback", "from": {"model": "a"}, "to": {"model": format!("b{n}")}}),
                    true,
                )],
            }
        });
        made.collect()
    })
}

fn has_type(block: &Json, kind: &str) -> bool {
    block["type"] == kind
}

/// The same as the events of a stream.
fn events_of(blocks: &[Block], word: &str) -> Vec<Json> {
    let mut events = vec![json!({"type": "message_start", "message": {"content": []}})];
    for (index, block) in blocks.iter().enumerate() {
        let kind = block.json["type"].as_str().unwrap();
        let mut start = block.json.clone();
        let delta = match kind {
            "text" => {
                start["text"] = json!("");
                Some(json!({"type": "text_delta", "text": block.json["text"]}))
            }
            "tool_use" | "server_tool_use" => {
                start["input"] = json!({});
                Some(
                    json!({"type": "input_json_delta", "partial_json": block.json["input"].to_string()}),
                )
            }
            _ => None,
        };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        let delta = delta
            .map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta}));
        events.extend(delta);
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": word}}));
    events.push(json!({"type": "message_stop"}));
    events
}

fn contents(blocks: &[Block]) -> Vec<Json> {
    blocks.iter().map(|block| block.json.clone()).collect()
}

fn imported(body: &Json) -> ash_agent_context_core::Imported {
    let body = terms::read(body.to_string().as_bytes(), BODY_DEPTH).unwrap();
    Context::from_request(body, Provider::Anthropic, defaults()).unwrap()
}

/// What a request has for the answer, and for its results.
fn sent_turn(context: &Context) -> (Vec<Json>, Vec<Json>) {
    let mut context = context.without_pending().unwrap_or_else(|| context.clone());
    context = context.user("Next");
    let messages = sent(&context, Provider::Anthropic);
    let messages = messages["messages"].as_array().unwrap();
    let answer = messages[1]["content"].clone();
    let answer = match answer {
        Json::Array(blocks) => blocks,
        // One text has two forms.
        text => vec![json!({"type": "text", "text": text})],
    };
    let results = messages[2]["content"].as_array().cloned();
    let results = results.unwrap_or_default().into_iter();
    let results = results.filter(|block| has_type(block, "tool_result"));
    (answer, results.collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// No call from before the last fallback runs, none has a result, and what goes back is what the vendor's guide says, in its order.
    #[test]
    fn what_a_model_began_before_it_declined_is_not_run(blocks in blocks(), places in cuts()) {
        let last = blocks.iter().rposition(|block| has_type(&block.json, "fallback")).unwrap();
        let live: Vec<String> = blocks[last..].iter()
            .filter(|block| has_type(&block.json, "tool_use"))
            .map(|block| block.json["id"].as_str().unwrap().into())
            .collect();
        let goes_back = |(at, block): &(usize, &Block)| *at > last || block.goes_back;
        let expected: Vec<Json> = blocks.iter().enumerate().filter(goes_back).map(|(_, block)| block.json.clone()).collect();

        let whole = json!({"type": "message", "content": contents(&blocks), "stop_reason": "end_turn"});
        let whole = decode(Provider::Anthropic, &whole);
        let (streamed, events) = feed(Provider::Anthropic, &framed(Provider::Anthropic, &events_of(&blocks, "end_turn")), &places);
        let history = json!({"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": contents(&blocks)}]});
        let history = imported(&history).context;
        prop_assert_eq!(streamed.message().0, whole.message().0);

        let finish = if live.is_empty() { Finish::Stop } else { Finish::ToolCalls };
        for response in [&whole, &streamed] {
            prop_assert_eq!(response.finish_reason(), Some(finish));
            prop_assert_eq!(response.message().0.calls.len(), live.len());
        }
        // Events count parts as the message does.
        if let Content::Parts(parts) = &streamed.message().0.content {
            for event in &events {
                if let Event::Text { part, text } = event {
                    prop_assert!(format!("{:?}", parts[*part].kind).contains("Text"), "{} {}", part, text);
                }
            }
        }
        for context in [add(&whole), add(&streamed), history] {
            prop_assert_eq!(pending(&context), live.clone());
            prop_assert_eq!(outcomes(&context).len(), live.len());
            // All that came is kept.
            let shown = String::from_utf8(context.to_snapshot()).unwrap();
            for block in &blocks {
                let is_call = has_type(&block.json, "tool_use") || has_type(&block.json, "server_tool_use");
                let id = block.json["id"].as_str().filter(|_| is_call);
                prop_assert!(id.is_none_or(|id| shown.contains(&format!("{id:?}"))), "{shown}");
            }
            let again = reload(&context);
            prop_assert_eq!(&again, &context);
            let (answer, results) = sent_turn(&again);
            let results: Vec<String> = results.iter().map(|result| result["tool_use_id"].as_str().unwrap().into()).collect();
            prop_assert_eq!(&answer, &expected);
            prop_assert_eq!(results, live.clone());
        }
    }
}

fn fallback() -> Json {
    json!({"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}})
}

fn declined() -> Json {
    let call = json!({"type": "tool_use", "id": "t1", "name": "pay", "input": {"eur": 9}});
    json!([call, fallback(), {"type": "text", "text": "Hm."}])
}

fn user(content: Json) -> Json {
    json!({"role": "user", "content": content})
}

#[test]
fn an_imported_call_of_a_model_that_declined_keeps_its_result_and_waits_for_none() {
    let assistant = json!({"role": "assistant", "content": declined()});
    let result = json!({"type": "tool_result", "tool_use_id": "t1", "content": "paid"});
    // It has one: it goes back as it came.
    let answered = json!({"messages": [user(json!("?")), assistant, user(json!([result]))]});
    let read = imported(&answered);
    assert_eq!(read.repairs, []);
    assert_eq!(outcomes(&read.context), [Some((Status::Ok, "paid".into()))]);
    assert_eq!(sent(&read.context, Provider::Anthropic), answered);
    // It has none, in the middle of the history and at its end.
    let left =
        json!({"role": "assistant", "content": [fallback(), {"type": "text", "text": "Hm."}]});
    let open = [user(json!("?")), assistant];
    let sent_open = [user(json!("?")), left];
    for more in [None, Some(user(json!("Next")))] {
        let messages: Vec<&Json> = open.iter().chain(&more).collect();
        let read = imported(&json!({"messages": messages}));
        assert_eq!(read.repairs, []);
        assert!(pending(&read.context).is_empty());
        assert_eq!(outcomes(&read.context), []);
        let messages: Vec<&Json> = sent_open.iter().chain(&more).collect();
        assert_eq!(
            sent(&read.context, Provider::Anthropic),
            json!({"messages": messages})
        );
    }
    // A neighbour belongs to the same turn.
    let call = json!({"role": "assistant", "content": [declined()[0]]});
    let rest =
        json!({"role": "assistant", "content": [fallback(), {"type": "text", "text": "Hm."}]});
    let read = imported(&json!({"messages": [user(json!("?")), call, rest]}));
    assert!(pending(&read.context).is_empty());
    assert_eq!(
        sent(&read.context, Provider::Anthropic)["messages"][1]["content"],
        json!([fallback(), {"type": "text", "text": "Hm."}])
    );
}

#[test]
fn messages_of_nobody_are_read_alike() {
    let calls = json!([
        {"id": "t1", "name": "pay", "arguments": {"eur": 9}, "provider_metadata": {"provider": "anthropic", "position": 0}},
        {"id": "t2", "name": "pay", "arguments": {"eur": 8}, "provider_metadata": {"provider": "anthropic", "position": 1}},
        {"id": "t3", "name": "pay", "arguments": {"eur": 7}},
    ]);
    let parts = json!([{"type": "text", "text": "So"}, {"type": "provider_block", "provider": "anthropic", "data": fallback()}]);
    let assistant = json!({"role": "assistant", "content": parts, "tool_calls": calls});
    let result = json!({"type": "tool_result", "tool_use_id": "t1", "content": "paid"});
    let answer = json!({"role": "user", "content": [result]});
    let read = |messages: &Json| {
        let messages = terms::read(messages.to_string().as_bytes(), BODY_DEPTH).unwrap();
        Context::from_messages(messages, defaults()).unwrap()
    };
    let open = read(&json!([user(json!("?")), assistant]));
    assert_eq!(pending(&open.context), ["t3"]);
    // What has a result stays a call, in its place.
    let answered = read(&json!([user(json!("?")), assistant, answer]));
    assert_eq!(pending(&answered.context), ["t3"]);
    assert_eq!(outcomes(&answered.context).len(), 2);
    let (sent, results) = sent_turn(&answered.context);
    let ids: Vec<&Json> = sent
        .iter()
        .filter(|block| has_type(block, "tool_use"))
        .map(|block| &block["id"])
        .collect();
    assert_eq!(ids, ["t1", "t3"]);
    assert_eq!(
        sent.iter()
            .map(|block| block["type"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["tool_use", "text", "fallback", "tool_use"]
    );
    assert_eq!(results.len(), 2);
}

/// The application may add such an answer again, as it was shown. A call that nobody declined is none of its blocks.
#[test]
fn a_declined_call_may_be_added_before_a_fallback_alone() {
    let whole = json!({"type": "message", "content": declined(), "stop_reason": "end_turn"});
    let context = add(&decode(Provider::Anthropic, &whole));
    let iteration = context.iteration(1).unwrap();
    let content = iteration.last().unwrap().message.content.clone();
    let parts = parts(&content);
    let block = |part: &ash_agent_context_core::Part| match &part.kind {
        ash_agent_context_core::PartKind::ProviderBlock { data, .. } => json!({
            "type": "provider_block", "provider": "anthropic",
            "data": serde_json::from_str::<Json>(&terms::write(&Value::Map(data.clone()))).unwrap()
        }),
        _ => json!({"type": "text", "text": "Hm."}),
    };
    let shown: Vec<Json> = parts.iter().map(block).collect();
    let again = |parts: &[Json]| {
        let parts = terms::read(json!(parts).to_string().as_bytes(), BODY_DEPTH).unwrap();
        conversation("?").add_assistant_message(parts, Value::Nil, stamp())
    };
    let added = again(&shown).unwrap();
    assert_eq!(added.current().last().unwrap().message.content, content);
    assert!(again(&[shown[1].clone(), shown[0].clone()]).is_err());
    assert!(again(&shown[..1]).is_err());
}

#[test]
fn what_an_older_version_let_wait_does_not_wait_after_loading() {
    // One that was refused.
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
        let sent = sent(&read, Provider::Anthropic);
        let goes_back = if word == "refusal" { 1 } else { 3 };
        assert_eq!(sent["messages"].as_array().unwrap().len(), goes_back);
    }
    // One of a model that declined.
    let text = json!({"type": "text", "text": "Hm."});
    let call = declined()[0].clone();
    let open = json!({"type": "message", "content": [call, {"type": "fallbacks"}, text], "stop_reason": "tool_use"});
    let context = add(&decode(Provider::Anthropic, &open));
    assert_eq!(pending(&context), ["t1"]);
    let old = String::from_utf8(context.to_snapshot()).unwrap();
    let old = old.replace("\"fallbacks\"", "\"fallback\"");
    let read = Context::from_snapshot(old.as_bytes()).unwrap();
    assert!(pending(&read).is_empty());
    let words = outcomes(&read).pop().unwrap().unwrap().1;
    assert!(words.starts_with("Another model answered"), "{words}");
}

/// A model may decline in the middle of a call: its arguments stay as far as they came.
#[test]
fn a_call_that_was_cut_by_a_fallback_is_kept() {
    let events = [
        json!({"type": "message_start", "message": {"content": []}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t1", "name": "pay", "input": {}}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{\"eur\":"}}),
        json!({"type": "content_block_start", "index": 1, "content_block": fallback()}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        json!({"type": "message_stop"}),
    ];
    for closed in [false, true] {
        let mut events = events.to_vec();
        if closed {
            events.insert(3, json!({"type": "content_block_stop", "index": 0}));
        }
        let (response, _) = feed(
            Provider::Anthropic,
            &framed(Provider::Anthropic, &events),
            &[],
        );
        assert_eq!(response.finish_reason(), Some(Finish::Stop));
        let (message, half) = response.message();
        assert_eq!((message.calls.len(), half.len()), (0, 0));
        let context = add(&response);
        assert!(pending(&context).is_empty());
        assert!(context.current().last().unwrap().exchange.is_none());
        assert!(String::from_utf8(context.to_snapshot())
            .unwrap()
            .contains("{\\\"eur\\\":"));
        // The stream broke off before anybody said that another model goes on: as any call that broke off.
        let broken = Response::new(&Reading::of(Provider::Anthropic));
        let cut = framed(Provider::Anthropic, &events[..3]);
        let (broken, _) = broken.feed(&cut, usize::MAX).unwrap();
        let context = add(&broken.interrupt(Value::Nil));
        assert!(pending(&context).is_empty());
        assert_eq!(outcomes(&context).len(), 1);
    }
}

/// Other providers get no call of a model that declined, and nothing that tells of one.
#[test]
fn other_providers_get_what_was_said() {
    let whole = json!({"type": "message", "content": declined(), "stop_reason": "end_turn"});
    let context = add(&decode(Provider::Anthropic, &whole));
    let context = context.user("Next");
    for provider in Provider::ALL {
        let body = sent(&context, provider).to_string();
        assert!(!body.contains("pay"), "{body}");
        assert!(body.contains("Hm."), "{body}");
    }
}
