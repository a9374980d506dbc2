//! The log: all that was said. It knows nothing of views, of tokens, or of the forms of providers.

pub mod address;
pub mod alias;
pub mod approval;
pub mod call;
pub mod decision;
pub(crate) mod declined;
pub mod document;
pub mod entries;
pub mod exchange;
pub mod failed;
mod generation;
pub mod hints;
pub mod history;
pub mod ids;
pub mod iteration;
pub mod kind;
pub mod media;
pub mod media_type;
pub mod memo;
pub mod message;
pub mod metadata;
pub mod origin;
pub mod original;
pub mod part;
pub mod piece;
pub mod place;
mod places;
pub mod provider;
pub mod reply;
pub mod results;
mod rewind;
pub mod served;
pub mod tally;

use std::sync::Arc;

use crate::error::Error;
use crate::log::call::{MessagePlace, ToolCall};
use crate::log::exchange::{Entry, Exchange};
use crate::log::failed::FailedRequest;
use crate::log::generation::{Generation, LIGHT};
use crate::log::history::History;
use crate::log::ids::Ids;
use crate::log::iteration::Iteration;
use crate::log::message::{Message, Outcome, Output, Role, Status};
use crate::log::metadata::Metadata;
use crate::log::origin::Origin;
use crate::log::part::{item_id, Content, Part, Place};
use crate::log::results::read_results;
use crate::log::served::{PartPlace, SplitPairs};
use crate::prices::bill::Reported;
use crate::prices::usage::Usage;
use crate::value::time::Time;
use crate::value::{Map, Size, Value};

/// Bytes that cost as much to free as one term.
const BYTES_PER_TERM: usize = 256;

/// All messages of one conversation, immutable: every operation returns a new log that shares structure.
///
/// Cloning is O(1).
#[derive(Debug, Clone)]
pub struct Log {
    pub(crate) id: Arc<str>,
    pub(crate) system: Option<Arc<Message>>,
    pub(crate) history: History,
    pub(crate) current: Arc<Iteration>,
    pub(crate) created_at: Time,
    pub(crate) updated_at: Time,
    pub(crate) metadata: Metadata,
    pub(crate) origin: Option<Arc<Origin>>,
    pub(crate) extra: Option<Arc<Map>>,
    pub(crate) usage: Usage,
    ids: Ids,
    messages: usize,
    size: Size,
    /// The size of the metadata added to earlier iterations since their checkpoints.
    noted: Size,
    /// The size of what a context keeps beside the log, such as its view.
    beside: Size,
    /// Terms that a rewind may have left in memory.
    unseen: usize,
    generation: Generation,
}

/// The reason in the result of an interrupted call, where no one gave another one.
pub(crate) const INTERRUPTED: &str = "interrupted";

/// The time of an operation, and the metadata for its message.
#[derive(Debug)]
pub struct Stamp {
    /// The caller's clock.
    pub at: Time,
    /// The metadata of the message.
    pub metadata: Option<Map>,
}

impl Stamp {
    /// Makes a stamp without metadata.
    #[must_use]
    pub const fn at(at: Time) -> Self {
        Self { at, metadata: None }
    }
}

impl Log {
    /// Returns a conversation with an empty iteration 1.
    #[must_use]
    pub fn empty(id: &str, at: Time) -> Self {
        Self::start_with(id, at, Iteration::new(1, at))
    }

    /// Returns a conversation that begins with this empty iteration.
    pub(crate) fn start_with(id: &str, at: Time, first: Iteration) -> Self {
        let size = first.size();
        Self {
            id: id.into(),
            system: None,
            history: History::default(),
            current: Arc::new(first),
            created_at: at,
            updated_at: at,
            metadata: Metadata::default(),
            origin: None,
            extra: None,
            usage: Usage::default(),
            ids: Ids::default(),
            messages: 0,
            size,
            noted: Size::default(),
            beside: Size::default(),
            unseen: 0,
            generation: Generation::default(),
        }
    }

    /// Returns a conversation that begins with a user message; iteration 1 holds it.
    ///
    /// # Errors
    /// [`Error::InvalidPart`] of the input or the system prompt.
    pub fn new(id: &str, input: Value, system_prompt: Value, stamp: Stamp) -> Result<Self, Error> {
        let mut context = Self::empty(id, stamp.at);
        context.set_system(Content::from_value(system_prompt, Place::System)?);
        if let Some(metadata) = stamp.metadata {
            context.metadata = metadata.into();
        }
        let content = Content::from_input(input)?;
        content.check_addresses()?;
        context.append(Message::new(Role::User, content, Box::default(), None));
        Ok(context)
    }

