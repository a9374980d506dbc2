//! The ids of traces and spans, which are computed from the conversation.
//!
//! A rewound conversation continues in other words under the same numbers, so the start time of an iteration is part of the ids.

use sha2::{Digest, Sha256};

use crate::log::iteration::Iteration;

/// The thing that a span stands for.
#[derive(Clone, Copy)]
pub(super) enum IdOf {
    /// A turn that begins with the iteration.
    Turn,
    /// The answer at this position of the iteration.
    Answer(usize),
    /// A call of an answer, by both positions.
    Call(usize, usize),
    /// The failed request at this position of the iteration.
    Failure(usize),
}

/// Returns the trace id of a turn.
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
    // An id must not be all zeros.
    if let Some(last) = id.last_mut().filter(|last| **last == 0) {
        *last = 1;
    }
    id
}
