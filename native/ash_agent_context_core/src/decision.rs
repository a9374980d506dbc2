//! What is decided about a tool call before it runs, and where a call stands.
//!
//! An approval holds for one name and one set of arguments. What is to run may differ from what the
//! model wrote, so a call can be asked about with those arguments; whoever approves it then approves
//! these. A digest of them is kept with the decision: what runs is compared with it, so that neither
//! a changed document nor arguments that were made anew run under an approval of others.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::call::ToolCall;
use crate::context::Context;
use crate::error::Error;
use crate::iteration::{Entry, Exchange};
use crate::message::{Outcome, Output, Status};
use crate::time::Time;
use crate::value::{Size, Value};
use crate::words;

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
    /// The arguments that were decided about, where the call's own are others.
    pub arguments: Option<Value>,
    /// What an approval holds for: the digest of the name and the arguments. Releases that did not
    /// bind approvals left none; theirs hold for the call as it stands.
    pub digest: Option<Box<str>>,
}

impl Decision {
    /// How much there is to walk and to copy.
    pub(crate) fn size(&self) -> Size {
        let size = self.by.size().plus(self.reason.size());
        let digest = self.digest.as_ref().map_or(0, |text| text.len());
        let arguments = self.arguments.as_ref().map(Value::size).unwrap_or_default();
        size.plus(arguments).plus(Size::new(3, digest))
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
    /// Notes the arguments that a pending call would run with, for whoever decides about it.
    ///
    /// # Errors
    /// [`Error::UnknownToolCall`]; [`Error::IllegalStatus`] when the call is approved or ended.
    pub fn ask_about_tool_call(&self, id: &str, arguments: Value, at: Time) -> Result<Self, Error> {
        let Undecided { slot, call, .. } = self.undecided(id, "asked")?;
        let asked = (call.arguments.value != arguments).then_some(arguments);
        Ok(self.with_decision(at, |exchange| exchange.ask(slot, asked)))
    }

    /// Lets a pending call run, with the arguments that are given, or else those it was asked about
    /// with, or else its own.
    ///
    /// # Errors
    /// As [`Context::ask_about_tool_call`].
    pub fn approve_tool_call(
        &self,
        id: &str,
        arguments: Option<Value>,
        by: Value,
        at: Time,
    ) -> Result<Self, Error> {
        let Undecided { slot, call, asked } = self.undecided(id, "approved")?;
        let own = &call.arguments.value;
        let arguments = arguments
            .or_else(|| asked.cloned())
            .filter(|seen| seen != own);
        let decision = Decision {
            approved: true,
            by,
            at,
            reason: Value::Nil,
            digest: Some(digest(call, arguments.as_ref().unwrap_or(own))),
            arguments,
        };
        Ok(self.with_decision(at, |exchange| exchange.decide(slot, decision)))
    }

    /// Ends a pending call with an error that tells the model of the denial.
    ///
    /// # Errors
    /// As [`Context::ask_about_tool_call`].
    pub fn deny_tool_call(
        &self,
        id: &str,
        reason: Value,
        by: Value,
        at: Time,
    ) -> Result<Self, Error> {
        let Undecided { slot, asked, .. } = self.undecided(id, "denied")?;
        let outcome = denied(&reason);
        let decision = Decision {
            approved: false,
            by,
            at,
            reason,
            arguments: asked.cloned(),
            digest: None,
        };
        Ok(self.with_decision(at, |exchange| {
            exchange.decide(slot, decision);
            exchange.fill(slot, outcome);
        }))
    }

    /// Whether a call waits to run and was approved with these very arguments.
    ///
    /// # Complexity
    /// As [`Context::tool_call_status`], and O(the arguments).
    #[must_use]
    pub fn is_approved(&self, id: &str, arguments: &Value) -> bool {
        let found = self.current.last().and_then(|entry| place(entry, id));
        let Some((slot, call, exchange)) = found else {
            return false;
        };
        match exchange.decision(slot) {
            Some(decision) if exchange.slot(slot).is_none() => match &decision.digest {
                Some(approved) => digest(call, arguments) == *approved,
                None => call.arguments.value == *arguments,
            },
            _ => false,
        }
    }

    /// The calls that wait for a decision, each with the arguments that it would run with.
    pub fn undecided_calls(&self) -> impl Iterator<Item = (&ToolCall, &Value)> {
        let entry = self.current.last();
        let calls = entry.and_then(|entry| Some((entry, entry.exchange.as_deref()?)));
        calls.into_iter().flat_map(|(entry, exchange)| {
            entry
                .message
                .calls
                .iter()
                .enumerate()
                .filter_map(|(slot, call)| {
                    let is_pending = exchange.status(slot) == CallStatus::Pending;
                    let arguments = exchange.asked(slot).unwrap_or(&call.arguments.value);
                    is_pending.then_some((call, arguments))
                })
        })
    }

    fn undecided(&self, id: &str, to: &'static str) -> Result<Undecided<'_>, Error> {
        let found = self.current.last().and_then(|entry| place(entry, id));
        let status = match found {
            Some((slot, _, exchange)) => exchange.status(slot),
            None => self
                .tool_call_status(id)
                .ok_or_else(|| Error::UnknownToolCall {
                    id: id.into(),
                    pending: self.current.pending_ids(),
                })?,
        };
        match found {
            Some((slot, call, exchange)) if status == CallStatus::Pending => Ok(Undecided {
                slot,
                call,
                asked: exchange.asked(slot),
            }),
            _ => Err(Error::IllegalStatus {
                id: id.into(),
                from: status.name(),
                to,
            }),
        }
    }

    fn with_decision(&self, at: Time, change: impl FnOnce(&mut Exchange)) -> Self {
        let mut next = self.clone();
        next.update_exchange(change);
        if next.current.count_pending() == 0 {
            next.complete(at);
        }
        next.updated_at = at;
        next
    }

    /// Where a call stands: the newest one of this id.
    ///
    /// # Complexity
    /// O(n) for calls of long ago.
    #[must_use]
    pub fn tool_call_status(&self, id: &str) -> Option<CallStatus> {
        let (slot, _, exchange) = self.find_call(id)?;
        Some(exchange.status(slot))
    }

    /// What was decided about a call, if anything: the newest one of this id.
    ///
    /// # Complexity
    /// As [`Context::tool_call_status`].
    #[must_use]
    pub fn tool_call_decision(&self, id: &str) -> Option<&Decision> {
        let (slot, _, exchange) = self.find_call(id)?;
        exchange.decision(slot)
    }

    fn find_call(&self, id: &str) -> Option<(usize, &ToolCall, &Exchange)> {
        self.iterations_back()
            .flat_map(|iteration| iteration.entries().rev())
            .find_map(|entry| place(entry, id))
    }
}

/// A call that waits for a decision.
struct Undecided<'a> {
    slot: usize,
    call: &'a ToolCall,
    /// The arguments that it was asked about with.
    asked: Option<&'a Value>,
}

/// A call with its slot.
fn place<'a>(entry: &'a Entry, id: &str) -> Option<(usize, &'a ToolCall, &'a Exchange)> {
    let mut calls = entry.message.calls.iter().enumerate();
    let (slot, call) = calls.find(|(_, call)| &*call.id == id)?;
    Some((slot, call, entry.exchange.as_deref()?))
}

