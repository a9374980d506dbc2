//! The conversation: the log, the view that shows it, and counts of its tokens.

mod approval;
pub mod cache;
pub mod cause;
pub mod cost;
pub mod inputs;
mod late;
pub(crate) mod log_text;
pub(crate) mod masked;
mod note;
pub mod pins;
pub mod prompt;
mod question;
pub(crate) mod rewound;
pub(crate) mod sent;
pub mod shown;
pub(crate) mod since;
pub mod tokens;
pub mod unseen;
pub mod usage;
pub(crate) mod view_digest;

use std::ops::Deref;
use std::sync::Arc;

use crate::context::inputs::Inputs;
use crate::error::Error;
use crate::log::call::{MessagePlace, ToolCall};
use crate::log::exchange::Exchange;
use crate::log::failed::FailedRequest;
use crate::log::iteration::Iteration;
use crate::log::late::{Arrived, CallKey};
use crate::log::message::{Message, Outcome, Output, Role, Status};
use crate::log::metadata::Metadata;
use crate::log::origin::Origin;
use crate::log::part::{check_addresses, Content, Place};
use crate::log::results::read_results;
use crate::log::tally::Tallies;
use crate::log::{Log, Stamp};
use crate::value::time::Time;
use crate::value::{Map, Value};
use crate::view::checking::Checking;
use crate::view::masks::Masks;
use crate::view::View;

/// The reason in the result of an interrupted call, where no one gave another one.
pub(crate) const INTERRUPTED: &str = "interrupted";

/// One whole conversation, immutable: every operation returns a new one that shares structure.
///
/// Cloning is O(1).
#[derive(Debug, Clone)]
pub struct Context {
    /// All messages.
    pub(crate) log: Log,
    /// The view; `None` shows all of the log.
    pub(crate) view: Option<Arc<View>>,
    /// Tokens of completed iterations as the view shows them.
    pub(crate) tallies: Tallies,
    /// The inputs of requests, behind one pointer, since most operations do not change them.
    pub(crate) inputs: Arc<Inputs>,
}

/// A context has all functions of its log in which the view plays no part.
impl Deref for Context {
    type Target = Log;

    fn deref(&self) -> &Log {
        &self.log
    }
}

impl Context {
    /// Lets go of memory that contexts of one conversation share, before a drop. Returns true if that is heavy: of several
    /// threads that drop the last holders at the same time, exactly one hears so.
    pub fn let_go(&mut self) -> bool {
        self.log.let_go()
    }

    /// Returns a conversation with an empty iteration 1.
    #[must_use]
    pub fn empty(id: &str, at: Time) -> Self {
        Self::start_with(id, at, Iteration::new(1, at))
    }

    /// Returns a conversation that begins with this empty iteration.
    pub(crate) fn start_with(id: &str, at: Time, first: Iteration) -> Self {
        Self {
            log: Log::start_with(id, at, first),
            view: None,
            tallies: Tallies::default(),
            inputs: Arc::default(),
        }
    }

    /// Returns the conversation with another log.
    #[inline]
    pub(crate) fn with(&self, log: Log) -> Self {
        Self {
            log,
            view: self.view.clone(),
            tallies: self.tallies.clone(),
            inputs: self.inputs.clone(),
        }
    }

    /// Returns a conversation that begins with a user message; iteration 1 holds it.
    ///
    /// # Errors
    /// [`Error::InvalidPart`] of the input or the system prompt.
    pub fn new(id: &str, input: Value, system_prompt: Value, stamp: Stamp) -> Result<Self, Error> {
        let mut context = Self::empty(id, stamp.at);
        let system = Content::from_value(system_prompt, Place::System)?;
        context.log.set_system(system);
        if let Some(metadata) = stamp.metadata {
            context.log.metadata = metadata.into();
        }
        context.log.append(user_message(input, None)?);
        Ok(context)
    }

    /// Adds a user message: to the next iteration, or to the current one when no model has spoken in it. Late results that have
    /// arrived come before it.
    ///
    /// # Errors
    /// [`Error::PendingToolCalls`], [`Error::InvalidPart`].
    pub fn add_user_message(&self, input: Value, stamp: Stamp) -> Result<Self, Error> {
        let message = user_message(input, stamp.metadata)?;
        self.log.check_nothing_pending()?;
        Ok(self.changed(stamp.at, |next| {
            if self.current().has_assistant() || self.is_closed() {
                next.log.complete(stamp.at);
            }
            next.log.append_arrivals();
            next.log.append(message);
            next.compare_new(self);
        }))
    }

