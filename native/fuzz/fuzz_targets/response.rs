//! A byte that names a provider, a byte that names a framing, a byte for the cuts, and a body: whatever the cuts, the
//! response is the same, and what it gives can be sent on.

#![no_main]

use ash_agent_context_core::{
    Context, Fault, Framing, Message, Provider, Reading, Response, Stamp, State, ToolCall, Value,
};
use ash_agent_context_fuzz::{at, laws};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let [provider, framing, size, body @ ..] = bytes else {
        return;
    };
    // The digits 0 to 6 are the providers in their order; the framings are their own, or 1 to 4.
    let provider = Provider::ALL[usize::from(provider % 8) % Provider::ALL.len()];
    let own = Reading::of(provider);
    let framing = match framing % 5 {
        0 => own.framing,
        which => Framing::ALL[usize::from(which - 1)],
    };
    let reading = Reading { framing, ..own };
    let (response, fault) = read(&reading, body.chunks(usize::MAX));
    let (in_pieces, other) = read(&reading, body.chunks(usize::from(*size).max(1)));
    assert_eq!(fault, other);
    assert_eq!(said(&response), said(&in_pieces));
    let _ = Response::decode(body, &reading);

    let stamp = || Stamp::at(at(1));
    let context = Context::new("c", Value::text("?"), Value::Nil, stamp()).unwrap();
    let context = context.add_response(&response, stamp()).unwrap();
    if matches!(response.state(), State::Interrupted(_)) {
        assert_eq!(context.current().count_pending(), 0);
    }
    laws::check(&context);
});

/// Feeds pieces until something fails or ends, and gives up what is not complete then.
fn read<'b>(
    reading: &Reading<'_>,
    pieces: impl Iterator<Item = &'b [u8]>,
) -> (Response, Option<Fault>) {
    let mut response = Response::new(reading);
    for piece in pieces {
        match response.feed(piece, usize::MAX) {
            Ok((next, _)) => response = next,
            Err(fault) => return (response.interrupt(Value::Nil), Some(fault)),
        }
        if let State::Failed(fault) = response.state().clone() {
            return (response.interrupt(Value::Nil), Some(fault));
        }
    }
    match response.finish(usize::MAX) {
        Ok((response, _)) => (response.interrupt(Value::Nil), None),
        Err(fault) => (response.interrupt(Value::Nil), Some(fault)),
    }
}

fn said(response: &Response) -> (Message, Vec<ToolCall>) {
    let (message, half) = response.message();
    (message, half.into_vec())
}
