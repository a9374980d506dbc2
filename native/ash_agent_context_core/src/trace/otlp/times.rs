//! The start and end times of spans.

use crate::context::Context;
use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::value::time::Time;

/// Returns the times of an answer. If its own are not known, it takes from the start of the iteration to the first decision about
/// its calls, or to their results.
pub(super) fn answer(context: &Context, iteration: &Iteration, entry: &Entry) -> (Time, Time) {
    let reply = entry.message.reply.as_deref();
    let from = reply.and_then(|reply| reply.requested_at);
    let slots = 0..entry.message.calls.len();
    let decided = || slots.filter_map(|slot| time_of_decision(entry, slot)).min();
    let to = time_of_result(entry).or_else(decided);
    let from = from.unwrap_or(iteration.started_at);
    (from, to.unwrap_or_else(|| end(context, iteration)))
}

/// Returns the times of a call. If its own are not known, it takes from the decision about it, or from the answer, to the end of
/// the iteration.
pub(super) fn call(
    context: &Context,
    iteration: &Iteration,
    entry: &Entry,
    slot: usize,
) -> (Time, Time) {
    let exchange = entry.exchange.as_deref();
    let ran = exchange.and_then(|exchange| exchange.slot(slot)?.ran);
    ran.unwrap_or_else(|| {
        let from = time_of_decision(entry, slot).or_else(|| time_of_result(entry));
        let from = from.unwrap_or(iteration.started_at);
        (from, end(context, iteration))
    })
}

fn time_of_decision(entry: &Entry, slot: usize) -> Option<Time> {
    let decision = entry.exchange.as_deref()?.decision(slot)?;
    Some(decision.at)
}

fn time_of_result(entry: &Entry) -> Option<Time> {
    entry.message.reply.as_deref()?.received_at
}

/// Returns the end of an iteration.
pub(super) fn end(context: &Context, iteration: &Iteration) -> Time {
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
