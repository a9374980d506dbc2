//! Deciding about a tool call before it runs.

use crate::error::Error;
use crate::log::decision::{CallStatus, Decision};
use crate::log::exchange::{Entry, Exchange};
use crate::log::message::{Outcome, Output, Status};
use crate::log::Log;
use crate::value::time::Time;
use crate::value::words;
use crate::value::Value;

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

impl Log {
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
    /// As [`Log::approve_tool_call`].
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
        let outcome = (!decision.approved).then(|| denied(&decision.reason));
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
    /// As [`Log::tool_call_status`].
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
