//! The conversation: the log, the view that shows it, and counts of its tokens.

pub mod cache;
pub mod cause;
pub mod cost;
pub mod inputs;
pub(crate) mod log_text;
pub(crate) mod masked;
mod note;
pub mod pins;
pub mod prompt;
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
use crate::log::decision::{CallStatus, Decision};
use crate::log::failed::FailedRequest;
use crate::log::iteration::Iteration;
use crate::log::message::{Message, Role, Status};
use crate::log::metadata::Metadata;
use crate::log::origin::Origin;
use crate::log::tally::Tallies;
use crate::log::{Log, Stamp, INTERRUPTED};
use crate::value::time::Time;
use crate::value::{Map, Value};
use crate::view::masks::Masks;
use crate::view::View;

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

    /// Returns the number of the first iteration.
    #[must_use]
    pub fn first_number(&self) -> u64 {
        self.log.first_number()
    }

    /// Returns the number of iterations.
    #[must_use]
    pub fn count_iterations(&self) -> usize {
        self.log.count_iterations()
    }

    /// Returns where the newest call of this id stands.
    ///
    /// # Complexity
    /// O(n) for calls of long ago.
    #[must_use]
    pub fn tool_call_status(&self, id: &str) -> Option<CallStatus> {
        self.log.tool_call_status(id)
    }

    /// Returns the decision about the newest call of this id.
    ///
    /// # Complexity
    /// As [`Context::tool_call_status`].
    #[must_use]
    pub fn tool_call_decision(&self, id: &str) -> Option<&Decision> {
        self.log.tool_call_decision(id)
    }

    /// Returns a conversation with an empty iteration 1.
    #[must_use]
    pub fn empty(id: &str, at: Time) -> Self {
        Self::of(Log::empty(id, at))
    }

    /// Returns a conversation that begins with this empty iteration.
    pub(crate) fn start_with(id: &str, at: Time, first: Iteration) -> Self {
        Self::of(Log::start_with(id, at, first))
    }

    fn of(log: Log) -> Self {
        Self {
            log,
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
        Log::new(id, input, system_prompt, stamp).map(Self::of)
    }

    /// Adds a user message: to the next iteration, or to the current one when no model has spoken in it.
    ///
    /// # Errors
    /// [`Error::PendingToolCalls`], [`Error::InvalidPart`].
    pub fn add_user_message(&self, input: Value, stamp: Stamp) -> Result<Self, Error> {
        let log = self.log.add_user_message(input, stamp, self.is_closed())?;
        Ok(self.with(log))
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
        let is_closed = self.is_closed();
        let log = self
            .log
            .add_assistant_message(content, calls, stamp, is_closed)?;
        Ok(self.with(log))
    }

    /// Fills slots of pending calls; when no call is pending any more, completes the iteration and
    /// opens the next.
    ///
    /// # Errors
    /// [`Error::InvalidToolResult`], [`Error::InvalidPart`], [`Error::NoToolResults`],
    /// [`Error::NoPendingToolCalls`], [`Error::UnknownToolCall`],
    /// [`Error::ToolCallAlreadyAnswered`], [`Error::DuplicateToolResult`].
    pub fn add_tool_results(&self, results: Value, stamp: Stamp) -> Result<Self, Error> {
        Ok(self.with(self.log.add_tool_results(results, stamp)?))
    }

    /// Returns true if new messages have to go to the next iteration: the current one ended, as one does to which a
    /// conversation was rewound, or is hidden.
    pub(crate) fn is_closed(&self) -> bool {
        let current = self.current();
        current.completed_at.is_some() || self.hides(current.number)
    }

    /// Returns true if the last message is an answer that broke off.
    pub(crate) fn breaks_off(&self) -> bool {
        let last = self.current().last();
        last.is_some_and(|last| last.message.is_interrupted())
    }

    /// Answers every pending call with an error of this reason; nothing when none is pending.
    #[must_use]
    pub fn interrupt(&self, reason: &Value, stamp: Stamp) -> Self {
        self.with(self.log.end_pending(Status::Interrupted, reason, stamp))
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
        self.with(self.log.end_pending(Status::Cancelled, reason, stamp))
    }

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
        Ok(self.with(self.log.ask_about_tool_call(id, arguments, at)?))
    }

    /// Lets a pending call run, with the arguments that it was asked about with, or else its own. `shown` are those that
    /// whoever decides has seen, where they say so.
    ///
    /// # Errors
    /// As [`Context::ask_about_tool_call`]; [`Error::OtherArguments`] when others were shown.
    pub fn approve_tool_call(
        &self,
        id: &str,
        shown: Option<&Value>,
        by: Value,
        at: Time,
    ) -> Result<Self, Error> {
        Ok(self.with(self.log.approve_tool_call(id, shown, by, at)?))
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
        Ok(self.with(self.log.deny_tool_call(id, reason, by, at)?))
    }

    /// Returns the conversation with one more entry of metadata, or with another value for it.
    #[must_use]
    pub fn put_metadata(&self, key: Value, value: Value, at: Time) -> Self {
        self.with(self.log.put_metadata(key, value, at))
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
        let log = self.log.put_iteration_metadata(number, key, value, at)?;
        Ok(self.with(log))
    }

    /// Keeps a failed request with the current iteration.
    ///
    /// # Errors
    /// [`Error::Invalid`]
    pub fn add_failure(&self, failure: &Value, at: Time) -> Result<Self, Error> {
        Ok(self.with(self.log.add_failure(failure, at)?))
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
        let mut next = self.with(self.log.put_system_prompt(prompt, at)?);
        next.show_system();
        next.grown();
        Ok(next)
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
            self.keep_rewound(&mut next);
        }
        Ok(next)
    }

    /// Returns a conversation of its own that goes on from here, under another id.
    ///
    /// Calls that wait for their results have to be approved again: an approval is for one run. Whoever was
    /// asked about one still is.
    ///
    /// # Complexity
    /// O(calls of the last message)
    #[must_use]
    pub fn fork(&self, id: &str, at: Time) -> Self {
        self.with(self.log.fork(id, at))
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
        self.log
            .put_beside(self.view_size().plus(self.inputs.size()));
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

impl PartialEq for Context {
    /// Equal contents, down to ids and times. Handles play no part.
    fn eq(&self, other: &Self) -> bool {
        self.log == other.log && self.view == other.view && self.inputs == other.inputs
    }
}
