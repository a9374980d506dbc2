//! Why a NIF answers with an error.

use ash_agent_context_core::{Error, Fault};

/// Why a NIF answers `{:error, reason}`.
#[derive(Debug)]
pub enum NifError {
    /// The core refused.
    Core(Error),
    /// Too much work for a normal scheduler.
    Dirty,
    /// A time outside the calendar.
    BadTime,
    /// A term of another type than the function takes.
    BadArg,
    /// The same, where guards in Elixir leave only a handle of another VM: it raises, and `Native` explains it.
    Raise,
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