/// What an approval holds for.
fn digest(call: &ToolCall, arguments: &Value) -> Box<str> {
    let mut digest = Sha256::new();
    Value::text(call.name.as_str()).feed(&mut digest);
    arguments.feed(&mut digest);
    let hex = digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>();
    format!("sha256:{hex}").into()
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

/// What stands between a call and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// Somebody is to decide about a run with these arguments.
    Asked(Value),
    /// Somebody has decided.
    Decided(Decision),
}

/// The decisions of an exchange; most have none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Decisions(Vec<Option<Arc<Step>>>);

impl Decisions {
    pub fn get(&self, slot: usize) -> Option<&Decision> {
        match self.0.get(slot)?.as_deref()? {
            Step::Decided(decision) => Some(decision),
            Step::Asked(_) => None,
        }
    }

    pub fn asked(&self, slot: usize) -> Option<&Value> {
        match self.0.get(slot)?.as_deref()? {
            Step::Asked(arguments) => Some(arguments),
            Step::Decided(_) => None,
        }
    }

    pub fn put(&mut self, slot: usize, decision: Decision) {
        self.set(slot, Some(Step::Decided(decision)));
    }

    /// `None` takes back what was asked.
    pub fn ask(&mut self, slot: usize, arguments: Option<Value>) {
        self.set(slot, arguments.map(Step::Asked));
    }

    fn set(&mut self, slot: usize, step: Option<Step>) {
        if self.0.len() <= slot && step.is_some() {
            self.0.resize(slot + 1, None);
        }
        if let Some(place) = self.0.get_mut(slot) {
            *place = step.map(Arc::new);
        }
        // Nothing at the end is nothing: what is equal compares so.
        while matches!(self.0.last(), Some(None)) {
            self.0.pop();
        }
    }

    pub fn size(&self) -> Size {
        self.0
            .iter()
            .flatten()
            .fold(Size::default(), |sum, step| match &**step {
                Step::Asked(arguments) => sum.plus(arguments.size()),
                Step::Decided(decision) => sum.plus(decision.size()),
            })
    }
}
