//! Deciding about a tool call before it runs.
//!
//! An approval holds for one name and one set of arguments. The arguments to run with may differ
//! from those that the model wrote, so a call can be asked about with those arguments; whoever approves it then approves
//! these, and who was shown others approves nothing. A digest of them is kept with the decision: what runs is compared
//! with it, so that neither a changed document nor arguments that were made anew run under an approval of others.

use sha2::{Digest, Sha256};

use crate::context::Context;
use crate::error::Error;
use crate::log::call::ToolCall;
use crate::log::decision::{CallStatus, Decision, Decisions, Stage};
use crate::log::exchange::{Entry, Exchange};
use crate::log::kind::CallKind;
use crate::log::message::{Outcome, Output, Status};
use crate::value::difference::find_differences;
use crate::value::letters::hex;
use crate::value::time::Time;
use crate::value::wording;
use crate::value::Value;

/// An error names no more places than these where arguments differ.
const MOST_DIFFERENCES: usize = 8;

/// In the metadata of an iteration, the runtime notes attempts here by the ids of their calls.
const ASKED_ANEW: &str = "asked_anew";

impl Exchange {
    /// Returns where the call of a slot stands.
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
    /// Notes that somebody has to decide about a pending call before it runs: with the given arguments, or else those it was
    /// asked about with, or else its own.
    ///
    /// # Errors
    /// [`Error::UnknownToolCall`]; [`Error::IllegalStatus`] when the call is approved or ended.
    pub fn ask_about_tool_call(
        &self,
        id: &str,
        arguments: Option<Value>,
        at: Time,
    ) -> Result<Self, Error> {
        self.ask(id, arguments, false, at)
    }

    /// Notes the same, or that the call is a question: then somebody has to answer it, and nothing runs.
    ///
    /// # Errors
    /// As [`Context::ask_about_tool_call`].
    pub fn ask(
        &self,
        id: &str,
        arguments: Option<Value>,
        is_question: bool,
        at: Time,
    ) -> Result<Self, Error> {
        let (slot, call, decisions) = self.find_undecided(id, "asked")?;
        let asked = decisions.asked_arguments(slot);
        let arguments = arguments.or_else(|| asked.cloned());
        let stage = match arguments {
            Some(arguments) if decisions.edited(slot) == Some(&arguments) => {
                Stage::AskedAgain(arguments)
            }
            arguments => {
                let others = arguments.filter(|shown| *shown != call.arguments.value);
                match is_question || decisions.is_question(slot) {
                    true => Stage::Question(others),
                    false => Stage::Asked(others),
                }
            }
        };
        Ok(self.with_decision(at, |exchange| exchange.decisions.set(slot, stage)))
    }

    /// Lets a pending call run, with the arguments that it was asked about with, or else its own. `shown` are those that
    /// whoever decides has seen, where they say so.
    ///
    /// # Errors
    /// As [`Context::ask_about_tool_call`]; [`Error::OtherArguments`] when others were shown; [`Error::IsAQuestion`].
    pub fn approve_tool_call(
        &self,
        id: &str,
        shown: Option<&Value>,
        by: Value,
        at: Time,
    ) -> Result<Self, Error> {
        self.approve_edited(id, shown, None, by, at)
    }

    /// The same with arguments that whoever decides wrote in the place of those shown. The call stays as the model wrote it, and
    /// its result tells the model of them. The digest is that of the edited arguments: a version that does not know them
    /// finds that others were approved, and does not run the call.
    ///
    /// # Errors
    /// As [`Context::approve_tool_call`]; [`Error::Invalid`] for arguments that such a call cannot have.
    pub fn approve_edited(
        &self,
        id: &str,
        shown: Option<&Value>,
        edited: Option<Value>,
        by: Value,
        at: Time,
    ) -> Result<Self, Error> {
        let (slot, call, decisions) = self.find_undecided(id, "approved")?;
        if decisions.is_question(slot) {
            return Err(Error::IsAQuestion { id: id.into() });
        }
        let asked = decisions.asked_arguments(slot);
        let own = &call.arguments.value;
        let to_run = asked.unwrap_or(own);
        check_shown(id, shown, to_run)?;
        if let Some(edited) = &edited {
            check_edited(call, edited)?;
        }
        let edited = edited.filter(|edited| edited != to_run);
        let edited = edited.or_else(|| decisions.edited(slot).cloned());
        let decision = Decision {
            approved: true,
            answered: false,
            by,
            at,
            reason: Value::Nil,
            digest: Some(digest(call, edited.as_ref().unwrap_or(to_run))),
            arguments: asked.filter(|asked| *asked != own).cloned(),
            edited,
        };
        // There is nothing to run for a request for approval: the provider waits for the word.
        let is_word = call.kind == CallKind::McpApproval;
        Ok(self.with_decision(at, |exchange| {
            exchange.decisions.set(slot, Stage::Decided(decision));
            if is_word {
                let yes = Output::Value(Value::Bool(true));
                exchange.fill(slot, Outcome::new(Status::Ok, yes));
            }
        }))
    }

