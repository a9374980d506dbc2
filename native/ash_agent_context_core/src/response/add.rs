//! Adds a response to a conversation.

use std::collections::HashSet;

use crate::context::Context;
use crate::error::Error;
use crate::fault::Fault;
use crate::log::call::MessagePlace;
use crate::log::exchange::Exchange;
use crate::log::message::{Message, Outcome, Output, Role, Status};
use crate::log::reply::{Finish, Reply};
use crate::log::Stamp;
use crate::value::time::Time;
use crate::value::Value;
use crate::view::checking::Checking;

use super::{Response, State};

/// The result of a call that broke off with its response, as the model reads it.
const CUT: &str = "The response broke off in the middle of this call. It was not run.";

/// The result of such a call if the model reached its limit.
const CUT_BY_LENGTH: &str =
    "The answer reached its limit of tokens in the middle of this call. It was not run.";

/// The result of a complete call after which the response broke off.
const NOT_RUN: &str = "The response broke off after this call. It was not run.";

/// When a response was asked for and began, as far as is known.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnswerTimes {
    /// When its request was sent.
    pub requested_at: Option<Time>,
    /// When its first piece came. Counts only if the other time is known.
    pub first_chunk_at: Option<Time>,
}

impl Context {
    /// Adds a response to the current iteration: the message with its calls, the report on tokens, and who answered.
    ///
    /// A call that broke off gets an error as its result at once, and so does every call of a response that was interrupted,
    /// refused, filtered or malformed. None of these calls ever waits to be run.
    ///
    /// # Errors
    /// [`Error::Response`] for one that failed or is still open, [`Error::PendingToolCalls`].
    ///
    /// # Complexity
    /// O(size of the message)
    pub fn add_response(&self, response: &Response, stamp: Stamp) -> Result<Self, Error> {
        self.add_answer(response, AnswerTimes::default(), stamp)
    }

    /// Adds a response whose request was made from this conversation at a known time. Then the times are kept, and the view that
    /// the request was made from.
    ///
    /// # Errors
    /// As [`Context::add_response`].
    ///
    /// # Complexity
    /// O(size of the message, covers of a view that changed)
    pub fn add_answer(
        &self,
        response: &Response,
        times: AnswerTimes,
        stamp: Stamp,
    ) -> Result<Self, Error> {
        match response.state() {
            State::Complete | State::Interrupted(_) => {}
            State::Open => return Err(Error::Response(Fault::Open)),
            State::Queued => return Err(Error::Response(Fault::Queued)),
            State::Failed(fault) => return Err(Error::Response(fault.clone())),
        }
        self.log.check_nothing_pending()?;
        let mut log = self.log.clone();
        if self.is_closed() {
            log.complete(stamp.at);
        }
        let current = &log.current;
        let place = MessagePlace {
            iteration: current.number,
            position: current.count_messages() + log.lead(current).count(),
        };
        let said = response.message_so_far();
        let mut calls = said.calls;
        // If a provider used an id twice, the second one is not an id.
        let mut seen = HashSet::new();
        for call in &mut calls {
            if !seen.insert(call.id.clone()) {
                call.id = Box::default();
            }
        }
        place.name_calls(&mut calls);
        let mut exchange = Exchange::new(calls.len());
        for (slot, done) in said.done.iter().enumerate() {
            if let Some(words) = response.why_not_run(*done) {
                let output = Output::Value(Value::text(words));
                exchange.fill(slot, Outcome::new(Status::Interrupted, output));
            }
        }
        // A model that goes on by itself begins another iteration, so that limits of iterations count these, too.
        let goes_on = response.state() == &State::Complete
            && response.finish_reason().is_some_and(Finish::goes_on);
        let waits = exchange.pending() > 0 || (calls.is_empty() && !goes_on);
        let calls = calls.into_boxed_slice();
        let reply = match times.requested_at {
            None => response.reply(),
            Some(_) => Some(Reply {
                requested_at: times.requested_at,
                first_chunk_at: times.first_chunk_at,
                received_at: Some(stamp.at),
                ..response.reply().unwrap_or_default()
            }),
        };
        let message =
            Message::new(Role::Assistant, said.content, calls, stamp.metadata).with_reply(reply);
        let is_checked = Checking::any(&message);
        log.append_answered(message, exchange);
        log.updated_at = stamp.at;
        let mut next = self.with(log);
        // Thinking may have to be left out later, if the next request is made of anything else.
        if times.requested_at.is_some() || is_checked {
            next.note_made_on(place.iteration);
        }
        next.compare_new(self);
        if let Some(report) = response.report() {
            next = next.add_report(&report, stamp.at)?;
        }
        if !waits {
            next.log.complete(stamp.at);
        }
        Ok(next)
    }
}

impl Response {
    fn why_not_run(&self, done: bool) -> Option<&'static str> {
        let is_complete = *self.state() == State::Complete;
        let finish = self.finish_reason().filter(|_| is_complete);
        finish
            .and_then(Finish::why_not_run)
            .or(match (done, is_complete) {
                (true, true) => None,
                (true, false) => Some(NOT_RUN),
                (false, true) if finish == Some(Finish::Length) => Some(CUT_BY_LENGTH),
                (false, _) => Some(CUT),
            })
    }
}