    /// Adds a message of the model and its tool calls to the current iteration.
    ///
    /// # Errors
    /// [`Error::PendingToolCalls`], [`Error::InvalidPart`], [`Error::InvalidToolCall`],
    /// [`Error::DuplicateToolCall`].
    #[inline]
    pub fn add_assistant_message(
        &self,
        content: Value,
        calls: Value,
        stamp: Stamp,
    ) -> Result<Self, Error> {
        self.log.check_nothing_pending()?;
        let content = Content::from_value(content, Place::Assistant)?;
        check_addresses(content.parts())?;
        let mut next = self.clone();
        if self.is_closed() {
            next.log.complete(stamp.at);
        }
        let current = next.current();
        let place = MessagePlace {
            iteration: current.number,
            position: current.count_messages() + next.lead(current).count(),
        };
        let calls = ToolCall::read_all(calls, place)?;
        let message = Message::new(Role::Assistant, content, calls, stamp.metadata);
        let is_checked = Checking::any(&message);
        next.log.append(message);
        next.log.updated_at = stamp.at;
        if is_checked {
            next.note_made_on(place.iteration);
        }
        next.compare_new(self);
        Ok(next)
    }

    /// Fills slots of pending calls; when no call is pending any more, completes the iteration and
    /// opens the next. Results of calls that wait are taken as by [`Context::arrive`], and get their place if nothing is pending.
    ///
    /// # Errors
    /// [`Error::InvalidToolResult`], [`Error::InvalidPart`], [`Error::NoToolResults`],
    /// [`Error::NoPendingToolCalls`], [`Error::UnknownToolCall`],
    /// [`Error::ToolCallAlreadyAnswered`], [`Error::DuplicateToolResult`], [`Error::LateToolResult`].
    pub fn add_tool_results(&self, results: Value, stamp: Stamp) -> Result<Self, Error> {
        let results = read_results(results)?;
        if results.is_empty() {
            return Err(Error::NoToolResults {
                pending: self.current().pending_ids(),
            });
        }
        let used = self
            .log
            .find_used_handle(results.iter().map(|(_, outcome)| outcome));
        if let Some(position) = used {
            return Err(Error::InvalidToolResult {
                position,
                key: Value::atom("handle"),
            });
        }
        let is_late = |(id, outcome): &(Box<str>, Outcome)| {
            outcome.status != Status::Waiting && self.answers_late(id)
        };
        let (late, now): (Vec<_>, Vec<_>) = match self.log.held_waiting() {
            true => results.into_iter().partition(is_late),
            false => (Vec::new(), results),
        };
        let at = stamp.at;
        let has_late = !late.is_empty();
        let mut next = match now.is_empty() {
            true => self.clone(),
            false => self.fill(now, stamp)?,
        };
        for (id, outcome) in late {
            next = next.take_late(
                &CallKey::Id(id),
                outcome,
                Arrived::new(at, Value::Nil, None),
            )?;
        }
        // What comes while calls are pending gets its place behind their results.
        let is_placed = next.log.held_waiting() && next.current().count_pending() == 0;
        match is_placed && (has_late || next.current_iteration() > self.current_iteration()) {
            true => next.place_arrivals(at),
            false => Ok(next),
        }
    }

    /// Returns true if a result of this id is for a call that waits, and not for a pending one.
    fn answers_late(&self, id: &str) -> bool {
        let last = self
            .current()
            .last()
            .filter(|_| self.current().count_pending() > 0);
        let slot =
            last.and_then(|last| Some((last.message.find_call(id)?, last.exchange.as_deref()?)));
        match slot {
            Some((slot, exchange)) => exchange
                .slot(slot)
                .is_some_and(|outcome| outcome.status == Status::Waiting),
            None => self.log.knows_waiting(&CallKey::Id(id.into())),
        }
    }

    fn fill(&self, results: Vec<(Box<str>, Outcome)>, stamp: Stamp) -> Result<Self, Error> {
        let mut next = self.clone();
        let mut filled = Ok(());
        next.log
            .change_current(|current| filled = current.fill(results, stamp.metadata));
        filled?;
        next.compare_new(self);
        next.complete_answered(stamp.at);
        Ok(next)
    }

    /// Completes the current iteration if no call is pending any more.
    fn complete_answered(&mut self, at: Time) {
        if self.current().count_pending() == 0 {
            let before = self.clone();
            if self.log.held_waiting() && self.log.append_awaited() {
                self.compare_new(&before);
            }
            self.log.complete(at);
        }
        self.log.updated_at = at;
    }

    /// Answers every pending call with an error of this reason; nothing when none is pending.
    fn end_pending(&self, status: Status, reason: &Value, stamp: Stamp) -> Self {
        let ended = |call: &ToolCall| {
            let output = Output::Value(reason.clone());
            (call.id.clone(), Outcome::new(status, output))
        };
        let results = self.current().pending().map(ended).collect();
        // A fallback that never happens: every id comes from a pending slot.
        self.fill(results, stamp).unwrap_or_else(|_| self.clone())
    }

