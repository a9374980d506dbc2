//! The errors of NIFs, and their terms.

use ash_agent_context_core::{Error, Fault};

/// A reason why a NIF returns `{:error, reason}`.
#[derive(Debug)]
pub enum NifError {
    /// The core refused.
    Core(Error),
    /// The call has too much work for a normal scheduler.
    Dirty,
    /// A time outside the calendar.
    BadTime,
    /// A term has another type than the function takes.
    BadArg,
    /// Guards in Elixir leave only a handle of another VM here: it raises, and `Native` explains it.
    Raise,
}

impl From<Error> for NifError {
    fn from(error: Error) -> Self {
        match error {
            Error::TooMuchWork => Self::Dirty,
            other => Self::Core(other),
        }
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
