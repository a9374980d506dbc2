//! The only clock and the only dice: the core has none.

use std::time::{SystemTime, UNIX_EPOCH};

use ash_agent_context_core::{time, Time, MAX_DEPTH};
use rustler::Term;

use crate::atoms;
use crate::decode;
use crate::error::NifError;
use crate::scheduler::Scheduler;

/// Reads a `DateTime` or microseconds since 1970; for `nil`, returns when the call began.
pub fn at(term: Term<'_>, scheduler: Scheduler) -> Result<Time, NifError> {
    if term == atoms::nil().to_term(term.get_env()) {
        return at_system_time(scheduler.now());
    }
    if let Ok(micros) = term.decode() {
        return time::from_micros(micros).ok_or(NifError::BadTime);
    }
    let value = decode::value(term, MAX_DEPTH, scheduler)?;
    time::from_value(&value).ok_or(NifError::BadTime)
}

/// Returns the time of the system's clock.
pub fn at_system_time(time: SystemTime) -> Result<Time, NifError> {
    let elapsed = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let micros = i64::try_from(elapsed.as_micros()).unwrap_or_default();
    time::from_micros(micros).ok_or(NifError::BadTime)
}

/// Reads an id; for `nil`, makes a UUID v4.
pub fn id(term: Term<'_>) -> Result<String, NifError> {
    Ok(term.decode::<Option<String>>()?.unwrap_or_else(new_id))
}

pub fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}