    /// Ends a pending call with an error that tells the model of the denial. `shown` is as in [`Context::approve_tool_call`].
    ///
    /// # Errors
    /// As [`Context::approve_tool_call`].
    pub fn deny_tool_call(
        &self,
        id: &str,
        shown: Option<&Value>,
        reason: Value,
        by: Value,
        at: Time,
    ) -> Result<Self, Error> {
        let (slot, call, decisions) = self.find_undecided(id, "denied")?;
        let asked = decisions.asked_arguments(slot);
        check_shown(id, shown, asked.unwrap_or(&call.arguments.value))?;
        let outcome = make_denial(&reason);
        let decision = Decision {
            approved: false,
            answered: false,
            by,
            at,
            reason,
            arguments: asked.cloned(),
            edited: None,
            digest: None,
        };
        Ok(self.with_decision(at, |exchange| {
            exchange.decisions.set(slot, Stage::Decided(decision));
            exchange.fill(slot, outcome);
        }))
    }

    /// Returns true if a call waits to run and was approved with these very arguments.
    ///
    /// # Complexity
    /// As [`Context::tool_call_status`], and O(the arguments).
    #[must_use]
    pub fn is_approved(&self, id: &str, arguments: &Value) -> bool {
        let found = self.current().last().and_then(|entry| place(entry, id));
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

    /// Returns the calls that have neither a decision nor a result, each with the arguments that it would run with. With
    /// `asked`, only those that somebody was asked about; the others may run where nobody has to be asked.
    pub fn undecided_calls(&self, asked: bool) -> impl Iterator<Item = (&ToolCall, &Value)> {
        self.open_calls().filter_map(move |(slot, call, exchange)| {
            let is_wanted = !asked || exchange.decisions.is_asked(slot);
            let is_pending = exchange.status(slot) == CallStatus::Pending;
            let arguments = exchange.decisions.asked_arguments(slot);
            let arguments = arguments.unwrap_or(&call.arguments.value);
            (is_pending && is_wanted).then_some((call, arguments))
        })
    }

    /// Returns the calls without a result that somebody was asked about or has approved, each with the arguments that were
    /// shown: those that have to be asked about where decisions do not count.
    pub fn calls_to_ask(&self) -> impl Iterator<Item = (&ToolCall, &Value)> {
        self.open_calls().filter_map(|(slot, call, exchange)| {
            let decision = exchange.decision(slot);
            let shown = match decision {
                Some(decision) => decision.edited.as_ref().or(decision.arguments.as_ref()),
                None => exchange.decisions.asked_arguments(slot),
            };
            let shown = shown.unwrap_or(&call.arguments.value);
            let is_asked = decision.is_some() || exchange.decisions.is_asked(slot);
            is_asked.then_some((call, shown))
        })
    }

    /// Returns which attempt an approval of a call would start, if the runtime has noted that nobody knows how the one before
    /// it ended. Of any other call, it would start the first.
    #[must_use]
    pub fn next_attempt(&self, id: &str) -> Option<i64> {
        let noted = self.current().metadata.get(&Value::text(ASKED_ANEW));
        match noted?.as_map()?.get(&Value::text(id))? {
            Value::Int(unknown) => Some(unknown.saturating_add(1)),
            _ => None,
        }
    }

    /// Returns the next attempt, or refuses a decision about another one, such as an approval that is sent once more.
    ///
    /// # Errors
    /// [`Error::OtherAttempt`].
    pub fn check_attempt(&self, id: &str, attempt: &Value) -> Result<i64, Error> {
        match self.next_attempt(id).unwrap_or(1) {
            next if *attempt == Value::Int(next) => Ok(next),
            next => Err(Error::OtherAttempt {
                id: id.into(),
                attempt: next,
            }),
        }
    }

    fn open_calls(&self) -> impl Iterator<Item = (usize, &ToolCall, &Exchange)> {
        let entry = self.current().last();
        let calls = entry.and_then(|entry| Some((entry, entry.exchange.as_deref()?)));
        calls.into_iter().flat_map(|(entry, exchange)| {
            let calls = entry.message.calls.iter().enumerate();
            let calls = calls.map(move |(slot, call)| (slot, call, exchange));
            calls.filter(|(slot, _, exchange)| exchange.slot(*slot).is_none())
        })
    }

    pub(super) fn find_undecided(
        &self,
        id: &str,
        to: &'static str,
    ) -> Result<Undecided<'_>, Error> {
        let found = self.current().last().and_then(|entry| place(entry, id));
        let status = match found {
            Some((slot, _, exchange)) => exchange.status(slot),
            None => self
                .tool_call_status(id)
                .ok_or_else(|| Error::UnknownToolCall {
                    id: id.into(),
                    pending: self.current().pending_ids(),
                })?,
        };
        match found {
            Some((slot, call, exchange)) if status == CallStatus::Pending => {
                Ok((slot, call, &exchange.decisions))
            }
            _ => Err(Error::IllegalStatus {
                id: id.into(),
                from: status.name(),
                to,
            }),
        }
    }

