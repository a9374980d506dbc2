//! Rules of every document of a conversation, be it the stored form or the maps of attributes: iterations follow each
//! other, and nothing comes after a call without a result. The readers add where in the document an error is.

use crate::error::Error;
use crate::log::Log;

/// Refuses an iteration whose number is not the one that is due.
pub(crate) fn check_number(number: u64, due: Option<u64>) -> Result<(), Error> {
    match due {
        Some(due) if due != number => Err(Error::invalid(
            Vec::new(),
            format!("{due}, one more than the number of the iteration before it"),
        )),
        _ => Ok(()),
    }
}

impl Log {
    /// Returns the number of the iteration that comes next.
    pub(crate) fn due(&self) -> u64 {
        self.current.number.saturating_add(1)
    }

    /// Only the last iteration may have calls without a result.
    pub(crate) fn check_iteration_answered(&self) -> Result<(), Error> {
        match self.current.pending_ids() {
            ids if ids.is_empty() => Ok(()),
            ids => Err(Error::invalid(
                Vec::new(),
                format!("results for the tool calls {ids:?} of the iteration before"),
            )),
        }
    }

    /// Only the last message may have calls without a result.
    pub(crate) fn check_message_answered(&self) -> Result<(), Error> {
        match self.current.count_pending() {
            0 => Ok(()),
            _ => Err(Error::invalid(
                Vec::new(),
                "results for the tool calls of the message before",
            )),
        }
    }
}
