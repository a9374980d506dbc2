//! Reading tool results.

use crate::error::Error;
use crate::log::late::Wait;
use crate::log::message::{Outcome, Output, Status};
use crate::log::part::{check_addresses, result_parts, Part, Place};
use crate::value::fields::{utf8, Fields};
use crate::value::time::{self, Time};
use crate::value::Value;

/// Reads `[%{id: id, result: result, started_at: time, ended_at: time, error_type: text} | {id, result}]`; all but
/// the first two may be absent.
///
/// # Errors
/// [`Error::InvalidToolResult`], [`Error::InvalidPart`].
pub(crate) fn read_results(value: Value) -> Result<Vec<(Box<str>, Outcome)>, Error> {
    let Value::List(items) = value else {
        return Err(Error::invalid(Vec::new(), "a list of tool results"));
    };
    let read = |(position, item)| read_one(item, position);
    items.into_vec().into_iter().enumerate().map(read).collect()
}

fn read_one(item: Value, position: usize) -> Result<(Box<str>, Outcome), Error> {
    let wrong = |key: &'static str| Error::InvalidToolResult {
        position,
        key: Value::atom(key),
    };
    let (id, result, ran, error_type) = match item {
        Value::Tuple(pair) => match <[Value; 2]>::try_from(pair.into_vec()) {
            Ok([id, result]) => (id, result, None, None),
            Err(_) => return Err(wrong("id")),
        },
        item => {
            let mut fields = Fields::of(item).ok_or_else(|| wrong("id"))?;
            let id = fields.take("id").ok_or_else(|| wrong("id"))?;
            let result = fields.take("result").ok_or_else(|| wrong("result"))?;
            let error_type = fields.take_given("error_type").map(utf8).transpose();
            let error_type = error_type.map_err(|_| wrong("error_type"))?;
            let ran = times(&mut fields).map_err(wrong)?;
            (id, result, ran, error_type)
        }
    };
    let id = utf8(id).map_err(|_| wrong("id"))?;
    let outcome = read_outcome(result)?.ok_or_else(|| wrong("result"))?;
    let error_type = error_type.filter(|_| outcome.status == Status::Error);
    let outcome = outcome.with_error_type(error_type.as_deref());
    if outcome.status == Status::Cancelled {
        return Err(wrong("result"));
    }
    Ok((id, outcome.with_times(ran)))
}

/// Reads `{:ok, term}`, `{:error, reason}`, `{:unknown, reason}`, `{:cancelled, reason}` or `{:waiting, %{for: term, handle: text,
/// deadline: time, question: map}}`.
///
/// # Errors
/// [`Error::InvalidPart`]
pub(crate) fn read_outcome(result: Value) -> Result<Option<Outcome>, Error> {
    let Value::Tuple(result) = result else {
        return Ok(None);
    };
    let Ok([Value::Atom(status), term]) = <[Value; 2]>::try_from(result.into_vec()) else {
        return Ok(None);
    };
    Ok(match &*status {
        "ok" => {
            let outcome = ok(term)?;
            Place::Result.check(outcome.output.parts())?;
            check_addresses(outcome.output.parts())?;
            Some(outcome)
        }
        "error" => Some(error(term)),
        "unknown" => Some(Outcome::new(Status::Unknown, Output::Value(term))),
        "cancelled" => Some(Outcome::new(Status::Cancelled, Output::Value(term))),
        "waiting" => waiting(term),
        _ => None,
    })
}

/// Reads what a call waits for.
pub(crate) fn waiting(term: Value) -> Option<Outcome> {
    let mut fields = Fields::of(term)?;
    let what = fields.take("for").unwrap_or_default();
    let handle = fields.take_text("handle").ok()?;
    let deadline = match fields.take_given("deadline") {
        None => None,
        Some(at) => Some(time::from_value(&at)?),
    };
    let question = fields.take_given("question");
    if !matches!(question, None | Some(Value::Map(_))) {
        return None;
    }
    let wait = Wait {
        what,
        handle,
        deadline,
        question,
        extra: None,
    };
    fields.unknown().is_none().then(|| Outcome::waiting(wait))
}

/// Takes the times at which the tool started and ended: both or none.
fn times(fields: &mut Fields) -> Result<Option<(Time, Time)>, &'static str> {
    let mut time = |key| match fields.take_given(key) {
        None => Ok(None),
        // A run has many of these times, and reading a struct takes longer than all the rest.
        Some(Value::Int(micros)) => time::from_micros(micros).map(Some).ok_or(key),
        Some(at) => time::from_value(&at).map(Some).ok_or(key),
    };
    match (time("started_at")?, time("ended_at")?) {
        (Some(started), Some(ended)) => Ok(Some((started, ended))),
        (None, None) => Ok(None),
        (None, _) => Err("started_at"),
        (_, None) => Err("ended_at"),
    }
}

/// Returns a result: parts when it is a list of nothing else, else any term.
///
/// # Errors
/// [`Error::InvalidPart`]
pub(crate) fn ok(term: Value) -> Result<Outcome, Error> {
    let output = match result_parts(term)? {
        Ok(parts) => Output::Parts(parts),
        Err(term) => Output::Value(term),
    };
    Ok(Outcome::new(Status::Ok, output))
}

/// Returns an error: parts when its reason is a list of nothing else that a result may have, else any term. A failure is not refused
/// for its form.
pub(crate) fn error(reason: Value) -> Outcome {
    let parts = match &reason {
        Value::List(_) => result_parts(reason.clone()).ok().and_then(Result::ok),
        _ => None,
    };
    let is_taken =
        |parts: &[Part]| Place::Result.check(parts).is_ok() && check_addresses(parts).is_ok();
    let output = match parts.filter(|parts| is_taken(parts)) {
        Some(parts) => Output::Parts(parts),
        None => Output::Value(reason),
    };
    Outcome::new(Status::Error, output)
}
