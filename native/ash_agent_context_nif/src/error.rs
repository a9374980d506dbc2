//! Core errors and faults as reason terms. The core has the table of them, `AshAgent.Context.Error` the words.

use ash_agent_context_core::{Detail, Error, Fault, Reason, Value};
use rustler::types::tuple::make_tuple;
use rustler::{Atom, Encoder, Env, Term};

use crate::atoms;
use crate::encode;

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
    match error {
        Error::Response(fault) => (atoms::response(), encode_fault(env, fault)).encode(env),
        error => encode_reason(env, &error.reason()),
    }
}

/// `{reason, kind, the provider's words | nil, whether asking again helps, milliseconds to wait | nil}`
pub fn encode_fault<'a>(env: Env<'a>, fault: &Fault) -> Term<'a> {
    let reason = encode_reason(env, &fault.reason());
    let kind = word(env, fault.kind().name());
    (reason, kind, fault.message(), fault.again(), fault.after()).encode(env)
}

/// The atom, or a tuple of the atom and the details.
fn encode_reason<'a>(env: Env<'a>, reason: &Reason<'_>) -> Term<'a> {
    let name = word(env, reason.name);
    if reason.details.is_empty() {
        return name;
    }
    let details = reason.details.iter().map(|detail| match detail {
        Detail::Text(text) => text.encode(env),
        Detail::Texts(texts) => texts
            .iter()
            .map(|text| &**text)
            .collect::<Vec<_>>()
            .encode(env),
        Detail::Word(name) => word(env, name),
        Detail::Count(count) => count.encode(env),
        Detail::Number(number) => number.encode(env),
        Detail::Value(value) => encode::value(env, value),
        Detail::Path(path) => encode_path(env, path),
        Detail::Paths(paths) => paths
            .iter()
            .map(|path| encode_path(env, path))
            .collect::<Vec<_>>()
            .encode(env),
        Detail::Range(first, last) => range(env, *first, *last),
        Detail::Nothing => atoms::nil().encode(env),
    });
    let terms: Vec<Term<'_>> = std::iter::once(name).chain(details).collect();
    make_tuple(env, &terms)
}

fn encode_path<'a>(env: Env<'a>, path: &[Value]) -> Term<'a> {
    let steps = path.iter().map(|step| encode::value(env, step));
    steps.collect::<Vec<_>>().encode(env)
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
    encode::Encoder::new_copying(env).fields(&keys, &values)
}

/// A word of the core's own, which no one from outside can make up.
fn word<'a>(env: Env<'a>, word: &'static str) -> Term<'a> {
    Atom::from_str(env, word).map_or_else(|_| atoms::error().encode(env), |atom| atom.encode(env))
}
