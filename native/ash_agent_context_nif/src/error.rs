//! Core errors and faults as reason terms. The core has the table of them, `AshAgent.Context.Error` the words.

use ash_agent_context_core::{Detail, Error, Fault, Reason};
use rustler::types::tuple::make_tuple;
use rustler::{Encoder, Env, Term};

use crate::atoms;
use crate::encode;
use crate::to_term::{terms, Range, ToTerm};

/// Why a NIF answers `{:error, reason}`.
#[derive(Debug)]
pub enum NifError {
    /// The core refused.
    Core(Error),
    /// Too much work for a normal scheduler.
    Dirty,
    /// A time outside the calendar.
    BadTime,
    /// A term of another type than the function takes.
    BadArg,
    /// The same, where guards in Elixir leave only a handle of another VM: it raises, and `Native` explains it.
    Raise,
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
            Self::BadArg | Self::Raise => {
                (atoms::invalid(), Vec::<i64>::new(), "another type").encode(env)
            }
        }
    }
}

fn core<'a>(env: Env<'a>, error: &Error) -> Term<'a> {
    match error {
        Error::Response(fault) => (atoms::response(), fault).to_term(env),
        error => encode_reason(env, &error.reason()),
    }
}

terms! {
    // `{reason, kind, the provider's words | nil, whether asking again helps, milliseconds to wait | nil}`
    Fault = |of, env| {
        let reason = encode_reason(env, &of.reason());
        let kind = encode::word(env, of.kind().name());
        (reason, kind, of.message(), of.again(), of.after()).to_term(env)
    };
}

/// The atom, or a tuple of the atom and the details.
fn encode_reason<'a>(env: Env<'a>, reason: &Reason<'_>) -> Term<'a> {
    let name = encode::word(env, reason.name);
    if reason.details.is_empty() {
        return name;
    }
    let details = reason.details.iter().map(|detail| match detail {
        Detail::Text(text) => text.to_term(env),
        Detail::Texts(texts) => texts.to_term(env),
        Detail::Word(name) => encode::word(env, name),
        Detail::Count(count) => count.to_term(env),
        Detail::Number(number) => number.to_term(env),
        Detail::Value(value) => value.to_term(env),
        Detail::Path(path) => path.to_term(env),
        Detail::Paths(paths) => paths.to_term(env),
        Detail::Range(first, last) => Range(*first, *last).to_term(env),
        Detail::Nothing => atoms::nil().to_term(env),
    });
    let terms: Vec<Term<'_>> = std::iter::once(name).chain(details).collect();
    make_tuple(env, &terms)
}
