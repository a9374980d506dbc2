//! What providers send back: laws of reading it, and what servers do that no document says.

use crate::make::{self, at, conversation, decode, feed, framed, reload, sent, stamp, stream};
use crate::provider_answers::{forms, parsed, Saying};
use crate::recorded;

use ash_agent_context_core::{
    steps, CallKind, Content, Context, Error, Event, FailureKind, Fault, Finish, Framing, Message,
    Part, PartKind, Provider, Reading, Response, Stamp, State, ToolCall, Value, MAX_BYTES,
};
use proptest::prelude::*;
use recorded::aws_frame;
use serde_json::{json, Value as Json};

/// Feeds pieces to a fresh response and ends it.
fn read<'p>(
    provider: Provider,
    pieces: impl IntoIterator<Item = &'p [u8]>,
) -> Result<(Response, Vec<Event>), Fault> {
    let mut response = Response::new(&Reading::of(provider));
    let mut events = Vec::new();
    for piece in pieces {
        let (next, more) = response.feed(piece, usize::MAX)?;
        response = next;
        events.extend(more);
    }
    let (response, more) = response.finish(usize::MAX)?;
    events.extend(more);
    Ok((response, events))
}

/// The first bytes of a response.
fn begin(provider: Provider, bytes: &[u8]) -> Result<(Response, Vec<Event>), Fault> {
    Response::new(&Reading::of(provider)).feed(bytes, usize::MAX)
}

fn message(response: &Response) -> Message {
    response.message().0
}

/// Name, arguments and id of each complete call.
fn calls(response: &Response) -> Vec<(String, String, String)> {
    let of = |call: &ToolCall| {
        let arguments = ash_agent_context_core::json::write(&call.arguments.value);
        (
            call.name.as_str().to_owned(),
            arguments,
            call.id.to_string(),
        )
    };
    message(response).calls.iter().map(of).collect()
}

fn call(name: &str, arguments: &str, id: &str) -> (String, String, String) {
    (name.to_owned(), arguments.to_owned(), id.to_owned())
}

fn count(events: &[Event], is_one: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| is_one(event)).count()
}

fn text(response: &Response) -> String {
    let bytes = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    match message(response).content {
        Content::None => String::new(),
        Content::Text(text) => bytes(&text),
        Content::Parts(parts) => parts
            .iter()
            .map(|part| match &part.kind {
                PartKind::Text(text) => bytes(text),
                _ => String::new(),
            })
            .collect(),
    }
}

fn add(response: &Response) -> Result<Context, Error> {
    conversation("?").add_response(response, Stamp::at(at(1)))
}

// ---- Laws.

fn pieces() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("\\PC{0,12}", 0..4)
}

fn sayings() -> impl Strategy<Value = Saying> {
    let object = prop::collection::btree_map("[a-z]{1,5}", "\\PC{0,9}", 0..4);
    let one = (
        "[a-z_]{1,8}",
        object,
        prop::collection::vec(any::<prop::sample::Index>(), 0..3),
    );
    let calls = prop::collection::vec(one, 0..4);
    (pieces(), pieces(), calls, any::<(u16, u16)>()).prop_map(|(thinking, text, calls, usage)| {
        let calls = calls
            .into_iter()
            .enumerate()
            .map(|(n, (name, object, cuts))| {
                let json = serde_json::to_string(&object).unwrap();
                let letters: Vec<char> = json.chars().collect();
                let mut places: Vec<usize> =
                    cuts.iter().map(|cut| cut.index(letters.len())).collect();
                places.extend([0, letters.len()]);
                places.sort_unstable();
                let pieces = places
                    .windows(2)
                    .map(|w| letters[w[0]..w[1]].iter().collect());
                (name, pieces.collect(), format!("call_{n}"))
            });
        Saying {
            thinking,
            text,
            calls: calls.collect(),
            usage: (usage.0.into(), usage.1.into()),
        }
    })
}

/// The places of cuts as pieces of a body.
fn cut<'b>(body: &'b [u8], places: &[prop::sample::Index]) -> Vec<&'b [u8]> {
    let mut ends: Vec<usize> = places
        .iter()
        .map(|place| place.index(body.len() + 1))
        .collect();
    ends.extend([0, body.len()]);
    ends.sort_unstable();
    ends.windows(2)
        .map(|pair| &body[pair[0]..pair[1]])
        .collect()
}

fn providers() -> impl Strategy<Value = Provider> {
    prop::sample::select(Provider::ALL.to_vec())
}

/// What bytes make of a response, to the first error: the same however they are cut.
fn fold(
    provider: Provider,
    framing: Framing,
    pieces: &[&[u8]],
) -> (Message, Vec<ToolCall>, Option<Fault>) {
    let mut response = Response::new(&Reading {
        framing,
        ..Reading::of(provider)
    });
    for piece in pieces {
        match response.feed(piece, usize::MAX) {
            Ok((next, _)) => response = next,
            Err(fault) => {
                let (message, half) = response.interrupt(Value::Nil).message();
                return (message, half.into_vec(), Some(fault));
            }
        }
        if let State::Failed(fault) = response.state() {
            let (message, half) = response.interrupt(Value::Nil).message();
            return (message, half.into_vec(), Some(fault.clone()));
        }
    }
    let (message, half) = match response.finish(usize::MAX) {
        Ok((response, _)) => response.message(),
        Err(_) => response.interrupt(Value::Nil).message(),
    };
    (message, half.into_vec(), None)
}