    /// Returns true if new messages have to go to the next iteration: the current one ended, as one does to which a
    /// conversation was rewound, or is hidden.
    pub(crate) fn is_closed(&self) -> bool {
        let current = self.current();
        current.completed_at.is_some() || self.hides(current.number)
    }

    /// Returns true if the turn is answered: the last message is the model's, and nothing is left to do for it.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        let last = self.current().last();
        last.is_some_and(|last| last.message.is_answer())
    }

    /// Returns true if the last message is an answer that broke off.
    pub(crate) fn breaks_off(&self) -> bool {
        let last = self.current().last();
        last.is_some_and(|last| last.message.is_interrupted())
    }

    /// Answers every pending call with an error of this reason; nothing when none is pending.
    #[must_use]
    pub fn interrupt(&self, reason: &Value, stamp: Stamp) -> Self {
        self.end_pending(Status::Interrupted, reason, stamp)
    }

    /// Returns the conversation with its pending calls interrupted, so that a request can be made of it; `None` when none is
    /// pending.
    #[must_use]
    pub fn without_pending(&self) -> Option<Self> {
        let is_pending = self.current().count_pending() > 0;
        let stamp = Stamp::at(self.updated_at());
        is_pending.then(|| self.interrupt(&Value::text(INTERRUPTED), stamp))
    }

    /// As [`Context::interrupt`], for calls that were cancelled.
    #[must_use]
    pub fn cancel(&self, reason: &Value, stamp: Stamp) -> Self {
        self.end_pending(Status::Cancelled, reason, stamp)
    }

    /// Returns the conversation with one more entry of metadata, or with another value for it.
    #[must_use]
    pub fn put_metadata(&self, key: Value, value: Value, at: Time) -> Self {
        self.changed(at, |next| {
            next.log.metadata = self.metadata().put(key, value);
            next.grown();
        })
    }

    /// Returns the conversation with one more entry of metadata on an iteration.
    ///
    /// # Errors
    /// [`Error::UnknownIteration`]
    pub fn put_iteration_metadata(
        &self,
        number: i64,
        key: Value,
        value: Value,
        at: Time,
    ) -> Result<Self, Error> {
        let known = self.iteration(number).map(|iteration| iteration.number);
        let number = known.ok_or_else(|| self.log.unknown_iteration(number))?;
        Ok(self.changed(at, |next| {
            next.log.change_iteration(number, |iteration| {
                iteration.metadata = iteration.metadata.put(key, value);
            });
            next.grown();
        }))
    }

    /// Keeps a failed request with the current iteration.
    ///
    /// # Errors
    /// [`Error::Invalid`]
    pub fn add_failure(&self, failure: &Value, at: Time) -> Result<Self, Error> {
        let failure = FailedRequest::read(failure, Some(at))?;
        Ok(self.changed(at, |next| {
            let number = self.current_iteration();
            next.log
                .change_iteration(number, |current| current.failures.add(failure));
            next.grown();
        }))
    }

    /// Returns the requests that failed, oldest first, each with the number of its iteration. Masks apply to the server's
    /// words.
    ///
    /// # Complexity
    /// O(n)
    pub fn failures(&self) -> impl Iterator<Item = (u64, FailedRequest)> + '_ {
        let masks = self.masks();
        self.iterations().flat_map(move |iteration| {
            let failures = iteration.failures.iter();
            failures.map(move |failure| (iteration.number, Masks::failure(masks, failure)))
        })
    }

    /// Replaces the system prompt; `nil` removes it.
    ///
    /// # Errors
    /// [`Error::InvalidPart`].
    pub fn put_system_prompt(&self, prompt: Value, at: Time) -> Result<Self, Error> {
        let system = Content::from_value(prompt, Place::System)?;
        Ok(self.changed(at, |next| {
            next.log.set_system(system);
            next.show_system();
            next.grown();
        }))
    }

    /// Returns the conversation as it was at the end of an iteration.
    ///
    /// # Errors
    /// [`Error::UnknownIteration`]
    ///
    /// # Complexity
    /// O(log n)
    pub fn rewind(&self, to: i64) -> Result<Self, Error> {
        let log = self.log.rewind(to)?;
        let done = log.history.len();
        let is_cut = done < self.log.history.len();
        let mut next = self.with(log);
        if is_cut {
            next.tallies = next.tallies.up_to(done);
            let from = next.current_iteration().saturating_add(1);
            next.inputs_mut().cut(from);
            next.cut_view();
            next.compare_anew();
            self.keep_rewound(&mut next);
        }
        Ok(next)
    }

    /// Returns a conversation of its own that goes on from here, under another id.
    ///
    /// Calls that wait for their results have to be approved again: an approval is for one run. Whoever was
    /// asked about one still is. Those that wait for a late result are left to this conversation.
    ///
    /// # Complexity
    /// O(calls of the last message)
    #[must_use]
    pub fn fork(&self, id: &str, at: Time) -> Self {
        self.changed(at, |fork| {
            fork.log.origin = Some(Arc::new(Origin {
                id: self.id().into(),
                iteration: self.current_iteration(),
                extra: None,
            }));
            fork.log.id = id.into();
            fork.log.created_at = at;
            fork.log.leave_waiting();
            if self.current().count_pending() > 0 {
                fork.log.update_exchange(Exchange::ask_again);
                fork.compare_new(self);
            }
            fork.grown();
        })
    }

    /// Returns the conversation that this one was forked from.
    #[must_use]
    pub fn origin(&self) -> Option<&Origin> {
        self.log.origin.as_deref()
    }

    /// Makes a completed iteration the current one again.
    pub(crate) fn cut(&mut self, index: usize) {
        self.log.cut(index);
        self.tallies = self.tallies.up_to(index);
        let from = self.current_iteration().saturating_add(1);
        self.inputs_mut().cut(from);
    }

    /// Returns the number of the last iteration that two conversations have in common, with all before it.
    ///
    /// # Complexity
    /// O(n) at most; iterations that both share are not compared.
    #[must_use]
    pub fn last_common(&self, other: &Self) -> Option<u64> {
        let common = self.log.last_common(&other.log)?;
        let differs = self.inputs.differs_at(&other.inputs);
        let before = differs.map_or(common, |number| common.min(number.saturating_sub(1)));
        (before >= self.first_number()).then_some(before)
    }

    /// Returns the conversation's id; [`Context::fork`] makes one with another.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.log.id
    }

    /// Returns the time at which the conversation was made.
    #[must_use]
    pub const fn created_at(&self) -> Time {
        self.log.created_at
    }

    /// Returns the time of the last operation.
    #[must_use]
    pub const fn updated_at(&self) -> Time {
        self.log.updated_at
    }

    /// Returns the application's own metadata.
    #[must_use]
    pub const fn metadata(&self) -> &Metadata {
        &self.log.metadata
    }

    /// Returns the fields of a snapshot that this version does not know.
    pub(crate) fn extra(&self) -> Option<&Map> {
        self.log.extra.as_deref()
    }

    /// Returns the iteration that new messages join.
    #[must_use]
    pub fn current(&self) -> &Iteration {
        &self.log.current
    }

    /// Returns the number of the current iteration.
    #[must_use]
    pub fn current_iteration(&self) -> u64 {
        self.log.current.number
    }

    /// Returns the number of the iteration with the message of the user that began the current turn.
    #[must_use]
    pub fn turn(&self) -> u64 {
        self.current().turn
    }

    /// Returns the first and the last iteration of the newest turn with a user's message whose metadata has this text under
    /// this name.
    ///
    /// # Complexity
    /// O(messages)
    #[must_use]
    pub fn find_turn(&self, name: &str, text: &str) -> Option<(u64, u64)> {
        let is_meant = |message: &Message| {
            let metadata = message.metadata.as_ref();
            let found = metadata.and_then(|metadata| metadata.get_named(name)?.as_str());
            message.role == Role::User && found == Some(text)
        };
        let mut back = self.log.iterations_back();
        let found = back.find(|iteration| {
            let mut entries = iteration.entries();
            entries.any(|entry| is_meant(&entry.message))
        })?;
        let later = self.log.between(found.number, u64::MAX);
        let last = later.take_while(|later| later.turn == found.turn).last()?;
        Some((found.number, last.number))
    }

    /// Tells the log the size of everything beside it.
    pub(crate) fn weigh_view(&mut self) {
        self.log.beside = self.view_size().plus(self.inputs.size());
    }

    /// Returns the inputs of past requests, to note more of them.
    pub(crate) fn inputs_mut(&mut self) -> &mut Inputs {
        Arc::make_mut(&mut self.inputs)
    }

    /// Begins another generation where the size asks for it. Call it after each change of what a context holds.
    pub(crate) fn grown(&mut self) {
        self.weigh_view();
        self.log.grown();
    }
}

fn user_message(input: Value, metadata: Option<Map>) -> Result<Message, Error> {
    let content = Content::from_input(input)?;
    check_addresses(content.parts())?;
    Ok(Message::new(Role::User, content, Box::default(), metadata))
}

impl PartialEq for Context {
    /// Equal contents, down to ids and times. Handles play no part.
    fn eq(&self, other: &Self) -> bool {
        self.log == other.log && self.view == other.view && self.inputs == other.inputs
    }
}
