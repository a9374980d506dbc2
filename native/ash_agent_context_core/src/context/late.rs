//! Results that come later: a conversation takes them when they arrive, and gives them a place before its next request.

use crate::context::Context;
use crate::error::Error;
use crate::log::decision::CallStatus;
use crate::log::late::{Arrived, CallKey, Refusal};
use crate::log::message::{Outcome, Status};
use crate::log::results::read_outcome;
use crate::value::time::Time;
use crate::value::Value;

impl Context {
    /// Takes a late result, `{:ok, term}`, `{:error, reason}`, `{:unknown, reason}` or `{:cancelled, reason}`, for a call that waits. While
    /// other calls of its message are pending it fills the slot, as any result does. Afterwards it is kept until
    /// [`Context::place_arrivals`]. The same result again changes nothing.
    ///
    /// # Errors
    /// [`Error::LateToolResult`], [`Error::InvalidToolResult`], [`Error::InvalidPart`].
    pub fn arrive(
        &self,
        key: &CallKey,
        result: Value,
        from: Value,
        at: Time,
    ) -> Result<Self, Error> {
        self.arrive_as(key, result, Arrived::new(at, from, None))
    }

    /// The same with a word on how it came, such as which pending call waited for it.
    ///
    /// # Errors
    /// As [`Context::arrive`].
    pub fn arrive_as(&self, key: &CallKey, result: Value, arrived: Arrived) -> Result<Self, Error> {
        let outcome = read_outcome(result)?.filter(|outcome| outcome.status != Status::Waiting);
        let outcome = outcome.ok_or_else(|| Error::InvalidToolResult {
            position: 0,
            key: Value::atom("result"),
        })?;
        let taken = self.take_late(key, outcome, arrived);
        taken.map_err(|error| self.tell_status(key, error))
    }

    /// Says of a call that never waited where it stands.
    fn tell_status(&self, key: &CallKey, error: Error) -> Error {
        match (error, key) {
            (Error::LateToolResult { call, why }, CallKey::Id(id))
                if why == Refusal::Unknown.name() =>
            {
                let why = match self.tool_call_status(id) {
                    None => Refusal::Unknown,
                    Some(CallStatus::Pending | CallStatus::Approved) => Refusal::Pending,
                    Some(CallStatus::Ended(Status::Denied)) => Refusal::Denied,
                    Some(CallStatus::Ended(Status::Cancelled)) => Refusal::Cancelled,
                    Some(CallStatus::Ended(_)) => Refusal::Answered,
                };
                let why = why.name();
                Error::LateToolResult { call, why }
            }
            (error, _) => error,
        }
    }

    pub(super) fn take_late(
        &self,
        key: &CallKey,
        outcome: Outcome,
        arrived: Arrived,
    ) -> Result<Self, Error> {
        let at = arrived.at;
        let mut next = self.clone();
        if next.log.arrive(key, outcome, arrived)? {
            next.log.updated_at = at;
            next.compare_new(self);
            next.grown();
        }
        Ok(next)
    }

    /// Gives the results that have arrived a place: behind all messages, in the next iteration once a model has spoken in the
    /// current one. Call it before a request, and not while an answer is under way, which was made without them.
    ///
    /// # Errors
    /// [`Error::PendingToolCalls`]
    pub fn place_arrivals(&self, at: Time) -> Result<Self, Error> {
        self.log.check_nothing_pending()?;
        if !self.log.waits().has_arrivals() {
            return Ok(self.clone());
        }
        Ok(self.changed(at, |next| {
            if self.current().has_assistant() || self.is_closed() {
                next.log.complete(at);
            }
            next.log.append_arrivals();
            next.compare_new(self);
        }))
    }

    /// Returns the conversation as a branch beside this one: the calls that wait are answered in this one, and never in the branch.
    #[must_use]
    pub fn leave_waiting(&self, at: Time) -> Self {
        match self.held_waiting() {
            true => self.changed(at, |next| next.log.leave_waiting()),
            false => self.clone(),
        }
    }
}