/// Bytes that look like a response, mostly.
fn bodies() -> impl Strategy<Value = (Provider, Vec<u8>)> {
    (
        providers(),
        sayings(),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    )
        .prop_map(|(provider, saying, changes)| {
            let (events, _) = forms(provider, &saying);
            let mut body = framed(provider, &events);
            for (place, byte) in changes {
                let place = place.index(body.len());
                body[place] = byte;
            }
            (provider, body)
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: std::env::var("PROPTEST_CASES").map_or(64, |cases| cases.parse().unwrap()), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_and_a_whole_answer_give_the_same_message(
        provider in providers(),
        saying in sayings(),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let (events, whole) = forms(provider, &saying);
        let body = framed(provider, &events);
        let (streamed, _) = read(provider, cut(&body, &places)).unwrap();
        let whole = decode(provider, &whole);
        prop_assert_eq!(message(&streamed), message(&whole));
        prop_assert_eq!(streamed.usage(), whole.usage());
        prop_assert_eq!(streamed.finish_reason(), whole.finish_reason());
        prop_assert_eq!(text(&streamed), saying.said());
        prop_assert_eq!(calls(&streamed).len(), saying.calls.len());
        for (got, (name, pieces, _)) in calls(&streamed).iter().zip(&saying.calls) {
            prop_assert_eq!(&got.0, name);
            prop_assert_eq!(&serde_json::from_str::<Json>(&got.1).unwrap(), &parsed(pieces));
        }
        let context = add(&streamed).unwrap();
        prop_assert_eq!(context.current().count_pending(), saying.calls.len());
        // What is kept of it is kept in storage.
        let stored = reload(&context);
        prop_assert_eq!(stored, context);
    }

    /// Servers leave out what is empty where more of it is to come.
    #[test]
    fn blocks_of_anthropic_may_begin_without_words(saying in sayings()) {
        let (events, _) = forms(Provider::Anthropic, &saying);
        let strip = |event: &Json| {
            let mut event = event.clone();
            if let Some(block) = event.get_mut("content_block").and_then(Json::as_object_mut) {
                block.retain(|_, value| value != "");
            }
            event
        };
        let bare: Vec<Json> = events.iter().map(strip).collect();
        let (given, bare) = (stream(Provider::Anthropic, &events), stream(Provider::Anthropic, &bare));
        prop_assert_eq!(message(&given.0), message(&bare.0));
        prop_assert_eq!(given.1, bare.1);
    }

    #[test]
    fn any_cut_of_any_bytes_gives_the_same(
        (provider, body) in bodies(),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..9),
    ) {
        let framing = Framing::ALL.into_iter().find(|known| *known == Reading::of(provider).framing).unwrap();
        let whole = fold(provider, framing, &[&body]);
        let pieces = fold(provider, framing, &cut(&body, &places));
        prop_assert_eq!(&whole.0.content, &pieces.0.content);
        prop_assert_eq!(&whole.0.calls, &pieces.0.calls);
        prop_assert_eq!(&whole.1, &pieces.1);
        prop_assert_eq!(whole.2, pieces.2);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(
        provider in providers(),
        framing in prop::sample::select(Framing::ALL.to_vec()),
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        text in "[\\[\\]{}\":,\\\\ a-z0-9\n\r]{0,200}",
    ) {
        for bytes in [&*bytes, text.as_bytes()] {
            let whole = fold(provider, framing, &[bytes]);
            let singles: Vec<&[u8]> = bytes.chunks(1).collect();
            let one_by_one = fold(provider, framing, &singles);
            prop_assert_eq!(whole.0.content, one_by_one.0.content);
            prop_assert_eq!(whole.2, one_by_one.2);
        }
    }

    #[test]
    fn an_old_response_can_be_fed_differently(
        provider in providers(),
        (a, b) in (sayings(), sayings()),
        place in any::<prop::sample::Index>(),
    ) {
        let body = |saying: &Saying| {
            let (events, _) = forms(provider, saying);
            framed(provider, &events)
        };
        let (a, b) = (body(&a), body(&b));
        let place = place.index(a.len());
        let old = Response::new(&Reading::of(provider)).feed(&a[..place], usize::MAX).unwrap().0;
        let before = old.message();
        // The other way first: it must leave no trace.
        let _ = old.feed(&b, usize::MAX);
        let _ = old.finish(usize::MAX);
        prop_assert_eq!(old.message(), before);
        let (response, _) = old.feed(&a[place..], usize::MAX).unwrap();
        let (response, _) = response.finish(usize::MAX).unwrap();
        prop_assert_eq!(response.message(), read(provider, [&*a]).unwrap().0.message());
    }
}

/// Reading must cost what comes in, whatever that is: twice as much in twice the steps, about.
#[test]
fn no_bytes_take_more_than_linear_time() {
    type Body = Box<dyn Fn(usize) -> Vec<u8>>;
    // So many events; each is made of its number and of how many there are.
    fn events(of: impl Fn(usize, usize) -> Json + 'static) -> Body {
        let event = move |i, n| format!("data: {}\n\n", of(i, n)).into_bytes();
        Box::new(move |n| (0..n).flat_map(|i| event(i, n)).collect())
    }
    fn repeated(open: &'static str, piece: &'static str, close: &'static str) -> Body {
        Box::new(move |n| format!("{open}{}{close}", piece.repeat(n)).into_bytes())
    }
    fn chat(delta: Json) -> Json {
        json!({"choices": [{"delta": delta}]})
    }
    let calls = events(|i, _| {
        let call =
            json!({"index": i, "id": format!("c{i}"), "function": {"name": "f", "arguments": "{"}});
        chat(json!({"tool_calls": [call]}))
    });
    let again = events(|_, _| {
        chat(json!({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}))
    });
    let details = events(|i, _| {
        chat(
            json!({"reasoning_details": [{"type": "reasoning.text", "text": "x", format!("k{i}"): i}]}),
        )
    });
    let starts = events(|i, _| match i % 2 {
        0 => {
            json!({"type": "content_block_start", "index": i / 2, "content_block": {"type": "text", "text": "x"}})
        }
        _ => json!({"type": "message_start", "message": {}}),
    });
    let citations = events(|i, _| {
        let citation = json!({"type": "citations_delta", "citation": {"a": i}});
        let text = json!({"type": "text_delta", "text": "x"});
        let delta = if i == 0 { text } else { citation };
        json!({"type": "content_block_delta", "index": 0, "delta": delta})
    });
    let usage =
        events(|i, _| json!({"type": "message_delta", "delta": {}, "usage": {format!("k{i}"): i}}));
    let paths = events(|i, n| {
        let path = json!({"jsonPath": format!("$.k{i}"), "boolValue": true});
        let call = json!({"name": if i == 0 { "f" } else { "" }, "willContinue": i + 1 < n, "partialArgs": [path]});
        json!({"candidates": [{"content": {"parts": [{"functionCall": call}]}}]})
    });
    let items = events(|i, _| {
        let item = json!({"type": "message", "content": [{"type": "output_text", "text": "x"}]});
        json!({"type": "response.output_item.done", "output_index": i % 2, "item": item})
    });
    let line = repeated(
        "data: {\"choices\":[{\"delta\":{\"content\":\"",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "\"}}]}\n\n",
    );
    let frames: Body = Box::new(|n| {
        let frame = br#"{"delta":{"text":"x"}}"#;
        aws_frame(&[(":event-type", "contentBlockDelta")], frame).repeat(n)
    });
    let bodies = [
        (Provider::OpenAiChat, "calls", calls),
        (Provider::OpenAiChat, "the same arguments again", again),
        (Provider::OpenAiChat, "details", details),
        (Provider::Anthropic, "starts", starts),
        (Provider::Anthropic, "citations", citations),
        (Provider::Anthropic, "usage", usage),
        (Provider::Gemini, "paths", paths),
        (Provider::OpenAiResponses, "items", items),
        (Provider::OpenAiChat, "one long line", line),
        (
            Provider::OpenAiChat,
            "empty data",
            repeated("", "data:\n", ""),
        ),
        (
            Provider::Gemini,
            "a list",
            repeated("[", "{\"responseId\":\"a\"},", ""),
        ),
        (Provider::Bedrock, "frames", frames),
    ];
    for (provider, name, body) in bodies {
        let count_steps = |n: usize, piece: usize| {
            let body = body(n);
            steps::count_steps(|| {
                let mut response = Response::new(&Reading::of(provider));
                for bytes in body.chunks(piece) {
                    response = response.feed(bytes, usize::MAX).unwrap().0;
                }
                drop(response.interrupt(Value::Nil).message());
            })
        };
        for piece in [64, usize::MAX] {
            let (small, large) = (count_steps(500, piece), count_steps(4_000, piece));
            // Numbers get longer.
            assert!(
                small > 400 && large < 10 * small,
                "{name} in {piece}: {small} steps, then {large}"
            );
        }
    }
}

// ---- Framing.

const HELLO: &str = r#"{"choices":[{"delta":{"content":"hé"},"finish_reason":"stop"}]}"#;

#[test]
fn events_are_read_by_the_book() {
    let bodies = [
        format!("data: {HELLO}\n\n"),
        format!("data:{HELLO}\r\n\r\n"),
        format!("data: {HELLO}\r\r"),
        format!("\u{feff}data: {HELLO}\n\n"),
        format!(": comment\nid: 1\nretry: 5\nevent: x\ndata: {HELLO}\n\n: end\n\n"),
        format!("data: {}\ndata: {}\n\n", &HELLO[..12], &HELLO[12..]),
        format!("\n\n\ndata\n\ndata:\n\ndata: {HELLO}\n\ndata: [DONE]\n\n"),
        format!("data: {HELLO}\n"),
        format!("data: {HELLO}"),
        HELLO.to_owned(),
        format!(" \r\n{HELLO}\n"),
    ];
    for body in bodies {
        for size in [1, 2, 3, 5, 1000] {
            let (response, events) =
                read(Provider::OpenAiChat, body.as_bytes().chunks(size)).unwrap();
            assert_eq!(text(&response), "hé", "{body:?} in {size}");
            assert_eq!(*response.state(), State::Complete);
            assert_eq!(events.len(), 2);
        }
    }
}

#[test]
fn half_a_document_is_no_end() {
    for body in [
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_re",
        "data: ",
        "",
    ] {
        let error = read(Provider::OpenAiChat, [body.as_bytes()]).unwrap_err();
        assert_eq!(error, Fault::CutOff);
        assert!(error.again());
    }
    let whole = aws_frame(
        &[(":event-type", "messageStop")],
        br#"{"stopReason":"end_turn"}"#,
    );
    assert!(read(Provider::Bedrock, [&*whole]).is_ok());
    let mut more = whole.clone();
    more.extend(&whole[..whole.len() - 1]);
    assert_eq!(
        read(Provider::Bedrock, [&*more]).unwrap_err(),
        Fault::CutOff
    );
}

#[test]
fn frames_have_checksums_and_exceptions() {
    let frame = aws_frame(
        &[(":event-type", "contentBlockDelta")],
        br#"{"contentBlockIndex":0,"delta":{"text":"a"}}"#,
    );
    let read_one = |bytes: &[u8]| begin(Provider::Bedrock, bytes);
    assert_eq!(read_one(&frame).unwrap().1.len(), 1);
    for place in 0..frame.len() {
        let mut wrong = frame.clone();
        wrong[place] ^= 1;
        assert!(
            matches!(read_one(&wrong), Err(Fault::Unreadable(_))),
            "byte {place}"
        );
    }
    let exception = aws_frame(
        &[
            (":message-type", "exception"),
            (":exception-type", "throttlingException"),
        ],
        br#"{"message":"slow down"}"#,
    );
    let (response, events) = read_one(&[frame.clone(), exception].concat()).unwrap();
    let State::Failed(fault) = response.state() else {
        panic!()
    };
    assert!(fault.again());
    assert_eq!(
        fault,
        &Fault::Provider {
            code: Some("throttlingException".into()),
            message: Some("slow down".into()),
            kind: FailureKind::RateLimited,
            again: true,
            after: None,
        }
    );
    assert_eq!(events.len(), 2);
    let invalid = aws_frame(
        &[(":exception-type", "validationException")],
        br#"{"message":"no"}"#,
    );
    assert!(
        matches!(read_one(&invalid).unwrap().0.state(), State::Failed(fault) if !fault.again())
    );
    // A length that nobody can have.
    let mut huge = 0xffff_fff0_u32.to_be_bytes().to_vec();
    huge.extend([0; 4]);
    huge.extend(crc32fast::hash(&huge).to_be_bytes());
    assert!(matches!(read_one(&huge), Err(Fault::Unreadable(_))));
}

#[test]
fn a_model_behind_bedrock_may_send_its_own_events() {
    use std::fmt::Write as _;
    let event = |inner: Json| {
        // base64 by hand: the crate is no dependency of tests.
        const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for three in inner.to_string().as_bytes().chunks(3) {
            let bits = three
                .iter()
                .chain([0; 2].iter())
                .take(3)
                .fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
            for place in 0..4 {
                let letter = LETTERS[bits >> (18 - 6 * place) & 63] as char;
                write!(text, "{}", if place > three.len() { '=' } else { letter }).unwrap();
            }
        }
        aws_frame(
            &[(":event-type", "chunk")],
            json!({"bytes": text}).to_string().as_bytes(),
        )
    };
    let body = [
        event(
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi!"}}),
        ),
        event(json!({"type": "message_stop"})),
    ];
    let reading = Reading {
        framing: Framing::EventStream,
        ..Reading::of(Provider::Anthropic)
    };
    let (response, _) = Response::new(&reading)
        .feed(&body.concat(), usize::MAX)
        .unwrap();
    assert_eq!(text(&response), "hi!");
    assert_eq!(*response.state(), State::Complete);
}

#[test]
fn gemini_may_send_a_list() {
    let saying = Saying {
        thinking: vec!["hm".into()],
        text: vec!["a".into(), "]}\\\"[{".into()],
        ..Saying::default()
    };
    let (events, whole) = forms(Provider::Gemini, &saying);
    let list = Json::Array(events).to_string();
    for size in [1, 7, 10_000] {
        let (response, _) = read(Provider::Gemini, list.as_bytes().chunks(size)).unwrap();
        let whole = decode(Provider::Gemini, &whole);
        assert_eq!(message(&response), message(&whole));
    }
    let error = json!([{"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}])
        .to_string();
    let (response, _) = begin(Provider::Gemini, error.as_bytes()).unwrap();
    assert!(matches!(response.state(), State::Failed(fault) if fault.again()));
}

/// Dropping an old version costs next to nothing: whoever drops it may do so at once.
#[test]
fn the_last_of_a_long_stream_alone_is_heavy_to_drop() {
    let line = |n: usize| {
        json!({"message": {"content": format!("{n:>99}")}, "done": false}).to_string() + "\n"
    };
    let mut response = Response::new(&Reading::of(Provider::Ollama));
    let mut heavy = 0;
    for n in 0..20_000 {
        let (next, _) = response.feed(line(n).as_bytes(), usize::MAX).unwrap();
        heavy += usize::from(response.let_go());
        response = next;
    }
    assert!(response.count_received() > 2 << 20);
    assert!(
        (1..=response.count_received() >> 18).contains(&heavy),
        "{heavy}"
    );
    let mut copy = response.clone();
    assert!(!copy.let_go());
    assert!(response.let_go());
}

#[test]
fn a_page_in_the_place_of_a_response_is_told() {
    for provider in [Provider::OpenAiChat, Provider::Ollama] {
        let error = Response::new(&Reading::of(provider))
            .feed(b"\n<!DOCTYPE html><html>", usize::MAX)
            .unwrap_err();
        assert!(error.to_string().contains("HTML"), "{error}");
    }
    let error = Response::decode(b"<html>", &Reading::of(Provider::Gemini)).unwrap_err();
    assert!(error.to_string().contains("HTML"), "{error}");
    for body in ["", "{", "[]", "{} {}", "1", "\"a\"", "{\"a\":1}"] {
        assert!(
            Response::decode(body.as_bytes(), &Reading::of(Provider::Gemini)).is_err(),
            "{body}"
        );
    }
}

#[test]
fn content_types_tell_the_framing() {
    let of = Framing::of_content_type;
    assert_eq!(of("text/event-stream; charset=utf-8"), Some(Framing::Sse));
    assert_eq!(of("Application/JSON"), Some(Framing::Json));
    assert_eq!(of("application/x-ndjson"), Some(Framing::NdJson));
    assert_eq!(
        of("application/vnd.amazon.eventstream"),
        Some(Framing::EventStream)
    );
    assert_eq!(of("text/plain"), None);
}

// ---- Limits and errors.

#[test]
fn limits_are_errors_and_the_response_is_as_it_was() {
    let reading = Reading {
        max_bytes: 100,
        ..Reading::of(Provider::OpenAiChat)
    };
    let response = Response::new(&reading)
        .feed(format!("data: {HELLO}\n\n").as_bytes(), usize::MAX)
        .unwrap()
        .0;
    assert_eq!(
        response.feed(&[b'x'; 100], usize::MAX).unwrap_err(),
        Fault::TooLarge { limit: 100 }
    );
    assert_eq!(text(&response), "hé");
    assert_eq!(Reading::of(Provider::Gemini).max_bytes, MAX_BYTES);
    let deep = format!("data: {}{}\n\n", "[".repeat(300), "]".repeat(300));
    assert_eq!(
        response_error(deep.as_bytes()),
        Fault::TooDeep { limit: 200 }
    );
}

fn response_error(body: &[u8]) -> Fault {
    begin(Provider::OpenAiChat, body).unwrap_err()
}

#[test]
fn what_came_before_bad_bytes_is_not_lost() {
    let body = format!(
        "data: {}\n\ndata: {{oops\n\n",
        r#"{"choices":[{"delta":{"content":"kept"}}]}"#
    );
    let (response, events) = begin(Provider::OpenAiChat, body.as_bytes()).unwrap();
    assert!(matches!(
        events.last(),
        Some(Event::Error(Fault::NotJson { .. }))
    ));
    assert!(matches!(
        add(&response),
        Err(Error::Response(Fault::NotJson { .. }))
    ));
    let context = add(&response.interrupt(Value::atom("broken"))).unwrap();
    let message = &context.current().last().unwrap().message;
    assert_eq!(message.content, Content::Text((*b"kept").into()));
    assert_eq!(
        message.reply.as_ref().unwrap().interrupted,
        Some(Value::atom("broken"))
    );
    assert!(matches!(
        response_error(b"data: {oops\n\n"),
        Fault::NotJson { .. }
    ));
}

#[test]
fn more_work_than_allowed_is_left_to_others() {
    let line = format!(
        "data: {}",
        json!({"choices": [{"delta": {"content": "x".repeat(2_000)}}]})
    );
    let response = Response::new(&Reading::of(Provider::OpenAiChat))
        .feed(line.as_bytes(), 1_000)
        .unwrap()
        .0;
    assert_eq!(
        response.feed(b"\n\n", 1_000).unwrap_err(),
        Fault::TooMuchWork
    );
    assert_eq!(response.feed(b"\n\n", 10_000).unwrap().1.len(), 1);
}

#[test]
fn an_open_or_failed_response_is_not_added() {
    let open = Response::new(&Reading::of(Provider::Anthropic));
    assert_eq!(add(&open).unwrap_err(), Error::Response(Fault::Open));
    let body = "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n";
    let (failed, events) = open.feed(body.as_bytes(), usize::MAX).unwrap();
    let Err(Error::Response(fault)) = add(&failed) else {
        panic!()
    };
    assert!(fault.again());
    assert_eq!(events, [Event::Error(fault.clone())]);
    assert_eq!(failed.finish(usize::MAX).unwrap_err(), fault);
    // Nothing comes after a failure, and what does is left alone.
    assert_eq!(failed.feed(b"data: {}\n\n", usize::MAX).unwrap().1, []);
    let interrupted = open.interrupt(Value::Nil);
    assert_eq!(
        interrupted.feed(b"x", usize::MAX).unwrap_err(),
        Fault::Interrupted
    );
    assert_eq!(add(&interrupted).unwrap().current().count_messages(), 2);
}

// ---- What servers do.

fn chunk(delta: Json) -> Json {
    json!({"choices": [{"index": 0, "delta": delta}]})
}

fn end(reason: &str) -> Json {
    json!({"choices": [{"index": 0, "delta": null, "finish_reason": reason}]})
}

fn piece(call: Json) -> Json {
    chunk(json!({"tool_calls": [call]}))
}

#[test]
fn chat_servers_number_calls_as_they_like() {
    let both = [call("a", "{\"x\":1}", "c1"), call("b", "{}", "c2")];
    let streams = [
        // No index at all.
        vec![
            piece(json!({"id": "c1", "function": {"name": "a", "arguments": "{\"x\""}})),
            piece(json!({"function": {"arguments": ":1}"}})),
            piece(json!({"id": "c2", "function": {"name": "b", "arguments": "{}"}})),
        ],
        // One index for both.
        vec![
            piece(
                json!({"index": 0, "id": "c1", "function": {"name": "a", "arguments": "{\"x\""}}),
            ),
            piece(json!({"index": 0, "id": "", "function": {"arguments": ":1}"}})),
            piece(json!({"index": 0, "id": "c2", "function": {"name": "b", "arguments": "{}"}})),
        ],
        // Gaps, ids and names again and again, another id for a piece, null for a type.
        vec![
            piece(
                json!({"index": 3, "id": "c1", "type": null, "function": {"name": "a", "arguments": ""}}),
            ),
            piece(
                json!({"index": 3, "id": "c1", "function": {"name": "a", "arguments": "{\"x\":"}}),
            ),
            piece(
                json!({"index": 3, "id": "other", "function": {"name": null, "arguments": "1}"}}),
            ),
            piece(json!({"index": 7, "id": "c2", "function": {"name": "b", "arguments": "{}"}})),
        ],
        // Both in one chunk, and all arguments again at the end.
        vec![
            chunk(json!({"tool_calls": [
                {"index": 0, "id": "c1", "function": {"name": "a", "arguments": "{\"x\":1}"}},
                {"index": 1, "id": "c2", "function": {"name": "b"}},
            ]})),
            piece(json!({"index": 0, "function": {"arguments": "{\"x\":1}"}})),
        ],
        // An object in the place of its text; a call whose id comes late.
        vec![
            piece(json!({"index": 0, "function": {"name": "a", "arguments": {"x": 1}}})),
            piece(json!({"index": 0, "id": "c1"})),
            piece(json!({"index": 1, "id": "c2", "function": {"name": "b", "arguments": "{}"}})),
        ],
    ];
    for mut lines in streams {
        // "stop" although there are calls.
        lines.push(end("stop"));
        let (response, events) = stream(Provider::OpenAiChat, &lines);
        assert_eq!(calls(&response), both, "{lines:?}");
        assert_eq!(response.finish_reason(), Some(Finish::ToolCalls));
        assert_eq!(response.finish_word(), Some("stop"));
        let starts = events
            .iter()
            .filter(|event| matches!(event, Event::CallStarted { .. }));
        assert_eq!(starts.count(), 2);
    }
}

#[test]
fn a_call_waits_for_its_name() {
    let lines = [
        piece(json!({"index": 0, "id": "c", "function": {"arguments": "{\"a\":"}})),
        piece(json!({"index": 0, "function": {"name": "f", "arguments": "1}"}})),
        end("tool_calls"),
    ];
    let (response, events) = stream(Provider::OpenAiChat, &lines);
    assert_eq!(calls(&response), [call("f", "{\"a\":1}", "c")]);
    assert!(matches!(&events[0], Event::CallStarted { position: 0, .. }));
    assert!(matches!(&events[1], Event::CallArguments { json, .. } if &**json == "{\"a\":"));
}

#[test]
fn only_the_stream_completes_a_call() {
    // Arguments that parse, and a body that ends.
    let lines = [piece(
        json!({"index": 0, "id": "c", "function": {"name": "f", "arguments": "{\"a\":1}"}}),
    )];
    let body = format!("data: {}\n\n", lines[0]);
    let response = begin(Provider::OpenAiChat, body.as_bytes()).unwrap().0;
    assert_eq!(response.finish(usize::MAX).unwrap_err(), Fault::CutOff);
    let (message, half) = response.message();
    assert_eq!((message.calls.len(), half.len()), (0, 1));
    let context = add(&response.interrupt(Value::Nil)).unwrap();
    assert_eq!(context.current().count_pending(), 0);
    assert_eq!(context.current_iteration(), 2);
    let call = context.iteration(1).unwrap().calls().next().unwrap();
    assert!(call.1.unwrap().is_error());
}

#[test]
fn a_limit_in_the_middle_of_a_call_ends_the_call() {
    let anthropic = [
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t1", "name": "a", "input": {}}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "t2", "name": "b", "input": {}}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"q\":\"ha"}}),
        json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}),
        json!({"type": "message_stop"}),
    ];
    let chat = [
        piece(json!({"index": 0, "id": "t1", "function": {"name": "a", "arguments": "{}"}})),
        piece(
            json!({"index": 1, "id": "t2", "function": {"name": "b", "arguments": "{\"q\":\"ha"}}),
        ),
        end("length"),
    ];
    for (provider, lines) in [
        (Provider::Anthropic, &anthropic[..]),
        (Provider::OpenAiChat, &chat[..]),
    ] {
        let (response, events) = stream(provider, lines);
        assert_eq!(*response.state(), State::Complete);
        assert_eq!(response.finish_reason(), Some(Finish::Length));
        assert_eq!(calls(&response), [call("a", "{}", "t1")]);
        assert_eq!(count(&events, |event| matches!(event, Event::Call(_))), 1);
        let context = add(&response).unwrap();
        let pending: Vec<_> = context.current().pending_ids();
        assert_eq!(pending, [Box::from("t1")]);
        let told = context
            .current()
            .calls()
            .nth(1)
            .unwrap()
            .1
            .unwrap()
            .text()
            .unwrap()
            .to_vec();
        assert!(String::from_utf8(told).unwrap().contains("limit of tokens"));
    }
}

