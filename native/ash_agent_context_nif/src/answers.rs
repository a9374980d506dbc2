//! NIFs for typed answers: types, whole texts and streams.

use ash_agent_context_core::{
    Answer, AnswerType, Came, Cost, Error, Follow, Issue, Mend, ReadingState, ShownPart, Size,
    Value,
};
use rustler::Term;

use crate::argument::{arguments, On};
use crate::atoms;
use crate::error::NifError;
use crate::resource::{Handle, Holder};
use crate::to_term::{results, terms, ToTerm};

/// A text whose reading costs more than taking it.
pub struct Text<'a>(&'a str);

/// The schema of a type. Each term of it costs more than to copy it, and nobody knows how long a pattern takes.
pub struct Schema(pub Value);

/// How many terms are copied while one is made into a part of a type.
const MAKING: usize = 20;

arguments! {
    Text<'a> = |term, scheduler| {
        let bytes = <&[u8]>::read(term, scheduler)?;
        scheduler.allow(cost(bytes.len()))?;
        Ok(Self(std::str::from_utf8(bytes).map_err(|_| NifError::BadArg)?))
    };
    Schema = |term, scheduler| {
        let value = Value::read(term, scheduler)?;
        let cost = if has_pattern(&value) { Cost::LONG } else { Cost::from(value.size()).times(MAKING) };
        scheduler.allow(cost)?;
        Ok(Self(value))
    };
}

/// Returns the cost of reading: it makes terms and walks them again.
fn cost(bytes: usize) -> Size {
    Size::new(bytes / 16, bytes)
}

// No value is deeper than those that are read.
fn has_pattern(value: &Value) -> bool {
    let is_pattern = |key: &Value| {
        key.as_name()
            .is_some_and(|name| name.starts_with("pattern"))
    };
    match value {
        Value::List(items) | Value::Tuple(items) => items.iter().any(has_pattern),
        Value::Map(map) => map
            .iter()
            .any(|(key, value)| is_pattern(key) || has_pattern(value)),
        _ => false,
    }
}

pub fn new_type(schema: Value) -> Result<AnswerType, Error> {
    #[cfg(feature = "json_schema")]
    return AnswerType::of_any_keywords(&schema);
    #[cfg(not(feature = "json_schema"))]
    AnswerType::new(&schema)
}

pub fn read(
    answer: On<'_, AnswerType>,
    Text(text): Text<'_>,
    strict: bool,
) -> Result<Answer, NifError> {
    let cost = answer.reading_cost(cost(text.len()));
    answer.scheduler.allow(cost)?;
    Ok(answer.read(text, strict))
}

pub fn check(answer: On<'_, AnswerType>, value: Value, strict: bool) -> Result<Answer, NifError> {
    answer.scheduler.allow(answer.reading_cost(value.size()))?;
    Ok(answer.check(&value, strict))
}

pub fn check_arguments(answer: On<'_, AnswerType>, value: Value) -> Result<Answer, NifError> {
    answer.scheduler.allow(answer.reading_cost(value.size()))?;
    Ok(answer.check_arguments(&value))
}

/// Returns the value of a text so far, and `:none` before anything is shown.
pub fn partial<'a>(answer: On<'a, AnswerType>, Text(text): Text<'_>, strict: bool) -> Term<'a> {
    match answer.read_partial(text, !strict) {
        Some(value) => value.to_term(answer.env),
        None => atoms::none().to_term(answer.env),
    }
}

pub fn follow(
    follow: &Follow,
    answer: On<'_, AnswerType>,
    Text(piece): Text<'_>,
    strict: bool,
) -> Result<(Handle<Follow>, Vec<ShownPart>), NifError> {
    // The piece that ends a buffered text reads all of it again.
    let cost = cost(piece.len() + follow.held_bytes());
    answer.scheduler.allow(cost)?;
    let (next, shown) = follow.feed(&answer, !strict, piece);
    Ok((Holder::hold(next), shown))
}

results! {
    AnswerType = |of, _env| Holder::hold(of);
    Follow = |of, _env| Holder::hold(of);
}

terms! {
    // `{:fits | :misfits | :cut, value, [{path, words, line}], [{path, kind}]}`
    Answer = |of, env| (of.state, &of.value, &of.issues, &of.mends).to_term(env);
    ReadingState = |of, env| match of {
        Self::Fits => atoms::fits(),
        Self::Misfits => atoms::misfits(),
        Self::Cut => atoms::cut(),
    }.to_term(env);
    Issue = |of, env| (&*of.path, &of.words, of.line()).to_term(env);
    Mend = |of, env| (&*of.path, of.kind.name()).to_term(env);
    // `{path, {:text, text} | {:value, value}}`
    ShownPart = |of, env| {
        let came = match &of.came {
            Came::Text(text) => (atoms::text(), text).to_term(env),
            Came::Value(value) => (atoms::value(), value).to_term(env),
        };
        (&*of.path, came).to_term(env)
    };
}
