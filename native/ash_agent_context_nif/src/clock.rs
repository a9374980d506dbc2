//! The only clock and the only dice: the core has none.

use std::time::{SystemTime, UNIX_EPOCH};

use ash_agent_context_core::{time, Time};
use rustler::Term;

use crate::error::NifError;

/// The given time in microseconds since 1970, or now when it is `nil`.
pub fn at(term: Term<'_>) -> Result<Time, NifError> {
    let micros = match term.decode::<Option<i64>>()? {
        Some(micros) => micros,
        None => now_micros(),
    };
    time::from_micros(micros).ok_or(NifError::BadTime)
}

fn now_micros() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
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