#[test]
fn other_events_of_chat_servers() {
    // A second candidate, a chunk of Azure's filter, usage behind the end, an error under status 200.
    let lines = [
        json!({"choices": [], "prompt_filter_results": [], "id": "", "model": ""}),
        json!({"id": "i", "model": "m", "choices": [{"index": 0, "delta": {"role": "", "content": "a"}}, {"index": 1, "delta": {"content": "b"}}]}),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        json!({"choices": [{"index": 1, "delta": {"content": "c"}, "finish_reason": "length"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}),
    ];
    let (response, _) = stream(Provider::OpenAiChat, &lines);
    assert_eq!(text(&response), "a");
    assert_eq!(response.finish_reason(), Some(Finish::Stop));
    assert_eq!(response.usage().unwrap().total, 7);
    assert_eq!((response.id(), response.model()), (Some("i"), Some("m")));
    let lines = [
        chunk(json!({"content": "a"})),
        json!({"choices": [{"delta": {}, "finish_reason": "error"}], "error": {"code": 502, "message": "bad gateway"}}),
    ];
    let (response, events) = feed(Provider::OpenAiChat, &lines);
    assert!(matches!(response.state(), State::Failed(fault) if fault.again()));
    assert_eq!(events.len(), 2);
    let (refused, _) = stream(
        Provider::OpenAiChat,
        &[chunk(json!({"refusal": "No"})), end("stop")],
    );
    assert_eq!(refused.finish_reason(), Some(Finish::Refusal));
    assert_eq!(text(&refused), "No");
    // Empty things beside real ones, as a whole answer of another server has them.
    let whole = json!({"choices": [{"message": {"content": "", "function_call": {}, "audio": {}, "tool_calls": [
        {"id": "", "type": "function", "custom": {}, "function": {"name": "f", "arguments": ""}}]}, "finish_reason": "tool_calls"}]});
    let response = decode(Provider::OpenAiChat, &whole);
    assert_eq!(calls(&response), [call("f", "{}", "")]);
    assert_eq!(
        add(&response).unwrap().current().pending_ids(),
        [Box::from("call_1_1_0")]
    );
}

fn metadata<'p>(part: &'p Part, key: &str) -> Option<&'p Value> {
    part.provider_metadata.as_ref()?.get_named(key)
}

