//! Ids of traces and spans, which follow from the conversation.
//!
//! A conversation may be rewound and go on in other words under the same numbers, so the time at which an
//! iteration began counts, too.

use sha2::{Digest, Sha256};

use crate::log::iteration::Iteration;

/// Says what a span is of.
#[derive(Clone, Copy)]
pub(super) enum IdOf {
    /// A turn, which begins with the iteration.
    Turn,
    /// The answer at this place of the iteration.
    Answer(usize),
    /// A call of it.
    Call(usize, usize),
    /// The failed request at this place of the iteration.
    Failure(usize),
}

/// The id of the trace of a turn.
pub(super) fn trace(conversation: &str, first: &Iteration) -> [u8; 16] {
    digest("trace", conversation, first, IdOf::Turn)
}

pub(super) fn span(conversation: &str, iteration: &Iteration, of: IdOf) -> [u8; 8] {
    digest("span", conversation, iteration, of)
}

fn digest<const N: usize>(what: &str, conversation: &str, at: &Iteration, of: IdOf) -> [u8; N] {
    let place = match of {
        IdOf::Turn => "turn".to_owned(),
        IdOf::Answer(position) => format!("answer {position}"),
        IdOf::Failure(position) => format!("failure {position}"),
        IdOf::Call(position, slot) => format!("call {position} {slot}"),
    };
    let began = at.started_at.timestamp_micros();
    let text = format!("{what} {} {began} {place} {conversation}", at.number);
    let mut id = [0; N];
    for (byte, of) in id.iter_mut().zip(Sha256::digest(text)) {
        *byte = of;
    }
    // Zeros alone would not be an id.
    if let Some(last) = id.last_mut().filter(|last| **last == 0) {
        *last = 1;
    }
    id
}
