//! Chooses the scheduler of each call.
//!
//! A call on a normal scheduler must end within a millisecond; an empty call on a dirty one costs 11 us, on a normal one 0.05
//! us. So every NIF whose work grows with its data exists twice. The normal one does as much as fits, or else returns
//! `{:error, :dirty}`, and `Native` calls the other. The table (`nifs.rs`) names the data that decides; the limits are here.

use std::cell::Cell;
use std::time::SystemTime;

use ash_agent_context_core::{Cost, Size};
use rustler::schedule::consume_timeslice;
use rustler::Env;

use crate::error::NifError;

/// A normal scheduler walks so many terms and bytes in well under a millisecond: a term costs up to 100 ns to build or to
/// copy, a byte up to 1 ns to copy, to scan or to encode.
const NORMAL: Size = Size::new(2_000, 128 * 1024);

/// A normal scheduler makes so many terms in well under a millisecond: 10 to 30 ns each. Long texts are pointed to and cost
/// no more than other terms.
const READ: usize = 20_000;

/// The kind of scheduler that a call runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduler {
    /// A normal scheduler, since this time: bounded work only.
    Normal(SystemTime),
    /// A dirty CPU scheduler.
    Dirty,
}

impl Scheduler {
    /// Returns the limit on a normal scheduler, and none on a dirty one.
    pub const fn limit(self, normal: usize) -> usize {
        match self {
            Self::Normal(_) => normal,
            Self::Dirty => usize::MAX,
        }
    }

    /// Returns when the call began, or the present time.
    pub fn now(self) -> SystemTime {
        match self {
            Self::Normal(started) => started,
            Self::Dirty => SystemTime::now(),
        }
    }

    /// Refuses what costs too much for this scheduler.
    pub fn allow(self, cost: impl Into<Cost>) -> Result<(), NifError> {
        let Cost { work, handed_out } = cost.into();
        let fits = work.terms <= NORMAL.terms && work.bytes <= NORMAL.bytes && handed_out <= READ;
        match self {
            Self::Normal(_) if !fits => Err(NifError::Dirty),
            _ => Ok(()),
        }
    }
}

thread_local! {
    /// Nanoseconds of calls on this scheduler for which no process was charged yet.
    static OWED: Cell<u64> = const { Cell::new(0) };
}

/// One per cent of a process's share, the smallest charge.
const PERCENT: u64 = 10_000;

/// Takes the time of a call from its process's share, so that a loop of calls yields as often as
/// one of Elixir's own functions. A share is about a millisecond. Less than a hundredth of it is charged
/// with a later call: else a loop of calls of 1 us would yield ten times as often.
///
/// The clock is the one that tells the time of a message, so that a call reads it once less. When it is set, one call
/// is charged too much, a whole share at most, or nothing.
pub fn charge(env: Env<'_>, started: SystemTime) {
    let took = started.elapsed().map_or(0, |took| took.as_nanos());
    let owed = OWED.get() + u64::try_from(took).unwrap_or(u64::MAX).min(100 * PERCENT);
    OWED.set(owed % PERCENT);
    if owed >= PERCENT {
        let percent = i32::try_from(owed / PERCENT).unwrap_or(100).min(100);
        // The result is whether the share is used up, which only matters to calls that can go on later.
        let _ = consume_timeslice(env, percent);
    }
}
