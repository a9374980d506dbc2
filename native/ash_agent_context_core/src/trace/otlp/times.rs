//! When a span begins and ends.

use crate::context::Context;
use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::value::time::Time;

/// From when to when.
#[derive(Clone, Copy)]
pub(super) struct Times {
    pub from: Time,
    pub to: Time,
}

impl Times {
    /// Nanoseconds since 1970 of both.
    pub fn nanos(self) -> (u64, u64) {
        let nanos = |at: Time| {
            let micros = u64::try_from(at.timestamp_micros()).unwrap_or(0);
            micros.saturating_mul(1_000)
        };
        (nanos(self.from), nanos(self.to.max(self.from)))
    }
}

/// A turn, from its first iteration to its last one.
pub(super) fn turn(context: &Context, first: &Iteration, last: &Iteration) -> Times {
    Times {
        from: first.started_at,
        to: end(context, last),
    }
}

/// An answer: up to the first decision about its calls, or to their results.
pub(super) fn answer(context: &Context, iteration: &Iteration, entry: &Entry) -> Times {
    let slots = 0..entry.message.calls.len();
    let decided = slots.filter_map(|slot| decided(entry, slot)).min();
    Times {
        from: iteration.started_at,
        to: decided.unwrap_or_else(|| end(context, iteration)),
    }
}

/// A call: from the decision about it, if there was one.
pub(super) fn call(context: &Context, iteration: &Iteration, entry: &Entry, slot: usize) -> Times {
    Times {
        from: decided(entry, slot).unwrap_or(iteration.started_at),
        to: end(context, iteration),
    }
}

fn decided(entry: &Entry, slot: usize) -> Option<Time> {
    let decision = entry.exchange.as_deref()?.decision(slot)?;
    Some(decision.at)
}

fn end(context: &Context, iteration: &Iteration) -> Time {
    let Some(completed) = iteration.completed_at else {
        return context.updated_at();
    };
    // One without calls is completed by the next message of the user, which tells nothing of the answer.
    let has_calls = iteration.last().is_some_and(|last| last.exchange.is_some());
    match has_calls {
        true => completed,
        false => iteration.started_at,
    }
}
