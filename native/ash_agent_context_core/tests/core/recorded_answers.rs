//! Every recorded response of a provider, in any cut. The recordings lie beside the repository; without
//! them there is nothing to test here.

use crate::make::{at, conversation, defaults};
use crate::recorded;

use ash_agent_context_core::{
    Content, Context, Event, Message, Options, PartKind, Reading, Response, Stamp, State, ToolCall,
    Value,
};
use ash_agent_context_core::{Fault, Finish, Provider};
use recorded::{streams, wholes, Recorded};

fn fresh(recorded: &Recorded) -> Response {
    Response::new(&Reading::of(recorded.provider))
}

/// Two events of this one lack their last brace.
fn is_broken(recorded: &Recorded) -> bool {
    recorded.name.contains("parallel-tool-call-wrapper")
}

#[test]
fn what_is_not_json_is_an_error_and_costs_nothing() {
    for recorded in streams().iter().filter(|recorded| is_broken(recorded)) {
        let response = fresh(recorded);
        let error = response.feed(&recorded.body, usize::MAX).unwrap_err();
        assert!(matches!(error, Fault::NotJson { .. }), "{error}");
        assert_eq!(*response.state(), State::Open);
    }
}

/// Feeds a body cut at these places, to the end or to the first failure.
fn feed(recorded: &Recorded, cuts: &[usize]) -> (Response, Vec<Event>) {
    let mut response = fresh(recorded);
    let mut events = Vec::new();
    let mut from = 0;
    for to in cuts.iter().copied().chain([recorded.body.len()]) {
        let (next, more) = response.feed(&recorded.body[from..to], usize::MAX).unwrap();
        response = next;
        events.extend(more);
        from = to;
    }
    if let Ok((next, more)) = response.finish(usize::MAX) {
        response = next;
        events.extend(more);
    }
    (response, events)
}

/// The texts of events, part by part, next to each other.
fn joined(events: &[Event]) -> Vec<(usize, bool, String)> {
    let mut joined: Vec<(usize, bool, String)> = Vec::new();
    for event in events {
        let (part, thinks, text) = match event {
            Event::Text { part, text } => (*part, false, text),
            Event::Thinking { part, text } => (*part, true, text),
            _ => continue,
        };
        match joined.iter_mut().find(|(known, ..)| *known == part) {
            Some((_, _, known)) => known.push_str(text),
            None => joined.push((part, thinks, text.to_string())),
        }
    }
    joined.sort();
    joined
}

/// The same of a message.
fn texts(message: &Message) -> Vec<(usize, bool, String)> {
    let utf8 = |text: &[u8]| String::from_utf8(text.to_vec()).unwrap();
    match &message.content {
        Content::None => Vec::new(),
        Content::Text(text) => vec![(0, false, utf8(text))],
        Content::Parts(parts) => {
            let text = |(at, kind): (usize, &PartKind)| match kind {
                PartKind::Text(text) if !text.is_empty() => Some((at, false, utf8(text))),
                PartKind::Thinking(text) if !text.is_empty() => Some((at, true, utf8(text))),
                _ => None,
            };
            let parts = parts.iter().map(|part| &part.kind).enumerate();
            parts.filter_map(text).collect()
        }
    }
}

/// Whether all that a provider gets is what it takes: a history that needs no repair.
fn check_requests(name: &str, context: &Context) {
    for provider in Provider::ALL {
        let options = Options::new(provider);
        let segments = context
            .encode_request(&options, &Default::default())
            .unwrap_or_else(|error| panic!("{name} to {provider:?}: {error}"));
        let body: Vec<u8> = segments.iter().flat_map(|of| of.bytes()).copied().collect();
        let text = String::from_utf8_lossy(&body).into_owned();
        let imported = Context::from_request(Value::Binary(body.into()), provider, defaults())
            .unwrap_or_else(|error| panic!("{name} to {provider:?}: {error}: {text}"));
        assert_eq!(imported.repairs, [], "{name} to {provider:?}: {text}");
    }
}

#[test]
fn streams_are_complete_and_say_what_their_message_has() {
    for recorded in streams()
        .into_iter()
        .filter(|recorded| !is_broken(recorded))
    {
        let (response, events) = feed(&recorded, &[]);
        let name = &recorded.name;
        if name.contains("openai-error") {
            let State::Failed(fault) = response.state() else {
                panic!("{name}: {:?}", response.state());
            };
            assert!(!fault.again(), "{name}");
            assert!(matches!(events.last(), Some(Event::Error(_))), "{name}");
            continue;
        }
        assert_eq!(*response.state(), State::Complete, "{name}");
        assert!(response.finish_reason().is_some(), "{name}");
        let (message, half) = response.message();
        assert_eq!(half.len(), 0, "{name}");
        let says = message.content != Content::None || !message.calls.is_empty();
        assert!(
            says || response.finish_reason() == Some(Finish::Refusal),
            "{name}"
        );
        assert_eq!(joined(&events), texts(&message), "{name}");
        let calls = events
            .iter()
            .filter(|event| matches!(event, Event::Call(_)));
        assert_eq!(calls.count(), message.calls.len(), "{name}");
        let starts = events
            .iter()
            .filter(|event| matches!(event, Event::CallStarted { .. }));
        assert!(starts.count() >= message.calls.len(), "{name}");
        assert_eq!(
            response.finish_reason() == Some(Finish::ToolCalls),
            !message.calls.is_empty(),
            "{name}"
        );
        let context = conversation("?")
            .add_response(&response, Stamp::at(at(1)))
            .unwrap();
        assert_eq!(
            context.current().count_pending(),
            message.calls.len(),
            "{name}"
        );
        let context = context.interrupt(&Value::text("stop"), Stamp::at(at(2)));
        let next = context
            .add_user_message(Value::text("go on"), Stamp::at(at(3)))
            .unwrap();
        check_requests(name, &next);
    }
}