    pub(super) fn with_decision(&self, at: Time, change: impl FnOnce(&mut Exchange)) -> Self {
        let mut next = self.clone();
        next.log.update_exchange(change);
        next.compare_new(self);
        next.complete_answered(at);
        next
    }

    /// Returns where the newest call of this id stands.
    ///
    /// # Complexity
    /// O(n) for calls of long ago.
    #[must_use]
    pub fn tool_call_status(&self, id: &str) -> Option<CallStatus> {
        let (slot, _, exchange) = self.find_call(id)?;
        Some(exchange.status(slot))
    }

    /// Returns the decision about the newest call of this id.
    ///
    /// # Complexity
    /// As [`Context::tool_call_status`].
    #[must_use]
    pub fn tool_call_decision(&self, id: &str) -> Option<&Decision> {
        let (slot, _, exchange) = self.find_first(id, |entry| !entry.message.is_arrival())?;
        exchange.decision(slot)
    }

    /// Returns true if a call waits for the answer of a person.
    #[must_use]
    pub fn is_question(&self, id: &str) -> bool {
        let found = self.current().last().and_then(|entry| place(entry, id));
        found.is_some_and(|(slot, _, exchange)| exchange.decisions.is_question(slot))
    }

    /// Returns the arguments that a person wrote in the place of those of a call without a result.
    #[must_use]
    pub fn edited_arguments(&self, id: &str) -> Option<&Value> {
        let (slot, _, exchange) = self.current().last().and_then(|entry| place(entry, id))?;
        let edited = exchange.decisions.edited(slot);
        edited.filter(|_| exchange.slot(slot).is_none())
    }

    /// Asks again about the calls that were approved and have no result.
    #[must_use]
    pub fn ask_again(&self, at: Time) -> Self {
        self.with_decision(at, Exchange::ask_again)
    }

    /// Returns when the tool of the newest call of this id started and ended, if that is known.
    pub fn tool_call_times(&self, id: &str) -> Option<(Time, Time)> {
        let (slot, _, exchange) = self.find_call(id)?;
        exchange.slot(slot)?.ran
    }

    fn find_call(&self, id: &str) -> Option<(usize, &ToolCall, &Exchange)> {
        self.find_first(id, |_| true)
    }

    /// Returns the newest call of an id in such a message. A late result stands beside its call once more.
    fn find_first(
        &self,
        id: &str,
        is_meant: impl Fn(&Entry) -> bool,
    ) -> Option<(usize, &ToolCall, &Exchange)> {
        self.log
            .iterations_back()
            .flat_map(|iteration| iteration.entries().rev())
            .filter(|entry| is_meant(entry))
            .find_map(|entry| place(entry, id))
    }
}

/// An undecided call with its slot, and the decisions of its exchange.
pub(super) type Undecided<'a> = (usize, &'a ToolCall, &'a Decisions);

fn place<'a>(entry: &'a Entry, id: &str) -> Option<(usize, &'a ToolCall, &'a Exchange)> {
    let slot = entry.message.find_call(id)?;
    let call = entry.message.calls.get(slot)?;
    Some((slot, call, entry.exchange.as_deref()?))
}

/// A decision about other arguments than those that would run is none.
pub(super) fn check_shown(id: &str, shown: Option<&Value>, to_run: &Value) -> Result<(), Error> {
    match shown.filter(|shown| *shown != to_run) {
        None => Ok(()),
        Some(shown) => Err(Error::OtherArguments {
            id: id.into(),
            paths: find_differences(shown, to_run, MOST_DIFFERENCES),
        }),
    }
}

/// A person writes what a model could have written.
fn check_edited(call: &ToolCall, edited: &Value) -> Result<(), Error> {
    let (fits, expected) = match (call.kind, edited) {
        (CallKind::McpApproval, _) => (false, "none: the provider runs this call as it is"),
        (CallKind::Custom, Value::Binary(_)) => (true, ""),
        (CallKind::Custom, _) => (false, "a text: the tool takes text"),
        (_, Value::Map(_)) => (true, ""),
        _ => (false, "a map of arguments"),
    };
    let path = || vec![Value::atom("edited")];
    fits.then_some(())
        .ok_or_else(|| Error::invalid(path(), expected))
}

/// An approval holds for the name and the arguments in this digest.
pub(super) fn digest(call: &ToolCall, arguments: &Value) -> Box<str> {
    let mut digest = Sha256::new();
    Value::text(call.name.as_str()).feed(&mut digest);
    arguments.feed(&mut digest);
    format!("sha256:{}", hex(&digest.finalize())).into()
}

fn make_denial(reason: &Value) -> Outcome {
    let words = match reason {
        Value::Nil => String::new(),
        reason => wording::reason(reason),
    };
    let text = match words.trim() {
        "" => "denied".to_owned(),
        words => format!("denied: {words}"),
    };
    Outcome::new(Status::Denied, Output::Value(Value::text(&text)))
}
