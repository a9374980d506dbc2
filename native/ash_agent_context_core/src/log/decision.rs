//! What is decided about a tool call before it runs, and where a call stands.

use std::sync::Arc;

use crate::context::Context;
use crate::error::Error;
use crate::log::iteration::{Entry, Exchange};
use crate::log::kind::CallKind;
use crate::log::message::{Outcome, Output, Status};
use crate::value::time::Time;
use crate::value::words;
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

impl Exchange {
    /// Where the call of a slot stands.
    #[must_use]
    pub fn status(&self, slot: usize) -> CallStatus {
        match (self.slot(slot), self.decision(slot)) {
            (Some(outcome), _) => CallStatus::Ended(outcome.status),
            // A denial fills the slot.
            (None, Some(_)) => CallStatus::Approved,
            (None, None) => CallStatus::Pending,
        }
    }
}

impl Context {
    /// Lets a pending call run.
    ///
    /// # Errors
    /// [`Error::UnknownToolCall`]; [`Error::IllegalStatus`] when the call is approved or ended.
    pub fn approve_tool_call(&self, id: &str, by: Value, at: Time) -> Result<Self, Error> {
        self.decide(
            id,
            Decision {
                approved: true,
                by,
                at,
                reason: Value::Nil,
            },
        )
    }

    /// Ends a pending call with an error that tells the model of the denial.
    ///
    /// # Errors
    /// As [`Context::approve_tool_call`].
    pub fn deny_tool_call(
        &self,
        id: &str,
        reason: Value,
        by: Value,
        at: Time,
    ) -> Result<Self, Error> {
        self.decide(
            id,
            Decision {
                approved: false,
                by,
                at,
                reason,
            },
        )
    }

    fn decide(&self, id: &str, decision: Decision) -> Result<Self, Error> {
        let pending = self.current.last().and_then(|entry| place(entry, id));
        let status = match pending {
            Some((slot, exchange)) => exchange.status(slot),
            None => self
                .tool_call_status(id)
                .ok_or_else(|| Error::UnknownToolCall {
                    id: id.into(),
                    pending: self.current.pending_ids(),
                })?,
        };
        let slot = pending
            .map(|(slot, _)| slot)
            .filter(|_| status == CallStatus::Pending);
        let Some(slot) = slot else {
            return Err(Error::IllegalStatus {
                id: id.into(),
                from: status.name(),
                to: if decision.approved {
                    "approved"
                } else {
                    "denied"
                },
            });
        };
        let at = decision.at;
        let outcome = match (decision.approved, self.kind_at(slot)) {
            (false, _) => Some(denied(&decision.reason)),
            // There is nothing to run: the provider waits for the word.
            (true, CallKind::McpApproval) => Some(approved()),
            (true, _) => None,
        };
        let mut next = self.clone();
        next.update_exchange(|exchange| {
            exchange.decide(slot, decision);
            if let Some(outcome) = outcome {
                exchange.fill(slot, outcome);
            }
        });
        if next.current.count_pending() == 0 {
            next.complete(at);
        }
        next.updated_at = at;
        Ok(next)
    }

    /// The kind of a call of the last message.
    fn kind_at(&self, slot: usize) -> CallKind {
        let call = self
            .current
            .last()
            .and_then(|last| last.message.calls.get(slot));
        call.map_or(CallKind::Function, |call| call.kind)
    }

    /// Where a call stands: the newest one of this id.
    ///
    /// # Complexity
    /// O(n) for calls of long ago.
    #[must_use]
    pub fn tool_call_status(&self, id: &str) -> Option<CallStatus> {
        let (slot, exchange) = self.find_call(id)?;
        Some(exchange.status(slot))
    }

    /// What was decided about a call, if anything: the newest one of this id.
    ///
    /// # Complexity
    /// As [`Context::tool_call_status`].
    #[must_use]
    pub fn tool_call_decision(&self, id: &str) -> Option<&Decision> {
        let (slot, exchange) = self.find_call(id)?;
        exchange.decision(slot)
    }

    fn find_call(&self, id: &str) -> Option<(usize, &Exchange)> {
        self.iterations_back()
            .flat_map(|iteration| iteration.entries().rev())
            .find_map(|entry| place(entry, id))
    }
}

/// The slot of a call.
fn place<'a>(entry: &'a Entry, id: &str) -> Option<(usize, &'a Exchange)> {
    let slot = entry
        .message
        .calls
        .iter()
        .position(|call| &*call.id == id)?;
    Some((slot, entry.exchange.as_deref()?))
}

/// The result of a call that was denied: an error that says so.
fn denied(reason: &Value) -> Outcome {
    let words = match reason {
        Value::Nil => String::new(),
        reason => words::reason(reason),
    };
    let text = match words.trim() {
        "" => "denied".to_owned(),
        words => format!("denied: {words}"),
    };
    Outcome::new(Status::Denied, Output::Value(Value::text(&text)))
}

/// The result of a request for approval that was approved.
fn approved() -> Outcome {
    Outcome::new(Status::Ok, Output::Value(Value::Bool(true)))
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

    pub fn size(&self) -> Size {
        self.0
            .iter()
            .flatten()
            .fold(Size::default(), |sum, decision| sum.plus(decision.size()))
    }
}
