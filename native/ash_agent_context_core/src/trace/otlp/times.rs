//! The start and end times of spans.

use crate::context::Context;
use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::value::time::Time;

/// A start and an end.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub from: Time,
    pub to: Time,
}

impl Times {
    /// Returns both in nanoseconds since 1970.
    pub fn nanos(self) -> (u64, u64) {
        let nanos = |at: Time| {
            let micros = u64::try_from(at.timestamp_micros()).unwrap_or(0);
            micros.saturating_mul(1_000)
        };
        (nanos(self.from), nanos(self.to.max(self.from)))
    }
}

/// Returns the times of a turn, from its first iteration to its last one.
pub(super) fn turn(context: &Context, first: &Iteration, last: &Iteration) -> Times {
    Times {
        from: first.started_at,
        to: end(context, last),
    }
}

/// Returns the times of an answer. If its own are not known, it takes from the start of the iteration to the first decision about
/// its calls, or to their results.
pub(super) fn answer(context: &Context, iteration: &Iteration, entry: &Entry) -> Times {
    let reply = entry.message.reply.as_deref();
    let from = reply.and_then(|reply| reply.requested_at);
    let slots = 0..entry.message.calls.len();
    let decided = || slots.filter_map(|slot| time_of_decision(entry, slot)).min();
    let to = time_of_result(entry).or_else(decided);
    Times {
        from: from.unwrap_or(iteration.started_at),
        to: to.unwrap_or_else(|| end(context, iteration)),
    }
}

/// Returns the times of a call. If its own are not known, it takes from the decision about it, or from the answer, to the end of
/// the iteration.
pub(super) fn call(context: &Context, iteration: &Iteration, entry: &Entry, slot: usize) -> Times {
    let exchange = entry.exchange.as_deref();
    let ran = exchange.and_then(|exchange| exchange.slot(slot)?.ran);
    if let Some((from, to)) = ran {
        return Times { from, to };
    }
    let from = time_of_decision(entry, slot).or_else(|| time_of_result(entry));
    Times {
        from: from.unwrap_or(iteration.started_at),
        to: end(context, iteration),
    }
}

fn time_of_decision(entry: &Entry, slot: usize) -> Option<Time> {
    let decision = entry.exchange.as_deref()?.decision(slot)?;
    Some(decision.at)
}

fn time_of_result(entry: &Entry) -> Option<Time> {
    entry.message.reply.as_deref()?.received_at
}

fn end(context: &Context, iteration: &Iteration) -> Time {
    let last = iteration.last();
    // The next message of the user completes one without calls, and that time says nothing about the answer.
    if let Some(answer) = last.filter(|last| last.is_model() && last.exchange.is_none()) {
        if let Some(at) = time_of_result(answer) {
            return at;
        }
        if iteration.completed_at.is_some() {
            return iteration.started_at;
        }
    }
    iteration.completed_at.unwrap_or(context.updated_at())
}
