//! The ids of traces and spans, which are computed from the conversation.
//!
//! A rewound conversation continues in other words under the same numbers, so the start time of an iteration is part of the ids.

use sha2::{Digest, Sha256};

use crate::log::iteration::Iteration;

/// The place of a turn's span, in its first iteration.
pub(super) const TURN: &str = "turn";

/// Returns the trace id of a turn.
pub(super) fn trace(conversation: &str, first: &Iteration) -> [u8; 16] {
    digest("trace", conversation, first, TURN)
}

/// Returns the id of a span. `place`: what it stands for in the iteration.
pub(super) fn span(conversation: &str, iteration: &Iteration, place: &str) -> [u8; 8] {
    digest("span", conversation, iteration, place)
}

fn digest<const N: usize>(what: &str, conversation: &str, at: &Iteration, place: &str) -> [u8; N] {
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
