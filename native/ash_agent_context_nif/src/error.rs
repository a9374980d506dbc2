//! Core errors as reason terms.

use ash_agent_context_core::{Error, Fault, Path};
use rustler::{Encoder, Env, Term};

use crate::atoms;
use crate::encode;
use crate::words::Word;

/// Why a NIF answers `{:error, reason}`.
#[derive(Debug)]
pub enum NifError {
    /// The core refused.
    Core(Error),
    /// Too much work for a normal scheduler.
    Dirty,
    /// A time outside the calendar.
    BadTime,
    /// A term of another type than `Native` documents.
    BadArg,
}

impl From<Error> for NifError {
    fn from(error: Error) -> Self {
        Self::Core(error)
    }
}

impl From<Fault> for NifError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::TooMuchWork => Self::Dirty,
            other => Self::Core(Error::Response(other)),
        }
    }
}

impl From<rustler::Error> for NifError {
    fn from(_: rustler::Error) -> Self {
        Self::BadArg
    }
}

impl Encoder for NifError {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        match self {
            Self::Core(error) => core(env, error),
            Self::Dirty => atoms::dirty().encode(env),
            Self::BadTime => atoms::bad_time().encode(env),
            Self::BadArg => (atoms::invalid(), Vec::<i64>::new(), "another type").encode(env),
        }
    }
}

fn core<'a>(env: Env<'a>, error: &Error) -> Term<'a> {
    let key = |key| encode::value(env, key);
    match error {
        Error::UnknownToolCall { id, pending } => {
            (atoms::unknown_tool_call(), &**id, ids(pending)).encode(env)
        }
        Error::ToolCallAlreadyAnswered { id, pending } => {
            (atoms::tool_call_already_answered(), &**id, ids(pending)).encode(env)
        }
        Error::DuplicateToolResult { id } => (atoms::duplicate_tool_result(), &**id).encode(env),
        Error::NoToolResults { pending } => (atoms::no_tool_results(), ids(pending)).encode(env),
        Error::NoPendingToolCalls { given } => {
            (atoms::no_pending_tool_calls(), ids(given)).encode(env)
        }
        Error::PendingToolCalls { ids: pending } => {
            (atoms::pending_tool_calls(), ids(pending)).encode(env)
        }
        Error::DuplicateToolCall { id } => (atoms::duplicate_tool_call(), &**id).encode(env),
        Error::InvalidPart { position, key: at } => {
            (atoms::invalid_part(), position, key(at)).encode(env)
        }
        Error::InvalidToolCall { position, key: at } => {
            (atoms::invalid_tool_call(), position, key(at)).encode(env)
        }
        Error::InvalidToolResult { position, key: at } => {
            (atoms::invalid_tool_result(), position, key(at)).encode(env)
        }
        Error::UnsupportedTerm { kind, path: at } => {
            (atoms::unsupported_term(), kind.atom(), path(env, at)).encode(env)
        }
        Error::TooDeep { limit } => (atoms::too_deep(), limit).encode(env),
        Error::Invalid { path: at, expected } => {
            (atoms::invalid(), path(env, at), &**expected).encode(env)
        }
        Error::UnknownIteration {
            number,
            first,
            last,
        } => (
            atoms::unknown_iteration(),
            number,
            range(env, *first, *last),
        )
            .encode(env),
        Error::TraceTooLarge { most } => (atoms::trace_too_large(), most).encode(env),
        Error::IllegalStatus { id, from, to } => (
            atoms::illegal_status(),
            &**id,
            word(env, from),
            word(env, to),
        )
            .encode(env),
        Error::NoPrice { model } => (atoms::no_price(), model.as_deref()).encode(env),
        Error::InvalidUsage { key: at } => (atoms::invalid_usage(), key(at)).encode(env),
        Error::NoAssistantMessage => atoms::no_assistant_message().encode(env),
        Error::CannotFit { least } => (atoms::cannot_fit(), least).encode(env),
        Error::NotCompactable {
            first,
            last,
            allowed,
        } => {
            let allowed = allowed.map(|(first, last)| range(env, first, last));
            let asked = range(env, *first, *last);
            (atoms::not_compactable(), asked, allowed).encode(env)
        }
        Error::SummaryTooLong { tokens, replaced } => {
            (atoms::summary_too_long(), tokens, replaced).encode(env)
        }
        Error::FeatureMissing { feature } => (atoms::feature_missing(), *feature).encode(env),
        Error::InvalidPattern { pattern, problem } => {
            (atoms::invalid_pattern(), &**pattern, &**problem).encode(env)
        }
        Error::Response(fault) => {
            let fault = crate::response::encode_fault(env, fault);
            (atoms::response(), fault).encode(env)
        }
        Error::ReservedField { key } => (atoms::reserved_field(), &**key).encode(env),
        // A scheduler that may encode everything never gets this far.
        Error::TooMuchWork => atoms::too_much_work().encode(env),
    }
}

/// `first..last`
pub fn range(env: Env<'_>, first: u64, last: u64) -> Term<'_> {
    let keys = [
        atoms::struct_(),
        atoms::first(),
        atoms::last(),
        atoms::step(),
    ];
    let values = [
        atoms::range().encode(env),
        first.encode(env),
        last.encode(env),
        1.encode(env),
    ];
    encode::Encoder::copying(env).fields(&keys, &values)
}

/// A word of the core's own, which no one from outside can make up.
fn word<'a>(env: Env<'a>, word: &'static str) -> Term<'a> {
    encode::Encoder::copying(env).atom(word)
}

fn ids(ids: &[Box<str>]) -> Vec<&str> {
    ids.iter().map(|id| &**id).collect()
}

fn path<'a>(env: Env<'a>, path: &Path) -> Vec<Term<'a>> {
    path.iter().map(|step| encode::value(env, step)).collect()
}