#[test]
fn reasoning_details_stand_with_the_thinking() {
    let detail = |kind: &str, more: Json| {
        let mut detail = json!({"type": kind, "index": 0});
        for (key, value) in more.as_object().unwrap() {
            detail[key] = value.clone();
        }
        chunk(
            json!({"reasoning": more.get("text").cloned().unwrap_or(Json::Null), "reasoning_details": [detail]}),
        )
    };
    let lines = [
        detail("reasoning.text", json!({"text": "let ", "format": "f"})),
        detail("reasoning.text", json!({"text": "me"})),
        detail("reasoning.text", json!({"text": "", "signature": "sig"})),
        detail("reasoning.encrypted", json!({"data": "abc"})),
        end("stop"),
    ];
    let (response, _) = stream(Provider::OpenAiChat, &lines);
    let message = message(&response);
    let parts = make::parts(&message.content);
    assert_eq!(parts[0].kind, PartKind::Thinking((*b"let me").into()));
    let details =
        ash_agent_context_core::json::write(metadata(&parts[0], "reasoning_details").unwrap());
    let wanted = json!([
        {"type": "reasoning.text", "index": 0, "format": "f", "text": "let me", "signature": "sig"},
        {"type": "reasoning.encrypted", "index": 0, "data": "abc"},
    ]);
    assert_eq!(serde_json::from_str::<Json>(&details).unwrap(), wanted);

    // Details alone say what the model thought, too; summaries as well.
    let alone = |mut line: Json| {
        if let Some(delta) = line.pointer_mut("/choices/0/delta") {
            delta["reasoning"] = Json::Null;
        }
        line
    };
    let mut lines = lines.map(alone).to_vec();
    lines.insert(
        3,
        alone(detail("reasoning.summary", json!({"summary": "!"}))),
    );
    let (response, _) = stream(Provider::OpenAiChat, &lines);
    let message = self::message(&response);
    let parts = make::parts(&message.content);
    assert_eq!(parts[0].kind, PartKind::Thinking((*b"let me!").into()));
}

