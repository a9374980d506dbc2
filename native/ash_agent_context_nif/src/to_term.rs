//! How results become terms: each type once. The core has the table of errors, `AshAgent.Context.Error` the words.

use ash_agent_context_core::{
    AccountRow, CallStatus, Context, Decision, Detail, Diagnosis, Error, ExpectedBreak, Fault,
    Forecast, Hit, Located, Map, Outlook, Reason, ReceiptFact, Repair, RequestChange, Shortening,
    Time, Tokens, Unseen, Usage, Value, Verdict,
};
use chrono::{Datelike, Timelike};
use rustler::types::tuple::make_tuple;
use rustler::{Atom, Encoder as _, Env, NewBinary, Resource, ResourceArc, Term};

use crate::atoms;
pub use crate::encode::ToTerm;
use crate::encode::{self, Encoder, FieldTerms};
use crate::error::NifError;
use crate::resource::{Handle, Holder};

/// A result of a NIF.
pub trait Returned {
    /// Returns the term, or the error.
    fn returned(self, env: Env<'_>) -> Result<Term<'_>, NifError>;
}

impl<T: ToTerm> Returned for T {
    fn returned(self, env: Env<'_>) -> Result<Term<'_>, NifError> {
        Ok(self.to_term(env))
    }
}

impl<T: Returned, E: Into<NifError>> Returned for Result<T, E> {
    fn returned(self, env: Env<'_>) -> Result<Term<'_>, NifError> {
        match self {
            Ok(of) => of.returned(env),
            Err(error) => Err(error.into()),
        }
    }
}

/// Declares results that are taken apart, each with what becomes its term.
macro_rules! results {
    ($($type:ty = |$of:ident, $env:ident| $result:expr;)*) => {
        $(impl $crate::to_term::Returned for $type {
            fn returned(self, $env: rustler::Env<'_>) -> Result<rustler::Term<'_>, $crate::error::NifError> {
                let $of = self;
                Ok($crate::to_term::ToTerm::to_term(&$result, $env))
            }
        })*
    };
}
pub(crate) use results;

results! {
    Context = |of, _env| Made::from(of);
}

impl<T: ToTerm> Returned for (Context, T) {
    fn returned(self, env: Env<'_>) -> Result<Term<'_>, NifError> {
        let (context, beside) = self;
        Ok((Made::from(context), beside).to_term(env))
    }
}

/// A field that is only in the map if it has a value.
pub struct Maybe<T>(pub Option<T>);

impl<T: ToTerm> ToTerm for Maybe<T> {
    fn to_term<'a>(&self, env: Env<'a>) -> Term<'a> {
        self.0.to_term(env)
    }

    fn put(&self, key: Atom, fields: &mut FieldTerms<'_>) {
        if let Some(value) = &self.0 {
            fields.put(key, value);
        }
    }
}

/// A new context, returned as its handle and its current iteration.
pub struct Made(Handle<Context>, u64);

impl From<Context> for Made {
    fn from(context: Context) -> Self {
        let iteration = context.current_iteration();
        Self(Holder::hold(context), iteration)
    }
}

/// A range, `first..last`.
pub struct Range(pub u64, pub u64);

/// Declares types, each with the function that makes its term.
macro_rules! terms {
    ($($type:ty = |$of:ident, $env:ident| $term:expr;)*) => {
        $(impl $crate::to_term::ToTerm for $type {
            fn to_term<'a>(&self, $env: rustler::Env<'a>) -> rustler::Term<'a> {
                let $of = self;
                $term
            }
        })*
    };
}
pub(crate) use terms;

/// Makes a map: fields of a value under their own names, or with what stands after the name.
macro_rules! map {
    ($env:expr, $of:ident { $($key:ident $(: $value:expr)?),* $(,)? }) => {{
        let mut fields = $crate::encode::FieldTerms::new($env);
        $($crate::to_term::ToTerm::put(
            &$crate::to_term::value!($of $key $($value)?), $crate::atoms::$key(), &mut fields,
        );)*
        fields.end()
    }};
}
pub(crate) use map;

/// Declares types that become maps.
macro_rules! maps {
    ($($type:ty = |$of:ident| $fields:tt)*) => {
        $crate::to_term::terms! { $($type = |$of, env| $crate::to_term::map!(env, $of $fields);)* }
    };
}
pub(crate) use maps;

/// The value of a field: the given one, or the field itself.
macro_rules! value {
    ($of:ident $key:ident) => {
        $of.$key
    };
    ($of:ident $key:ident $value:expr) => {
        $value
    };
}
pub(crate) use value;

terms! {
    bool = |of, env| of.encode(env);
    i32 = |of, env| of.encode(env);
    u32 = |of, env| of.encode(env);
    u64 = |of, env| of.encode(env);
    i64 = |of, env| of.encode(env);
    isize = |of, env| of.encode(env);
    usize = |of, env| of.encode(env);
    f64 = |of, env| of.encode(env);
    Atom = |of, env| of.encode(env);
    Term<'_> = |of, env| of.encode(env);
    str = |of, env| of.encode(env);
    String = |of, env| of.encode(env);
    Box<str> = |of, env| (**of).encode(env);
    [u8] = |of, env| NewBinary::from_slice(env, of).into();
    Vec<u8> = |of, env| of.as_slice().to_term(env);
    Made = |of, env| (&of.0, of.1).encode(env);
    Value = |of, env| encode::value(env, of);
    Map = |of, env| Encoder::new(env, None).map(of);
    CallStatus = |of, env| encode::word(env, of.name());
    RequestChange = |of, env| (of.cause, of.iteration).to_term(env);
    Outlook = |of, env| {
        // Words are the core's own, so their atoms are known.
        let word = encode::word(env, of.name());
        match of {
            Self::Broken(cause) => (word, *cause).to_term(env),
            _ => word,
        }
    };
}

impl<T: Resource> ToTerm for ResourceArc<T> {
    fn to_term<'a>(&self, env: Env<'a>) -> Term<'a> {
        self.encode(env)
    }
}

