//! The only clock and the only dice: the core has none.

use std::time::{SystemTime, UNIX_EPOCH};

use ash_agent_context_core::{time, Time};
use rustler::Term;

use crate::atoms;
use crate::decode::{self, Around};
use crate::error::NifError;
use crate::scheduler::Scheduler;

/// The given `DateTime` or microseconds since 1970, or when the call began when it is `nil`.
pub fn at(term: Term<'_>, scheduler: Scheduler) -> Result<Time, NifError> {
    if term == atoms::nil().to_term(term.get_env()) {
        return time::from_micros(micros(scheduler.now())).ok_or(NifError::BadTime);
    }
    if let Ok(micros) = term.decode() {
        return time::from_micros(micros).ok_or(NifError::BadTime);
    }
    let value = decode::value(term, Around::Nothing, scheduler)?;
    time::from_value(&value).ok_or(NifError::BadTime)
}

fn micros(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|elapsed| i64::try_from(elapsed.as_micros()).ok())
        .unwrap_or_default()
}

/// The given id, or a UUID v4 when it is `nil`.
pub fn id(term: Term<'_>) -> Result<String, NifError> {
    match term.decode::<Option<String>>()? {
        Some(id) => Ok(id),
        None => Ok(uuid::Uuid::new_v4().to_string()),
    }
}
