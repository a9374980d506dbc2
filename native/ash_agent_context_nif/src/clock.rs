//! The only clock and the only dice: the core has none.

use std::time::{SystemTime, UNIX_EPOCH};

use ash_agent_context_core::{time, Time};
use rustler::{Atom, Term};

use crate::atoms;
use crate::decode::{self, Around};
use crate::error::NifError;
use crate::scheduler::Scheduler;

/// The given `DateTime` or microseconds since 1970, or when the call began when it is `nil`.
pub fn at(term: Term<'_>, scheduler: Scheduler) -> Result<Time, NifError> {
    if term == atoms::nil().to_term(term.get_env()) {
        return at_system_time(scheduler.now());
    }
    if let Ok(micros) = term.decode() {
        return time::from_micros(micros).ok_or(NifError::BadTime);
    }
    if let Some(time) = of_struct(term) {
        return Ok(time);
    }
    let value = decode::value(term, Around::Nothing, scheduler)?;
    time::from_value(&value).ok_or(NifError::BadTime)
}

/// The time of the system's clock.
pub fn at_system_time(time: SystemTime) -> Result<Time, NifError> {
    let elapsed = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let micros = i64::try_from(elapsed.as_micros()).unwrap_or_default();
    time::from_micros(micros).ok_or(NifError::BadTime)
}

/// A `DateTime` as they mostly are, read in a tenth of the time that its value takes.
fn of_struct(term: Term<'_>) -> Option<Time> {
    let field = |key: Atom| term.map_get(key).ok();
    let number = |key: Atom| field(key)?.decode::<i64>().ok();
    let is_iso = atoms::date_time() == field(atoms::struct_())?
        && atoms::calendar_iso() == field(atoms::calendar())?;
    let (micros, _digits) = field(atoms::microsecond())?.decode::<(u32, u8)>().ok()?;
    let date = [atoms::year(), atoms::month(), atoms::day()].map(number);
    let clock = [atoms::hour(), atoms::minute(), atoms::second()].map(number);
    let ([Some(year), Some(month), Some(day)], [Some(hour), Some(minute), Some(second)]) =
        (date, clock)
    else {
        return None;
    };
    let offset = number(atoms::utc_offset())?.checked_add(number(atoms::std_offset())?)?;
    is_iso
        .then(|| time::from_parts([year, month, day], [hour, minute, second], micros, offset))
        .flatten()
}

/// The given id, or a UUID v4 when it is `nil`.
pub fn id(term: Term<'_>) -> Result<String, NifError> {
    Ok(term.decode::<Option<String>>()?.unwrap_or_else(new_id))
}

/// A UUID v4.
pub fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}