impl<T: ToTerm + ?Sized> ToTerm for &T {
    fn to_term<'a>(&self, env: Env<'a>) -> Term<'a> {
        (**self).to_term(env)
    }
}

impl<T: ToTerm> ToTerm for Option<T> {
    fn to_term<'a>(&self, env: Env<'a>) -> Term<'a> {
        let nothing = || atoms::nil().to_term(env);
        self.as_ref().map_or_else(nothing, |of| of.to_term(env))
    }
}

impl<T: ToTerm> ToTerm for [T] {
    fn to_term<'a>(&self, env: Env<'a>) -> Term<'a> {
        Encoder::new(env, None).list(self.iter().map(|of| of.to_term(env)))
    }
}

impl<T: ToTerm> ToTerm for Vec<T> {
    fn to_term<'a>(&self, env: Env<'a>) -> Term<'a> {
        self.as_slice().to_term(env)
    }
}

macro_rules! tuples {
    ($($($type:ident $of:ident),*;)*) => {
        $(impl<$($type: ToTerm),*> ToTerm for ($($type,)*) {
            fn to_term<'a>(&self, env: Env<'a>) -> Term<'a> {
                let ($($of,)*) = self;
                make_tuple(env, &[$($of.to_term(env)),*])
            }
        })*
    };
}

tuples! {
    A a, B b;
    A a, B b, C c;
    A a, B b, C c, D d;
    A a, B b, C c, D d, E e;
    A a, B b, C c, D d, E e, F f;
}

maps! {
    Time = |of| {
        struct_: atoms::date_time(), calendar: atoms::calendar_iso(), year: of.year(), month: of.month(), day: of.day(),
        hour: of.hour(), minute: of.minute(), second: of.second(), microsecond: (of.nanosecond() / 1000, 6_u32),
        time_zone: "Etc/UTC", zone_abbr: "UTC", utc_offset: 0_u32, std_offset: 0_u32,
    }
    Range = |of| { struct_: atoms::range(), first: of.0, last: of.1, step: 1_u64 }
    Decision = |of| {
        decision: match (of.approved, of.answered) {
            (_, true) => atoms::answered(),
            (true, false) => atoms::approved(),
            (false, false) => atoms::denied(),
        },
        by, at, reason, arguments: Maybe(of.arguments.as_ref()), edited: Maybe(of.edited.as_ref()),
    }
    Repair = |of| { repair: of.kind, message, id: Maybe(of.id.as_ref()), to: Maybe(of.to.as_ref()) }
    AccountRow = |of| {
        iteration, provider, model, requested_at, idle: of.since.map(|since| since.num_milliseconds()), usage, predicted,
        verdict: of.outlook, diagnosis, cost, avoidable,
    }
    Diagnosis = |of| { reason, tokens }
    Forecast = |of| {
        bytes, same_bytes, tokens, read, written, fresh, cost, breaks, dropped_thinking, most_cost: Maybe(of.most_cost),
    }
    ExpectedBreak = |of| { cause, iteration, tokens }
    ReceiptFact = |of| { kind, state, text, handle: of.handle.map(|handle| handle.to_string()), iteration, uses }
    Unseen = |of| { look, was, iterations: Range(of.first, of.last), call, handle: of.handle.to_string() }
    Hit = |of| { handle: of.handle.to_string(), text, score }
    Located = |of| { change: of.change.what, from: of.change.from, to: of.change.to, iteration, position }
    Shortening = |of| { kind, cause, iteration, iterations_range: Range(of.first, of.last) }
    Verdict = |of| { facts, kept, missing, wrong, appended }
    Tokens = |of| { system, user, assistant, thinking, tool_calls, tool_results, media, summaries }
    Usage = |of| {
        input_tokens: of.input, output_tokens: of.output, total_tokens: of.total, cached_tokens: of.cached,
        cache_write_tokens: of.written, reasoning_tokens: of.reasoning,
    }
}

terms! {
    NifError = |of, env| match of {
        Self::Core(Error::Response(fault)) => (atoms::response(), fault).to_term(env),
        Self::Core(error) => encode_reason(env, &error.reason()),
        Self::Dirty => atoms::dirty().to_term(env),
        Self::BadTime => atoms::bad_time().to_term(env),
        Self::BadArg | Self::Raise => (atoms::invalid(), &[] as &[u64], "another type").to_term(env),
    };
    // `{reason, kind, the provider's words | nil, whether asking again helps, milliseconds to wait | nil}`
    Fault = |of, env| {
        let reason = encode_reason(env, &of.reason());
        let kind = encode::word(env, of.kind().name());
        (reason, kind, of.message(), of.again(), of.after()).to_term(env)
    };
}

/// Returns the atom, or a tuple of the atom and the details.
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