    /// Adds a user message: to the next iteration, or to the current one when no model has spoken in it
    /// and it is not closed.
    ///
    /// # Errors
    /// [`Error::PendingToolCalls`], [`Error::InvalidPart`].
    pub fn add_user_message(
        &self,
        input: Value,
        stamp: Stamp,
        is_closed: bool,
    ) -> Result<Self, Error> {
        let content = Content::from_input(input)?;
        content.check_addresses()?;
        self.check_nothing_pending()?;
        let mut next = self.clone();
        if self.current.has_assistant() || is_closed {
            next.complete(stamp.at);
        }
        let message = Message::new(Role::User, content, Box::default(), stamp.metadata);
        next.append(message);
        next.updated_at = stamp.at;
        Ok(next)
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
        is_closed: bool,
    ) -> Result<Self, Error> {
        self.check_nothing_pending()?;
        let content = Content::from_value(content, Place::Assistant)?;
        content.check_addresses()?;
        let mut next = self.clone();
        if is_closed {
            next.complete(stamp.at);
        }
        let position = next.current.count_messages() + next.lead(&next.current).count();
        let place = MessagePlace {
            iteration: next.current.number,
            position,
        };
        let calls = ToolCall::read_all(calls, place)?;
        let message = Message::new(Role::Assistant, content, calls, stamp.metadata);
        next.append(message);
        next.updated_at = stamp.at;
        Ok(next)
    }

    /// Fills slots of pending calls; when no call is pending any more, completes the iteration and
    /// opens the next.
    ///
    /// # Errors
    /// [`Error::InvalidToolResult`], [`Error::InvalidPart`], [`Error::NoToolResults`],
    /// [`Error::NoPendingToolCalls`], [`Error::UnknownToolCall`],
    /// [`Error::ToolCallAlreadyAnswered`], [`Error::DuplicateToolResult`].
    pub fn add_tool_results(&self, results: Value, stamp: Stamp) -> Result<Self, Error> {
        let results = read_results(results)?;
        if results.is_empty() {
            return Err(Error::NoToolResults {
                pending: self.current.pending_ids(),
            });
        }
        self.fill(results, stamp)
    }

    fn fill(&self, results: Vec<(Box<str>, Outcome)>, stamp: Stamp) -> Result<Self, Error> {
        let mut current = Iteration::clone(&self.current);
        current.fill(results, stamp.metadata)?;
        let mut next = self.clone();
        next.change_current(|changed| *changed = current);
        if next.current.count_pending() == 0 {
            next.complete(stamp.at);
        }
        next.updated_at = stamp.at;
        Ok(next)
    }

    /// Answers every pending call with an error of this reason; nothing when none is pending.
    pub fn end_pending(&self, status: Status, reason: &Value, stamp: Stamp) -> Self {
        let ended = |call: &ToolCall| {
            let output = Output::Value(reason.clone());
            (call.id.clone(), Outcome::new(status, output))
        };
        let results: Vec<_> = self.current.pending().map(ended).collect();
        // A fallback that never happens: every id comes from a pending slot.
        self.fill(results, stamp).unwrap_or_else(|_| self.clone())
    }

    /// Returns the conversation with one more entry of metadata, or with another value for it.
    #[must_use]
    pub fn put_metadata(&self, key: Value, value: Value, at: Time) -> Self {
        let mut next = self.clone();
        next.metadata = self.metadata.put(key, value);
        next.updated_at = at;
        next.grown();
        next
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
        let number = known.ok_or_else(|| self.unknown_iteration(number))?;
        let mut next = self.clone();
        next.change_iteration(number, |iteration| {
            iteration.metadata = iteration.metadata.put(key, value);
        });
        next.updated_at = at;
        next.grown();
        Ok(next)
    }

    /// Keeps a failed request with the iteration that its answer would have been in.
    ///
    /// # Errors
    /// [`Error::Invalid`]
    pub fn add_failure(&self, failure: &Value, at: Time) -> Result<Self, Error> {
        let failure = FailedRequest::read(failure, Some(at))?;
        let mut next = self.clone();
        next.change_iteration(self.current.number, |iteration| {
            iteration.failures.add(failure);
        });
        next.updated_at = at;
        next.grown();
        Ok(next)
    }

