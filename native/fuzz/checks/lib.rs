//! What holds of every context, whatever made it.

mod json;
pub mod laws;
pub mod model;
pub mod operations;

pub use json::{check as check_json, check_sent};

use ash_agent_context_core::{time, Defaults, Time};

/// The clock of all targets: microseconds after 2026-01-01.
#[must_use]
pub fn at(micros: i64) -> Time {
    time::from_micros(1_767_225_600_000_000 + micros).unwrap()
}

/// What imports and attributes may leave out.
#[must_use]
pub fn defaults() -> Defaults<'static> {
    Defaults { id: "c", at: at(0) }
}
