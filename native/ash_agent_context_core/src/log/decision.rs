//! What is decided about a tool call before it runs, and where a call stands.

use std::sync::Arc;

use crate::log::message::Status;
use crate::value::time::Time;
use crate::value::{Size, Value};

/// A decision about a call, kept for audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether the call may run.
    pub approved: bool,
    /// Who decided; any term of the application.
    pub by: Value,
    /// When.
    pub at: Time,
    /// Why not; nil for an approval.
    pub reason: Value,
}

impl Decision {
    /// How much there is to walk and to copy.
    pub(crate) fn size(&self) -> Size {
        let size = self.by.size().plus(self.reason.size());
        size.plus(Size::new(2, 0))
    }
}

/// Where a tool call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStatus {
    /// Nothing is decided, there is no result.
    Pending,
    /// It may run; there is no result.
    Approved,
    /// It ended; a result is final.
    Ended(Status),
}

impl CallStatus {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Ended(status) => status.name(),
        }
    }
}

/// The decisions of an exchange; most have none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Decisions(Vec<Option<Arc<Decision>>>);

impl Decisions {
    pub fn get(&self, slot: usize) -> Option<&Decision> {
        self.0.get(slot)?.as_deref()
    }

    pub fn put(&mut self, slot: usize, decision: Decision) {
        if self.0.len() <= slot {
            self.0.resize(slot + 1, None);
        }
        if let Some(place) = self.0.get_mut(slot) {
            *place = Some(Arc::new(decision));
        }
    }

    /// Leaves those of some slots, as if the others had never been there.
    pub fn retain(&mut self, keep: impl Fn(usize) -> bool) {
        for (slot, decision) in self.0.iter_mut().enumerate() {
            decision.take_if(|_| !keep(slot));
        }
        let last = self.0.iter().rposition(Option::is_some);
        self.0.truncate(last.map_or(0, |last| last + 1));
    }

    pub fn size(&self) -> Size {
        self.0
            .iter()
            .flatten()
            .fold(Size::default(), |sum, decision| sum.plus(decision.size()))
    }
}