    /// Changes metadata or failures of an iteration; of the counts, only its size changes.
    pub(crate) fn change_iteration(&mut self, number: u64, change: impl FnOnce(&mut Iteration)) {
        let index = usize::try_from(number.saturating_sub(self.first_number())).ok();
        let Some(index) = index.filter(|index| *index < self.history.len()) else {
            let before = self.current.size();
            self.update_current(change);
            self.size = self.size.plus(self.current.size()).minus(before);
            return;
        };
        if let Some(mut iteration) = self.history.get(index).cloned() {
            let before = iteration.size();
            change(&mut iteration);
            let grown = iteration.size().minus(before);
            self.size = self.size.plus(iteration.size()).minus(before);
            self.noted = self.noted.plus(grown);
            self.history.set(index, iteration);
        }
    }

    pub(crate) fn unknown_number(&self, number: u64) -> Error {
        self.unknown_iteration(i64::try_from(number).unwrap_or(i64::MAX))
    }

    pub(crate) fn unknown_iteration(&self, number: i64) -> Error {
        Error::UnknownIteration {
            number,
            first: self.first_number(),
            last: self.current.number,
        }
    }

    /// Replaces the system prompt; `nil` removes it.
    ///
    /// # Errors
    /// [`Error::InvalidPart`].
    pub fn put_system_prompt(&self, prompt: Value, at: Time) -> Result<Self, Error> {
        let mut next = self.clone();
        next.set_system(Content::from_value(prompt, Place::System)?);
        next.updated_at = at;
        next.grown();
        Ok(next)
    }

    /// Returns the system prompt.
    #[must_use]
    pub fn system(&self) -> Option<&Message> {
        self.system.as_deref()
    }

    /// Returns the pairs whose halves stand in two messages.
    pub(crate) fn split_pairs(&self) -> Option<&SplitPairs> {
        self.ids.pairs().filter(|pairs| !pairs.is_empty())
    }

    /// Returns the last container that a provider ran its tools in.
    pub(crate) fn container(&self) -> Option<&str> {
        self.ids.container()
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
        let mut fork = self.clone();
        fork.origin = Some(Arc::new(Origin {
            id: (*self.id).into(),
            iteration: self.current.number,
            extra: None,
        }));
        fork.id = id.into();
        fork.created_at = at;
        fork.updated_at = at;
        if self.current.count_pending() > 0 {
            fork.update_exchange(Exchange::ask_again);
        }
        fork.grown();
        fork
    }

    /// Returns the size of what there is to walk and to copy, at most.
    #[must_use]
    pub fn size(&self) -> Size {
        let system = self.system().map_or(Size::default(), Message::size);
        let origin = self.origin.as_deref().map(Origin::size);
        let beside = self.metadata.size().plus(system).plus(self.beside);
        self.size.plus(beside).plus(origin.unwrap_or_default())
    }

    /// Returns true if dropping this context may free more than a destructor should on a normal scheduler.
    #[must_use]
    pub fn is_heavy_to_drop(&self) -> bool {
        self.weight() > LIGHT && self.generation.is_last()
    }

    /// Lets go of the generation before a drop. Returns true if the drop is heavy: of several threads that drop the last holders
    /// at the same time, exactly one hears so.
    pub fn let_go(&mut self) -> bool {
        self.generation.let_go() && self.weight() > LIGHT
    }

    pub(crate) fn check_nothing_pending(&self) -> Result<(), Error> {
        if self.current.count_pending() == 0 {
            return Ok(());
        }
        Err(Error::PendingToolCalls {
            ids: self.current.pending_ids(),
        })
    }

    pub(crate) fn set_system(&mut self, content: Content) {
        self.system = match content {
            Content::None => None,
            content => Some(Arc::new(Message::system(content))),
        };
    }

    pub(crate) fn set_extra(&mut self, extra: Option<Map>) {
        let size = |map: Option<&Map>| map.map_or(Size::default(), Map::size);
        let old = size(self.extra.as_deref());
        self.size = self.size.plus(size(extra.as_ref())).minus(old);
        self.extra = extra.map(Arc::new);
    }

    /// Adds a message to the current iteration.
    pub(crate) fn append(&mut self, mut message: Message) {
        self.join(&mut message);
        self.change_current(|current| current.push(message));
    }