#[test]
fn any_cut_gives_the_same_response() {
    for recorded in streams()
        .into_iter()
        .filter(|recorded| !is_broken(recorded))
    {
        let whole = feed(&recorded, &[]);
        let check = |cuts: &[usize]| {
            let (response, events) = feed(&recorded, cuts);
            let name = &recorded.name;
            assert_eq!(response.message(), whole.0.message(), "{name} at {cuts:?}");
            assert_eq!(response.state(), whole.0.state(), "{name} at {cuts:?}");
            assert_eq!(response.usage(), whole.0.usage(), "{name} at {cuts:?}");
            assert_eq!(events, whole.1, "{name} at {cuts:?}");
        };
        let len = recorded.body.len();
        if len < 20_000 {
            check(&(1..len).collect::<Vec<_>>());
        }
        for places in [61, 1000] {
            check(&(1..len).step_by(places).collect::<Vec<_>>());
        }
        for cut in (0..len).step_by((len / 12).max(1)) {
            check(&[cut]);
        }
    }
}

/// Places where a stream is cut: everywhere for short ones.
fn places(len: usize) -> Vec<usize> {
    let step = if len < 20_000 { 1 } else { len / 500 };
    (0..len).step_by(step.max(1)).collect()
}

#[test]
fn what_breaks_off_is_kept_and_never_waits() {
    for recorded in streams()
        .into_iter()
        .filter(|recorded| !is_broken(recorded))
    {
        let name = &recorded.name;
        let (whole, _) = feed(&recorded, &[]);
        let mut response = fresh(&recorded);
        let mut events = Vec::new();
        let mut from = 0;
        let mut last = None;
        for place in places(recorded.body.len()) {
            let (next, more) = response
                .feed(&recorded.body[from..place], usize::MAX)
                .unwrap();
            from = place;
            response = next;
            events.extend(more);
            if *response.state() == State::Complete {
                break;
            }
            let broken = response.interrupt(Value::text("closed"));
            let said = broken.message();
            // Most bytes say nothing new.
            if last.as_ref() == Some(&said) {
                continue;
            }
            assert_eq!(joined(&events), texts(&said.0), "{name} at {place}");
            check_broken(name, &broken, &whole);
            last = Some(said);
        }
    }
}

fn check_broken(name: &str, broken: &Response, whole: &Response) {
    let context = conversation("?")
        .add_response(broken, Stamp::at(at(1)))
        .unwrap();
    let message = context
        .iteration(1)
        .unwrap()
        .last()
        .unwrap()
        .message
        .clone();
    assert!(message.is_interrupted(), "{name}");
    assert_eq!(context.current().count_pending(), 0, "{name}");
    let (wanted, _) = whole.message();
    // A call that is not the whole stream's was not completed by it.
    let (complete, _) = broken.message();
    for call in &complete.calls {
        // Which parts follow it is not known yet.
        let is_same = |other: &&ToolCall| {
            let notes = |of: &ToolCall| of.provider_metadata.clone().unwrap_or_default();
            let known = notes(other);
            let mut notes = notes(call).into_entries().into_iter();
            (&other.id, &other.name, &other.arguments) == (&call.id, &call.name, &call.arguments)
                && notes.all(|(key, value)| {
                    key == Value::atom("position") || known.get(&key) == Some(&value)
                })
        };
        assert!(
            wanted.calls.iter().any(|other| is_same(&other)),
            "{name}: {call:?}"
        );
    }
    // What the provider wants to see again is what it said at the end, or nothing.
    let notes = |message: &Message| match &message.content {
        Content::Parts(parts) => parts
            .iter()
            .filter_map(|part| part.provider_metadata.clone())
            .collect(),
        _ => Vec::new(),
    };
    let known = notes(&wanted);
    for note in notes(&complete) {
        let is_bare = note.len() == 1;
        assert!(is_bare || known.contains(&note), "{name}: {note:?}");
    }
    let next = context
        .add_user_message(Value::text("go on"), Stamp::at(at(3)))
        .unwrap();
    check_requests(name, &next);
}

#[test]
fn whole_responses_are_read() {
    for recorded in wholes() {
        let name = &recorded.name;
        let decoded = Response::decode(&recorded.body, &Reading::of(recorded.provider));
        if name.contains("error") || name.contains("429") {
            let Err(Fault::Provider { again, after, .. }) = decoded else {
                panic!("{name}: {decoded:?}");
            };
            assert_eq!(again, name.contains("429"), "{name}");
            assert_eq!(after.is_some(), name.contains("429"), "{name}");
            continue;
        }
        let response = decoded.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(*response.state(), State::Complete, "{name}");
        assert!(response.finish_reason().is_some(), "{name}");
        assert!(response.usage().is_some(), "{name}");
        let (message, half) = response.message();
        assert_eq!(half.len(), 0, "{name}");
        let says = message.content != Content::None || !message.calls.is_empty();
        assert!(
            says || response.finish_reason() == Some(Finish::Refusal),
            "{name}"
        );
        let context = conversation("?")
            .add_response(&response, Stamp::at(at(1)))
            .unwrap();
        let context = context.interrupt(&Value::text("stop"), Stamp::at(at(2)));
        let next = context
            .add_user_message(Value::text("go on"), Stamp::at(at(3)))
            .unwrap();
        check_requests(name, &next);
    }
}
