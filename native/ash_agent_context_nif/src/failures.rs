//! Requests: what they asked for, and those that failed.

use ash_agent_context_core::{Context, Error, Time, Value};
use rustler::Term;

use crate::argument::Lender;
use crate::atoms;
use crate::encode::{self, Encoder};
use crate::to_term::ToTerm;

pub fn add(context: &Context, failure: Value, at: Time) -> Result<Context, Error> {
    context.add_failure(&failure, at)
}

/// Maps with what is known of each, oldest first.
pub fn list(context: Lender<'_>) -> Vec<Term<'_>> {
    let env = context.env;
    let encoder = Encoder::new_copying(env);
    let failures = context.failures().map(|(iteration, failure)| {
        let facts = Encoder::new_copying(env).map(&failure.facts());
        let at = failure
            .requested_at
            .map(|at| (atoms::requested_at(), encoder.time(at)));
        let more = [
            (atoms::iteration(), iteration.to_term(env)),
            (atoms::at(), encoder.time(failure.at)),
        ];
        encode::with(facts, more.into_iter().chain(at))
    });
    failures.collect()
}

pub fn note_request(
    context: &Context,
    fields: Value,
    tools: Value,
    hashed: bool,
) -> Result<Context, Error> {
    match hashed {
        true => context.note_request_hashes(fields, tools),
        false => context.note_request(fields, tools),
    }
}

/// The fields, the tools and the digest of an iteration's request.
pub fn request_note(
    context: &Context,
    number: i64,
) -> (Option<&Value>, Option<&Value>, Option<&str>) {
    let iteration = context.iteration(number);
    let noted = iteration.map_or([None; 2], |iteration| context.request_note(iteration));
    let [fields, tools] = noted.map(|noted| noted.map(|(_, value)| value));
    let sent = iteration.and_then(|iteration| context.sent_note(iteration));
    (fields, tools, sent)
}