    /// Takes down the ids of a message that joins the conversation.
    fn join(&mut self, message: &mut Message) {
        self.ids.join_container(message);
        if let Content::Parts(parts) = &mut message.content {
            let (iteration, entry) = (self.current.number, self.current.entries().len());
            let mut before: Option<&mut Part> = None;
            for (part, number) in parts.iter_mut().zip(0..) {
                let place = PartPlace {
                    iteration,
                    entry,
                    part: number,
                };
                part.withheld = match before {
                    Some(before) if part.continues(before) => before.withheld,
                    _ => !self.ids.join_part(part, place),
                };
                before = Some(part);
            }
        }
        for call in &mut message.calls {
            self.ids.join_program(call, self.current.number);
            call.aliases = self.ids.join(&call.id);
            call.aliases.kept_by = message.original.as_ref().map(|original| original.provider);
            let id = item_id(call.provider_metadata.as_ref());
            call.aliases.item_reused = id.is_some_and(|id| self.ids.join_item(&id));
            call.aliases.item = self.ids.make_item(call);
        }
    }

    /// Adds a message with the results of its calls to the current iteration.
    pub(crate) fn append_answered(&mut self, mut message: Message, exchange: Exchange) {
        self.join(&mut message);
        self.change_current(|current| current.push_answered(message, exchange));
    }

    /// Adds a message with its exchange from a conversation that shares its beginning with this one.
    pub(crate) fn append_entry(&mut self, entry: Entry) {
        let (number, index) = (self.current.number, self.current.entries().len());
        self.ids.join_again(&entry.message, number, index);
        let usage = entry.usage.as_deref().map(|reported| reported.sum);
        self.usage = self.usage.plus(usage.unwrap_or_default());
        self.change_current(|current| current.push_entry(entry));
    }

    /// Keeps a report on the last message, which is the model's.
    pub(crate) fn put_reported(&mut self, reported: Reported) {
        self.usage = self.usage.plus(reported.sum);
        self.update_current(|current| current.report(|_| reported));
    }

    /// Changes the results of the last message.
    pub(crate) fn update_exchange(&mut self, change: impl FnOnce(&mut Exchange)) {
        self.change_current(|current| current.update_exchange(change));
    }

    /// Changes the current iteration where no count depends on it.
    pub(crate) fn update_current(&mut self, change: impl FnOnce(&mut Iteration)) {
        change(Arc::make_mut(&mut self.current));
    }

    fn change_current(&mut self, change: impl FnOnce(&mut Iteration)) {
        let current = Arc::make_mut(&mut self.current);
        let (old, messages) = (current.size(), current.count_messages());
        change(current);
        self.messages = self.messages - messages + current.count_messages();
        self.size = self.size.plus(current.size()).minus(old);
        self.grown();
    }

    /// Sets the size of what a context keeps beside the log.
    pub(crate) fn put_beside(&mut self, beside: Size) {
        self.beside = beside;
    }

    /// Begins another generation where the size asks for it. Call it after each change of what a context holds.
    pub(crate) fn grown(&mut self) {
        let weight = self.weight();
        self.generation.grown(weight);
    }

    fn weight(&self) -> usize {
        let size = self.size();
        (size.terms + size.bytes / BYTES_PER_TERM).max(self.unseen)
    }

    fn begin_generation(&mut self) {
        self.generation = Generation::beginning_at(self.weight());
    }

    /// Completes the current iteration and opens the next.
    pub(crate) fn complete(&mut self, at: Time) {
        self.update_current(|current| current.completed_at = current.completed_at.or(Some(at)));
        self.open(Iteration::new(self.current.number.saturating_add(1), at));
    }

    /// Opens an empty iteration after the current one.
    pub(crate) fn open(&mut self, next: Iteration) {
        let next = next.behind(&self.current);
        let mut last = Arc::try_unwrap(std::mem::replace(&mut self.current, Arc::new(next)))
            .unwrap_or_else(|shared| Iteration::clone(&shared));
        last.checkpoint = self.checkpoint_after(&last);
        self.size = self.size.plus(self.current.size());
        let replaces = self.history.holds_more();
        self.history.push(last);
        if replaces {
            // A context that shares the token has other elements in their place.
            self.begin_generation();
        }
    }
}

impl PartialEq for Log {
    /// Equal contents, down to ids and times. Handles play no part.
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
            && self.system == other.system
            && self.created_at == other.created_at
            && self.updated_at == other.updated_at
            && self.metadata == other.metadata
            && self.origin == other.origin
            && self.extra == other.extra
            && self.current == other.current
            && self.history == other.history
    }
}

impl Eq for Log {}