#[test]
fn anthropic_blocks_go_back_as_they_came() {
    let citation = json!({"type": "char_location", "cited_text": "x"});
    let lines = [
        json!({"type": "message_start", "message": {"id": "m1", "model": "a", "usage": {"input_tokens": 5, "cache_read_input_tokens": 2}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "", "citations": []}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": citation}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}}),
        json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"query\":\"q\"}"}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "content_block_start", "index": 2, "content_block": {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}}),
        json!({"type": "content_block_stop", "index": 2}),
        json!({"type": "content_block_start", "index": 3, "content_block": {"type": "redacted_thinking", "data": "xyz"}}),
        json!({"type": "content_block_stop", "index": 3}),
        json!({"type": "content_block_start", "index": 4, "content_block": {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}}}),
        json!({"type": "content_block_stop", "index": 4}),
        json!({"type": "content_block_start", "index": 5, "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": {"type": "direct"}}}),
        json!({"type": "content_block_stop", "index": 5}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9, "input_tokens": null}}),
        json!({"type": "message_stop"}),
        json!("[DONE]"),
    ];
    let body: String = lines
        .iter()
        .map(|line| match line {
            Json::String(text) => format!("data: {text}\n\n"),
            line => format!("data: {line}\n\n"),
        })
        .collect();
    let (response, events) = read(Provider::Anthropic, [body.as_bytes()]).unwrap();
    assert_eq!(response.model(), Some("b"));
    assert_eq!(response.usage().unwrap().input, 7);
    assert_eq!(response.usage().unwrap().output, 9);
    let message = message(&response);
    let parts = make::parts(&message.content);
    assert!(metadata(&parts[0], "citations").is_some());
    let block = |part: &Part| match &part.kind {
        PartKind::ProviderBlock { data, .. } => serde_json::from_str::<Json>(
            &ash_agent_context_core::json::write(&Value::Map(data.clone())),
        )
        .unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        block(&parts[1]),
        json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}})
    );
    assert_eq!(block(&parts[2])["type"], "web_search_tool_result");
    assert_eq!(parts[3].kind, PartKind::RedactedThinking("xyz".into()));
    assert_eq!(parts.len(), 5);
    assert!(message.calls[0]
        .provider_metadata
        .as_ref()
        .unwrap()
        .get_named("caller")
        .is_some());
    assert_eq!(count(&events, |event| matches!(event, Event::Part(_))), 4);
    // Cut between the question and its answer: neither is kept.
    let cut = body.find("web_search_tool_result").unwrap();
    let (response, _) = begin(Provider::Anthropic, &body.as_bytes()[..cut]).unwrap();
    let (message, _) = response.interrupt(Value::Nil).message();
    let parts = make::parts(&message.content);
    assert_eq!(parts.len(), 1);
}

#[test]
fn words_of_anthropic_are_texts() {
    let start =
        |block: Json| json!({"type": "content_block_start", "index": 0, "content_block": block});
    let delta = |delta: Json| json!({"type": "content_block_delta", "index": 0, "delta": delta});
    for wrong in [
        start(json!({"type": "text", "text": 5})),
        start(json!({"type": "thinking", "thinking": {"a": 1}})),
        delta(json!({"type": "text_delta", "text": ["a"]})),
        delta(json!({"type": "thinking_delta", "thinking": false})),
        delta(json!({"type": "input_json_delta", "partial_json": {"a": 1}})),
        json!({"type": "message", "content": [{"type": "text"}]}),
        json!({"type": "message", "content": [{"type": "thinking", "thinking": null}]}),
    ] {
        let body = framed(Provider::Anthropic, std::slice::from_ref(&wrong));
        let found = read(Provider::Anthropic, [&*body]).unwrap_err();
        assert!(matches!(found, Fault::Unreadable(_)), "{wrong}: {found:?}");
    }
}

#[test]
fn a_gateway_that_asks_again_begins_again() {
    let start = json!({"type": "message_start", "message": {"id": "m", "content": []}});
    let lines = [
        start.clone(),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "one"}}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "x", "name": "f", "input": {}}}),
        start,
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "two"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        json!({"type": "message_stop"}),
    ];
    let (response, _) = stream(Provider::Anthropic, &lines);
    assert_eq!(text(&response), "onetwo");
    assert_eq!(response.message().1.len(), 0);
    assert_eq!(calls(&response), []);
}

