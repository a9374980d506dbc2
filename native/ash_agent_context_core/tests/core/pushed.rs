//! A response that is pushed has what was pushed, names no provider, and has only those calls whose arguments came.

use crate::make::parts;
use proptest::prelude::*;

use ash_agent_context_core::{
    Content, Delta, Event, Fault, Finish, PartKind, Provider, Reading, Response, State, Value,
};

fn neutral() -> Response {
    Response::neutral(&Reading::of(Provider::Anthropic))
}

fn push(response: &Response, deltas: &[Delta<'_>]) -> (Response, Vec<Event>) {
    response.push(deltas, usize::MAX).unwrap()
}

#[test]
fn texts_go_on_until_something_else_comes() {
    let deltas = [
        Delta::Thinking("H"),
        Delta::Thinking("m"),
        Delta::Text("a"),
        Delta::Text(""),
        Delta::Text("b"),
        Delta::Thinking("c"),
    ];
    let (response, events) = push(&neutral(), &deltas);
    let places: Vec<usize> = events
        .iter()
        .map(|event| match event {
            Event::Text { part, .. } | Event::Thinking { part, .. } => *part,
            _ => usize::MAX,
        })
        .collect();
    assert_eq!(places, [0, 0, 1, 1, 2]);
    assert_eq!(response.count_received(), 5);
    let (message, _) = response.message();
    let parts = parts(&message.content);
    assert_eq!(parts.len(), 3);
    assert!(matches!(&parts[0].kind, PartKind::Thinking(text) if **text == *b"Hm"));
    assert!(parts.iter().all(|part| part.provider_metadata.is_none()));
}

#[test]
fn the_end_completes_the_calls_whose_arguments_came() {
    let deltas = [
        Delta::CallStarted(3, "a", "look"),
        Delta::CallStarted(9, "b", "read"),
        Delta::CallArguments(3, "{\"at\""),
        Delta::CallArguments(9, "{\"at\""),
        Delta::CallArguments(3, ":1}"),
        Delta::CallArguments(4, "{}"),
    ];
    let (open, _) = push(&neutral(), &deltas);
    assert_eq!(open.state(), &State::Open);
    assert!(matches!(open.finish(usize::MAX), Err(Fault::CutOff)));
    let (_, half) = open.message();
    assert_eq!(half.len(), 2);

    let (response, events) = push(&open, &[Delta::Finish("stop"), Delta::Text("late")]);
    assert_eq!(response.state(), &State::Complete);
    assert_eq!(response.finish_reason(), Some(Finish::ToolCalls));
    assert!(matches!(&events[..], [Event::Call(call), Event::Finish(_)] if &*call.id == "a"));
    let (message, half) = response.message();
    assert_eq!((message.calls.len(), half.len()), (1, 1));
    assert!(push(&response, &[Delta::Text("late")]).1.is_empty());
}

#[test]
fn another_word_is_kept_as_it_is() {
    let (response, events) = push(&neutral(), &[Delta::Finish("tired")]);
    assert_eq!(response.finish_reason(), None);
    assert_eq!(response.finish_word(), Some("tired"));
    assert!(events.is_empty());
}

#[test]
fn an_unreadable_report_is_left_out() {
    let (response, events) = push(&neutral(), &[Delta::Usage(Value::Nil)]);
    assert_eq!((response.usage(), events.len()), (None, 0));
}

#[test]
fn limits_hold() {
    let reading = Reading {
        max_bytes: 4,
        ..Reading::of(Provider::Anthropic)
    };
    let (response, _) = push(&Response::neutral(&reading), &[Delta::Text("abcd")]);
    assert!(matches!(
        response.push(&[Delta::Text("e")], usize::MAX),
        Err(Fault::TooLarge { limit: 4 })
    ));
    let interrupted = response.interrupt(Value::Nil);
    assert!(matches!(
        interrupted.push(&[], usize::MAX),
        Err(Fault::Interrupted)
    ));
    let call = [
        Delta::CallStarted(0, "a", "look"),
        Delta::CallArguments(0, "{\"at\":1}"),
        Delta::Finish("stop"),
    ];
    assert!(matches!(neutral().push(&call, 3), Err(Fault::TooMuchWork)));
}

proptest! {
    /// Long texts are kept in links that versions share.
    #[test]
    fn a_piece_of_a_long_text_leaves_older_versions(pieces in prop::collection::vec("[a-z]{0,2500}", 0..12)) {
        let mut versions = vec![(neutral(), String::new())];
        for piece in &pieces {
            let (response, text) = versions.last().unwrap();
            let (response, _) = push(response, &[Delta::Text(piece)]);
            let text = format!("{text}{piece}");
            versions.push((response, text));
        }
        for (response, text) in &versions {
            let content = match text.is_empty() {
                true => Content::None,
                false => Content::Text(text.as_bytes().into()),
            };
            prop_assert_eq!(&response.message().0.content, &content);
        }
    }
}