#[test]
fn responses_believe_the_finished_item() {
    let lines = [
        json!({"type": "response.created", "response": {"id": "resp_a", "model": "m"}}),
        // Parts counted across items.
        json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 4, "item_id": "x", "delta": "draft"}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": {"type": "message", "id": "msg_b", "phase": "commentary",
            "content": [{"type": "output_text", "text": "drafted"}]}}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": {"type": "reasoning", "id": "rs_a", "summary": []}}),
        json!({"type": "response.reasoning_summary_text.delta", "output_index": 1, "summary_index": 0, "delta": "one"}),
        json!({"type": "response.reasoning_summary_text.delta", "output_index": 1, "summary_index": 1, "delta": "two"}),
        json!({"type": "response.output_item.done", "output_index": 1, "item": {"type": "reasoning", "id": "rs_b", "encrypted_content": "e",
            "summary": [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}]}}),
        json!({"type": "response.completed", "response": {"id": "resp_b", "status": "completed", "output": [
            {"type": "message", "content": [{"type": "output_text", "text": "other"}]},
            {"type": "reasoning", "id": "rs_b", "encrypted_content": "another", "summary": []},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"}]}}),
    ];
    let (response, events) = stream(Provider::OpenAiResponses, &lines);
    let message = message(&response);
    let parts = make::parts(&message.content);
    assert_eq!(parts[0].kind, PartKind::Text((*b"drafted").into()));
    assert_eq!(metadata(&parts[0], "id"), Some(&Value::text("msg_b")));
    assert_eq!(parts[1].kind, PartKind::Thinking((*b"one\n\ntwo").into()));
    assert_eq!(
        metadata(&parts[1], "encrypted_content"),
        Some(&Value::text("e"))
    );
    assert!(matches!(parts[2].kind, PartKind::ProviderBlock { .. }));
    assert_eq!(parts.len(), 3);
    assert_eq!(response.id(), Some("resp_b"));
    assert!(events.contains(&Event::Text {
        part: 0,
        text: "ed".into()
    }));
    let incomplete = json!({"type": "response.incomplete", "response": {"status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"}, "output": []}});
    let (response, _) = stream(Provider::OpenAiResponses, &[incomplete]);
    assert_eq!(
        (response.finish_reason(), response.finish_word()),
        (Some(Finish::Length), Some("max_output_tokens"))
    );
    let chat = format!("data: {HELLO}\n\n");
    let error = begin(Provider::OpenAiResponses, chat.as_bytes()).unwrap_err();
    assert!(error.to_string().contains(":openai_chat"), "{error}");
}

#[test]
fn calls_of_every_kind_are_calls() {
    let items = [
        (
            json!({"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "sql", "input": "SELECT 1"}),
            CallKind::Custom,
            "c1",
        ),
        (
            json!({"type": "shell_call", "id": "sh_1", "call_id": "c2", "action": {"commands": ["ls"]}, "status": "completed"}),
            CallKind::Shell,
            "c2",
        ),
        (
            json!({"type": "apply_patch_call", "id": "apc_1", "call_id": "c3", "status": "completed",
            "operation": {"type": "delete_file", "path": "a"}}),
            CallKind::ApplyPatch,
            "c3",
        ),
        (
            json!({"type": "mcp_approval_request", "id": "mcpr_1", "name": "f", "server_label": "s", "arguments": "{}"}),
            CallKind::McpApproval,
            "mcpr_1",
        ),
    ];
    let mut lines = vec![
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "custom_tool_call", "id": "ctc_0", "call_id": "c1", "name": "sql", "input": ""}}),
        json!({"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": "SELECT "}),
        json!({"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": "1"}),
    ];
    for (index, (item, ..)) in items.iter().enumerate() {
        lines.push(
            json!({"type": "response.output_item.done", "output_index": index, "item": item}),
        );
    }
    lines.push(json!({"type": "response.output_item.done", "output_index": 9, "item": {"type": "web_search_call", "id": "ws_1"}}));
    lines.push(json!({"type": "response.completed", "response": {"status": "completed"}}));
    let (response, events) = stream(Provider::OpenAiResponses, &lines);
    let message = message(&response);
    let got: Vec<_> = message
        .calls
        .iter()
        .map(|call| (call.kind, &*call.id))
        .collect();
    assert_eq!(
        got,
        items
            .iter()
            .map(|(_, kind, id)| (*kind, *id))
            .collect::<Vec<_>>()
    );
    assert_eq!(message.calls[0].arguments.value, Value::text("SELECT 1"));
    assert_eq!(
        count(&events, |event| matches!(
            event,
            Event::CallArguments { .. }
        )),
        2
    );
    assert_eq!(response.finish_reason(), Some(Finish::ToolCalls));
    assert_eq!(add(&response).unwrap().current().count_pending(), 4);
    // A whole answer has the same, and the next request the same items.
    let search = json!({"type": "web_search_call", "id": "ws_1"});
    let output: Vec<&Json> = items
        .iter()
        .map(|(item, ..)| item)
        .chain([&search])
        .collect();
    let whole = json!({"status": "completed", "output": output}).to_string();
    let whole =
        Response::decode(whole.as_bytes(), &Reading::of(Provider::OpenAiResponses)).unwrap();
    assert_eq!(whole.message().0.calls, message.calls);
    // Half of one is text, and never waits.
    let (open, _) = feed(Provider::OpenAiResponses, &lines[..2]);
    assert_eq!(open.message().1[0].kind, CallKind::Custom);
    assert_eq!(
        add(&open.interrupt(Value::Nil))
            .unwrap()
            .current()
            .count_pending(),
        0
    );
    let chat = [
        piece(
            json!({"index": 0, "id": "c", "type": "custom", "custom": {"name": "sql", "input": "SEL"}}),
        ),
        piece(json!({"index": 0, "custom": {"input": "ECT"}})),
        end("tool_calls"),
    ];
    let (response, _) = stream(Provider::OpenAiChat, &chat);
    let call = &response.message().0.calls[0];
    assert_eq!(
        (call.kind, &call.arguments.value),
        (CallKind::Custom, &Value::text("SELECT"))
    );
}

#[test]
fn gemini_signs_parts_and_streams_arguments() {
    let answer = |parts: Json, reason: Json| json!({"candidates": [{"content": {"parts": parts}, "finishReason": reason}]});
    let lines = [
        answer(json!([{"text": "a"}]), Json::Null),
        answer(json!([{"text": "b"}]), Json::Null),
        answer(
            json!([{"text": "", "thoughtSignature": "c2ln"}]),
            Json::Null,
        ),
        answer(
            json!([{"functionCall": {"name": "f", "willContinue": true}, "thoughtSignature": "Y2Fs"}]),
            Json::Null,
        ),
        answer(
            json!([{"functionCall": {"partialArgs": [{"jsonPath": "$.a[0].b", "stringValue": "x", "willContinue": true}], "willContinue": true}}]),
            Json::Null,
        ),
        answer(
            json!([{"functionCall": {"partialArgs": [{"jsonPath": "$.a[0].b", "stringValue": "y"}, {"jsonPath": "$.n", "numberValue": 1.5}], "willContinue": true}}]),
            Json::Null,
        ),
        answer(json!([{"functionCall": {}}]), Json::Null),
        answer(json!([{"functionCall": {"name": "g"}}]), Json::Null),
        answer(
            json!([{"inlineData": {"mimeType": "image/png", "data": "aGk="}}]),
            json!("STOP"),
        ),
        answer(json!([{"text": "later"}]), Json::Null),
    ];
    let (response, _) = stream(Provider::Gemini, &lines);
    let message = message(&response);
    let parts = make::parts(&message.content);
    let kinds: Vec<_> = parts.iter().map(|part| part.kind.clone()).collect();
    assert_eq!(kinds[0], PartKind::Text((*b"ab").into()));
    assert_eq!(kinds[1], PartKind::Text((*b"").into()));
    assert_eq!(metadata(&parts[1], "signature"), Some(&Value::text("c2ln")));
    assert!(kinds[2].media().is_some());
    assert_eq!(kinds[3], PartKind::Text((*b"later").into()));
    assert_eq!(
        calls(&response),
        [
            call("f", r#"{"a":[{"b":"xy"}],"n":1.5}"#, ""),
            call("g", "{}", "")
        ]
    );
    assert_eq!(response.finish_reason(), Some(Finish::ToolCalls));
    let (blocked, _) = stream(
        Provider::Gemini,
        &[json!({"promptFeedback": {"blockReason": "SAFETY"}})],
    );
    assert_eq!(
        (blocked.finish_reason(), blocked.finish_word()),
        (Some(Finish::ContentFilter), Some("SAFETY"))
    );
    let (malformed, _) = stream(
        Provider::Gemini,
        &[json!({"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]})],
    );
    assert_eq!(malformed.finish_reason(), Some(Finish::Error));
}

#[test]
fn bedrock_runs_tools_of_its_own() {
    let lines = [
        json!({"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "u", "name": "nova_grounding", "type": "server_tool_use"}}}}),
        json!({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": "{\"q\":1}"}}}}),
        json!({"contentBlockStop": {"contentBlockIndex": 0}}),
        json!({"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolResult": {"toolUseId": "u", "status": "success"}}}}),
        json!({"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"toolResult": [{"json": {"a": 1}}]}}}),
        json!({"contentBlockStop": {"contentBlockIndex": 1}}),
        json!({"contentBlockDelta": {"delta": {"reasoningContent": {"redactedContent": "aGk="}}, "contentBlockIndex": 2}}),
        json!({"contentBlockStop": {"contentBlockIndex": 2}}),
        json!({"messageStop": {"stopReason": "end_turn"}}),
    ];
    let (response, _) = stream(Provider::Bedrock, &lines);
    let message = message(&response);
    let parts = make::parts(&message.content);
    let written: Vec<String> = parts
        .iter()
        .take(2)
        .map(|part| match &part.kind {
            PartKind::ProviderBlock { data, .. } => {
                ash_agent_context_core::json::write(&Value::Map(data.clone()))
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(written[0].contains(r#""input":{"q":1}"#), "{}", written[0]);
    assert!(
        written[1].contains(r#""content":[{"json":{"a":1}}]"#),
        "{}",
        written[1]
    );
    assert_eq!(parts[2].kind, PartKind::RedactedThinking("aGk=".into()));
}

#[test]
fn the_model_that_was_asked_is_kept_with_its_thinking() {
    let reading = Reading {
        model: Some("alias"),
        ..Reading::of(Provider::Ollama)
    };
    let body = json!({"model": "dated", "message": {"thinking": "hm", "content": "a"}, "done": true, "done_reason": "length"});
    let response = Response::decode(body.to_string().as_bytes(), &reading).unwrap();
    let message = message(&response);
    let parts = make::parts(&message.content);
    assert_eq!(metadata(&parts[0], "model"), Some(&Value::text("alias")));
    assert_eq!(response.model(), Some("dated"));
    assert_eq!(response.finish_reason(), Some(Finish::Length));
    let context = add(&response).unwrap();
    let reply = context
        .current()
        .last()
        .unwrap()
        .message
        .reply
        .clone()
        .unwrap();
    assert_eq!(
        (reply.provider, reply.model.as_deref()),
        (Some(Provider::Ollama), Some("dated"))
    );
    let stored = reload(&context);
    assert_eq!(stored, context);
}

#[test]
fn arguments_come_as_values_for_paths() {
    let read = |pieces: Json| {
        let call = json!({"functionCall": {"name": "f", "partialArgs": pieces}});
        let body = json!({"candidates": [{"content": {"parts": [call]}, "finishReason": "STOP"}]});
        let reading = Reading::of(Provider::Gemini);
        let response = Response::decode(body.to_string().as_bytes(), &reading)?;
        let json = message(&response).calls[0].arguments.json.clone();
        Ok::<_, Fault>(json.unwrap().to_string())
    };
    let pieces = json!([
        {"jsonPath": "$.b[0].n", "stringValue": "x"},
        {"jsonPath": "$.b[0].n", "stringValue": "y"},
        {"jsonPath": "$.b[1]", "boolValue": true},
        {"jsonPath": "$['a b']"},
        {"jsonPath": "$.b[999999999999]", "numberValue": 2},
    ]);
    let expected = r#"{"b":[{"n":"xy"},true,2],"a b":null}"#;
    assert_eq!(read(pieces).unwrap(), expected);
    let of_value = json!([{"jsonPath": "$.a", "numberValue": 1}, {"jsonPath": "$.a.b"}]);
    assert!(read(of_value).is_err());
    for path in ["", "a", "$a", "$[", "$[x]", "$['a", "$[-1]"] {
        assert!(read(json!([{"jsonPath": path}])).is_err(), "{path}");
    }
    let deep = read(json!([{"jsonPath": format!("${}", ".a".repeat(201))}]));
    assert_eq!(deep, Err(Fault::TooDeep { limit: 200 }));
}

/// Servers cut texts within a character: in its bytes, or between its two escapes.
#[test]
fn halves_of_characters_are_replaced() {
    let read = |said: &[u8]| {
        let body = [br#"{"done":true,"message":{"content":""#, said].concat();
        Response::decode(&body, &Reading::of(Provider::Ollama)).map(|response| text(&response))
    };
    for (said, expected) in [
        (&br#"a\ud83d"}}"#[..], "a\u{fffd}"),
        (br#"\ude00b\\"}}"#, "\u{fffd}b\\"),
        (br#"\ud83d\ude00"}}"#, "\u{1f600}"),
        (b"a\xf0\x9f\"}}", "a\u{fffd}"),
    ] {
        assert_eq!(read(said).unwrap(), expected);
    }
    assert!(read(b"a").is_err());
    assert!(read(br#"\ud83d"#).is_err());
}

#[test]
fn a_number_too_large_for_a_float_loses_no_tokens() {
    let body = br#"{"done":true,"eval_count":3,"total_duration":1e999,"message":{"content":"a"}}"#;
    let response = Response::decode(body, &Reading::of(Provider::Ollama)).unwrap();
    assert_eq!(response.usage().unwrap().output, 3);
}

#[test]
fn without_indexes_names_tell_calls_with_one_id_apart() {
    let piece = |name: &str, json: &str| {
        piece(json!({"id": "c", "function": {"name": name, "arguments": json}}))
    };
    let lines = [
        piece("a", "{\"x\":"),
        piece("a", "1}"),
        piece("b", "{\"x\":2}"),
    ];
    let (response, _) = stream(
        Provider::OpenAiChat,
        &[&lines[..], &[end("tool_calls")]].concat(),
    );
    let wanted = [call("a", "{\"x\":1}", "c"), call("b", "{\"x\":2}", "c")];
    assert_eq!(calls(&response), wanted);
}

#[test]
fn two_calls_with_one_id_are_two() {
    let whole = |index: u64, name: &str, json: &str| {
        piece(json!({"index": index, "id": "c", "function": {"name": name, "arguments": json}}))
    };
    let more = |index: u64, json: &str| {
        piece(json!({"index": index, "id": "c", "function": {"arguments": json}}))
    };
    for second in ["a", "b"] {
        for lines in [
            vec![whole(0, "a", "{\"x\":1}"), whole(1, second, "{\"x\":2}")],
            vec![
                whole(0, "a", "{\"x\""),
                whole(1, second, ""),
                more(0, ":1}"),
                more(1, "{\"x\":2}"),
            ],
        ] {
            for provider in [Provider::OpenAiChat, Provider::Mistral] {
                let lines = [&*lines, &[end("tool_calls")]].concat();
                let (response, _) = stream(provider, &lines);
                let wanted = [call("a", "{\"x\":1}", "c"), call(second, "{\"x\":2}", "c")];
                assert_eq!(calls(&response), wanted, "{lines:?}");
                assert_eq!(add(&response).unwrap().current().count_pending(), 2);
            }
        }
    }
}

/// A gateway sends the signature when the next block has begun. Newer models show nothing of what they think.
#[test]
fn a_late_signature_is_kept_before_what_followed() {
    let start = |index: u64, block: Json| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = |index: u64, delta: Json| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
    let sign = delta(0, json!({"type": "signature_delta", "signature": "s"}));
    for words in ["Hm", ""] {
        for late in 3..=6 {
            let mut lines = vec![
                start(0, json!({"type": "thinking", "thinking": ""})),
                delta(0, json!({"type": "thinking_delta", "thinking": words})),
                stop(0),
                start(1, json!({"type": "text", "text": ""})),
                delta(1, json!({"type": "text_delta", "text": "Well"})),
                start(
                    2,
                    json!({"type": "tool_use", "id": "t", "name": "f", "input": {}}),
                ),
                stop(1),
                stop(2),
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
                json!({"type": "message_stop"}),
            ];
            lines.insert(late, sign.clone());
            let (response, _) = stream(Provider::Anthropic, &lines);
            let message = message(&response);
            let parts = make::parts(&message.content);
            assert_eq!(
                parts[0].kind,
                PartKind::Thinking(words.as_bytes().into()),
                "{late}"
            );
            assert_eq!(metadata(&parts[0], "signature"), Some(&Value::text("s")));
            assert_eq!(parts[1].kind, PartKind::Text((*b"Well").into()));
            assert_eq!(message.calls.len(), 1);
        }
    }
}

#[test]
fn mistral_keeps_the_order_of_strings_and_lists() {
    let text = |text: &str| json!({"type": "text", "text": text});
    let reference = json!({"type": "reference", "reference_ids": ["d"]});
    let thought = json!({"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]});
    for between in [&reference, &thought] {
        let pieces = [
            json!("a"),
            json!([between]),
            json!("b"),
            json!([between, text("c")]),
            json!("d"),
        ];
        let mut lines = pieces
            .map(|piece| chunk(json!({"content": piece})))
            .to_vec();
        lines.push(end("stop"));
        let (streamed, _) = stream(Provider::Mistral, &lines);
        let content = [
            text("a"),
            between.clone(),
            text("b"),
            between.clone(),
            text("cd"),
        ];
        let whole =
            json!({"choices": [{"finish_reason": "stop", "message": {"content": content}}]});
        assert_eq!(
            message(&streamed),
            message(&decode(Provider::Mistral, &whole))
        );
    }
}

/// MiniMax sends the whole message once more, in the last chunk; and its errors beside the answer.
#[test]
fn a_message_after_its_pieces_is_not_read_twice() {
    let called = json!([{"id": "c", "function": {"name": "f", "arguments": "{}"}}]);
    let last = |message: Json| {
        json!({"choices": [{"index": 0, "finish_reason": "stop", "message": message}], "base_resp": {"status_code": 0},
            "usage": {"prompt_tokens": 1, "completion_tokens": 2}})
    };
    let whole = json!({"content": "ab", "reasoning_content": "x", "tool_calls": called});
    for told in [false, true] {
        let mut lines = vec![
            chunk(json!({"reasoning_content": "x"})),
            chunk(json!({"content": "a"})),
            chunk(json!({"content": "b"})),
        ];
        if told {
            lines.push(chunk(json!({"tool_calls": called})));
        }
        lines.push(last(whole.clone()));
        let (response, _) = stream(Provider::OpenAiChat, &lines);
        assert_eq!(text(&response), "ab");
        assert_eq!(calls(&response), [call("f", "{}", "c")]);
        assert_eq!(response.usage().unwrap().output, 2);
    }
}

/// MiniMax's errors come with the status 200, and with numbers of its own (platform.minimax.io/docs/api-reference/errorcode).
#[test]
fn failures_of_minimax_have_kinds() {
    let table = [
        (1001, "request timeout", FailureKind::Timeout),
        (1002, "rate limit", FailureKind::RateLimited),
        (1004, "not authorized", FailureKind::Unauthorized),
        (1008, "insufficient balance", FailureKind::Quota),
        (1027, "output new_sensitive", FailureKind::Refused),
        (1033, "system error", FailureKind::ServerError),
        (2013, "invalid params", FailureKind::InvalidRequest),
        (
            2013,
            "invalid params, context window exceeds limit",
            FailureKind::ContextOverflow,
        ),
        (2049, "invalid api key", FailureKind::Unauthorized),
        (
            2064,
            "the cluster is under high load",
            FailureKind::Overloaded,
        ),
        (9999, "new", FailureKind::ServerError),
    ];
    for (code, words, kind) in table {
        let refused =
            json!({"choices": null, "base_resp": {"status_code": code, "status_msg": words}});
        let whole = Response::decode(
            refused.to_string().as_bytes(),
            &Reading::of(Provider::OpenAiChat),
        );
        let streamed = read(
            Provider::OpenAiChat,
            [&*framed(Provider::OpenAiChat, &[refused])],
        );
        for fault in [whole.map(|_| ()), streamed.map(|_| ())] {
            let fault = fault.unwrap_err();
            assert_eq!(
                (fault.kind(), fault.message()),
                (kind, Some(words)),
                "{code}"
            );
        }
    }
}

#[test]
fn tokens_are_counted_wherever_they_are_told() {
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 4});
    let moonshot =
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": usage}]});
    let (response, _) = stream(
        Provider::OpenAiChat,
        &[chunk(json!({"content": "a"})), moonshot],
    );
    assert_eq!(response.usage().unwrap().total, 7);
    let error = json!({"message": "bad gateway", "code": 502});
    let failed = json!({"type": "response.failed", "response": {"error": error, "usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}}});
    for (provider, line) in [
        (
            Provider::OpenAiChat,
            json!({"error": error, "usage": usage}),
        ),
        (Provider::OpenAiResponses, failed),
    ] {
        let (response, _) = feed(provider, &[line]);
        assert!(matches!(response.state(), State::Failed(_)));
        assert_eq!(response.usage().unwrap().total, 7, "{provider:?}");
    }
}

/// Encrypted reasoning may come after the text: events have named the text's part by then.
#[test]
fn events_name_the_parts_of_the_message() {
    let secret = json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]});
    let words = json!({"content": "Hi"});
    let thought = json!({"reasoning": "Hm"});
    for deltas in [
        vec![&words, &secret],
        vec![&secret, &words],
        vec![&thought, &words, &secret],
        vec![&secret, &thought, &words],
        vec![&words, &secret, &secret, &words],
    ] {
        let mut lines: Vec<Json> = deltas.into_iter().cloned().map(chunk).collect();
        lines.push(end("stop"));
        let (response, events) = stream(Provider::OpenAiChat, &lines);
        let message = message(&response);
        let parts = make::parts(&message.content);
        for event in events {
            match event {
                Event::Text { part, .. } => assert!(parts[part].kind.is_text(), "{lines:?}"),
                Event::Thinking { part, .. } => {
                    assert!(
                        matches!(parts[part].kind, PartKind::Thinking(_)),
                        "{lines:?}"
                    );
                }
                _ => {}
            }
        }
        let noted = |part: &&Part| metadata(part, "reasoning_details").is_some();
        assert_eq!(parts.iter().filter(noted).count(), 1, "{lines:?}");
    }
}

#[test]
fn a_reason_to_be_done_ends_the_answer_with_the_body() {
    let said = |more: Json| {
        let mut line = json!({"model": "q", "message": {"content": "Hi"}});
        for (key, value) in more.as_object().unwrap() {
            line[key] = value.clone();
        }
        framed(Provider::Ollama, &[line])
    };
    let done = said(json!({"done": false, "done_reason": "length", "eval_count": 2}));
    let (response, _) = read(Provider::Ollama, [&*done]).unwrap();
    assert_eq!(*response.state(), State::Complete);
    assert_eq!(response.finish_reason(), Some(Finish::Length));
    assert_eq!(response.usage().unwrap().output, 2);
    for open in [
        json!({}),
        json!({"done": false}),
        json!({"done_reason": ""}),
    ] {
        let cut = read(Provider::Ollama, [&*said(open)]);
        assert_eq!(cut.unwrap_err(), Fault::CutOff);
    }
}

#[test]
fn a_compressed_body_is_named() {
    for provider in Provider::ALL {
        let fault = begin(provider, &[0x1f, 0x8b, 8, 0]).unwrap_err();
        assert!(fault.to_string().contains("compressed"), "{fault}");
    }
}

#[test]
fn a_call_that_broke_off_keeps_what_its_provider_wants_back() {
    let item = json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "namespace": "files", "arguments": ""});
    let block =
        json!({"type": "tool_use", "id": "c", "name": "f", "input": {}, "toolset_name": "files"});
    for (provider, key, line) in [
        (
            Provider::OpenAiResponses,
            "namespace",
            json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
        ),
        (
            Provider::Anthropic,
            "toolset_name",
            json!({"type": "content_block_start", "index": 0, "content_block": block}),
        ),
    ] {
        let (response, _) = begin(provider, &framed(provider, &[line])).unwrap();
        let (_, half) = response.interrupt(Value::Nil).message();
        let known = half[0].provider_metadata.as_ref().unwrap();
        assert_eq!(known.get_named(key), Some(&Value::text("files")));
        assert_eq!(known.get_named("id"), None);
    }
}

#[test]
fn a_call_of_a_custom_tool_that_broke_off_has_text_and_can_be_loaded() {
    let item = json!({"type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "f", "input": ""});
    let line = json!({"type": "response.output_item.added", "output_index": 0, "item": item});
    let delta = json!({"type": "response.custom_tool_call_input.delta", "output_index": 0, "item_id": "ctc_1", "delta": "half"});
    for (lines, input) in [(vec![line.clone()], ""), (vec![line, delta], "half")] {
        let provider = Provider::OpenAiResponses;
        let (response, _) = begin(provider, &framed(provider, &lines)).unwrap();
        let context = add(&response.interrupt(Value::Nil)).unwrap();
        let context = reload(
            &context
                .add_user_message(Value::text("Go on"), stamp())
                .unwrap(),
        );
        let wanted =
            json!({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": input});
        let body: Json = serde_json::from_str(&sent(&context, provider)).unwrap();
        let sent = body["input"].as_array().unwrap();
        assert!(sent.contains(&wanted), "{sent:?}");
    }
}

#[test]
fn one_part_of_gemini_may_stand_alone() {
    let content = json!({"role": "model", "parts": {"text": "Hi"}});
    let line = json!({"candidates": [{"content": content, "finishReason": "STOP"}]});
    let streamed = stream(Provider::Gemini, std::slice::from_ref(&line)).0;
    for response in [streamed, decode(Provider::Gemini, &line)] {
        assert_eq!(text(&response), "Hi");
    }
}
