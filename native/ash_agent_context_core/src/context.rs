//! The conversation.

use std::sync::Arc;

use rpds::VectorSync;

use crate::call::{MessagePlace, ToolCall};
use crate::error::Error;
use crate::ids::Ids;
use crate::iteration::{Exchange, Iteration, MessageRef};
use crate::message::{Message, Outcome, Output, Role, Status};
use crate::notes::Notes;
use crate::part::{item_id, Content, Place};
use crate::results::read_results;
use crate::time::Time;
use crate::value::{Map, Size, Value};

/// Work to free, in terms, that a destructor does on the spot; see [`Context::is_heavy_to_drop`].
const SEGMENT: usize = 2_000;

/// Bytes that cost as much to free as one term.
const BYTES_PER_TERM: usize = 256;

/// One whole conversation, immutable: every operation gives a new one that shares structure.
///
/// Cloning is O(1).
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) id: Arc<str>,
    pub(crate) system: Option<Arc<Message>>,
    pub(crate) done: VectorSync<Iteration>,
    pub(crate) current: Arc<Iteration>,
    pub(crate) created_at: Time,
    pub(crate) updated_at: Time,
    pub(crate) metadata: Notes,
    pub(crate) extra: Option<Arc<Map>>,
    ids: Ids,
    messages: usize,
    size: Size,
    segment: Option<Arc<()>>,
    segment_end: usize,
}

/// When an operation happens, and what the application notes beside its message.
#[derive(Debug)]
pub struct Stamp {
    /// The caller's clock.
    pub at: Time,
    /// Kept with the message.
    pub metadata: Option<Map>,
}

impl Stamp {
    /// At this time, without notes.
    #[must_use]
    pub const fn at(at: Time) -> Self {
        Self { at, metadata: None }
    }
}

impl Context {
    /// A conversation with an empty iteration 1.
    #[must_use]
    pub fn empty(id: &str, at: Time) -> Self {
        Self::starting(id, at, Iteration::new(1, at))
    }

    /// A conversation whose first iteration is this empty one.
    pub(crate) fn starting(id: &str, at: Time, first: Iteration) -> Self {
        let size = first.size();
        Self {
            id: id.into(),
            system: None,
            done: VectorSync::new_sync(),
            current: Arc::new(first),
            created_at: at,
            updated_at: at,
            metadata: Notes::default(),
            extra: None,
            ids: Ids::default(),
            messages: 0,
            size,
            segment: Some(Arc::new(())),
            segment_end: SEGMENT,
        }
    }

    /// A conversation that begins with a user message; iteration 1 holds it.
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
        context.append(Message::new(Role::User, content, Box::default(), None));
        Ok(context)
    }

    /// Adds a user message: to the next iteration, or to the current one when no model has spoken in it.
    ///
    /// # Errors
    /// [`Error::PendingToolCalls`], [`Error::InvalidPart`].
    pub fn add_user_message(&self, input: Value, stamp: Stamp) -> Result<Self, Error> {
        let content = Content::from_input(input)?;
        self.add_user_content(content, stamp)
    }

    pub(crate) fn add_user_content(&self, content: Content, stamp: Stamp) -> Result<Self, Error> {
        self.check_nothing_pending()?;
        let mut next = self.clone();
        if self.current.has_assistant() {
            next.complete(stamp.at);
        }
        next.append(Message::new(
            Role::User,
            content,
            Box::default(),
            stamp.metadata,
        ));
        next.updated_at = stamp.at;
        Ok(next)
    }

    /// Adds a message of the model and its tool calls to the current iteration.
    ///
    /// # Errors
    /// [`Error::PendingToolCalls`], [`Error::InvalidPart`], [`Error::InvalidToolCall`],
    /// [`Error::DuplicateToolCall`].
    pub fn add_assistant_message(
        &self,
        content: Value,
        calls: Value,
        stamp: Stamp,
    ) -> Result<Self, Error> {
        self.check_nothing_pending()?;
        let content = Content::from_value(content, Place::Assistant)?;
        let position = self.current.count_messages() + self.lead(&self.current).count();
        let place = MessagePlace {
            iteration: self.current.number,
            position,
        };
        let calls = ToolCall::read_all(calls, place)?;
        let mut next = self.clone();
        next.append(Message::new(
            Role::Assistant,
            content,
            calls,
            stamp.metadata,
        ));
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
    #[must_use]
    pub fn interrupt(&self, reason: &Value, stamp: Stamp) -> Self {
        let interrupted = |call: &ToolCall| {
            let output = Output::Value(reason.clone());
            (call.id.clone(), Outcome::new(Status::Interrupted, output))
        };
        let results: Vec<_> = self.current.pending().map(interrupted).collect();
        // Only empty: every id comes from a pending slot.
        self.fill(results, stamp).unwrap_or_else(|_| self.clone())
    }

    /// The conversation with one note more or another value for it.
    #[must_use]
    pub fn put_metadata(&self, key: Value, value: Value, at: Time) -> Self {
        let mut next = self.clone();
        next.metadata = self.metadata.put(key, value);
        next.updated_at = at;
        next.grown();
        next
    }

    /// The conversation with one note more on an iteration.
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
        let mut iteration =
            self.iteration(number)
                .cloned()
                .ok_or_else(|| Error::UnknownIteration {
                    number,
                    first: self.first_number(),
                    last: self.current.number,
                })?;
        let mut next = self.clone();
        let metadata = iteration.metadata.put(key, value);
        next.size = next
            .size
            .plus(metadata.size())
            .minus(iteration.metadata.size());
        iteration.metadata = metadata;
        match self.index(number) {
            Some(index) if index < self.done.len() => {
                next.done.set_mut(index, iteration);
            }
            _ => next.current = Arc::new(iteration),
        }
        next.updated_at = at;
        next.grown();
        Ok(next)
    }

    /// The conversation's id; forks keep it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The system prompt.
    #[must_use]
    pub fn system(&self) -> Option<&Message> {
        self.system.as_deref()
    }

    /// When the conversation was made.
    #[must_use]
    pub const fn created_at(&self) -> Time {
        self.created_at
    }

    /// When the last operation happened.
    #[must_use]
    pub const fn updated_at(&self) -> Time {
        self.updated_at
    }

    /// The application's own notes.
    #[must_use]
    pub const fn metadata(&self) -> &Notes {
        &self.metadata
    }

    /// The iteration that new messages join.
    #[must_use]
    pub fn current(&self) -> &Iteration {
        &self.current
    }

    /// Number of the current iteration.
    #[must_use]
    pub fn current_iteration(&self) -> u64 {
        self.current.number
    }

    /// Whether the current iteration's number has reached a limit.
    #[must_use]
    pub fn exceeded_max_iterations(&self, max: i64) -> bool {
        i64::try_from(self.current.number).is_ok_and(|number| number >= max)
    }

    /// All iterations, oldest first.
    pub fn iterations(&self) -> impl Iterator<Item = &Iteration> {
        self.done.iter().chain(std::iter::once(&*self.current))
    }

    /// The iterations without the first few.
    pub(crate) fn iterations_from(&self, skip: usize) -> impl Iterator<Item = &Iteration> {
        let current = (skip <= self.done.len()).then_some(&*self.current);
        let done = (skip..self.done.len()).filter_map(|index| self.done.get(index));
        done.chain(current)
    }

    /// Number of iterations.
    #[must_use]
    pub fn count_iterations(&self) -> usize {
        self.done.len() + 1
    }

    /// The iteration with this number.
    ///
    /// # Complexity
    /// O(log n)
    #[must_use]
    pub fn iteration(&self, number: i64) -> Option<&Iteration> {
        let index = self.index(number)?;
        if index == self.done.len() {
            return Some(&self.current);
        }
        self.done.get(index)
    }

    fn index(&self, number: i64) -> Option<usize> {
        let offset = u64::try_from(number)
            .ok()?
            .checked_sub(self.first_number())?;
        usize::try_from(offset).ok()
    }

    /// Number of the first iteration.
    #[must_use]
    pub fn first_number(&self) -> u64 {
        self.done
            .first()
            .map_or(self.current.number, |first| first.number)
    }

    /// The system prompt, where an iteration shows it: the first one does.
    fn lead(&self, iteration: &Iteration) -> impl Iterator<Item = MessageRef<'_>> {
        let leads = iteration.number == self.first_number();
        self.system()
            .filter(|_| leads)
            .into_iter()
            .map(MessageRef::Added)
    }

    /// The messages of one of this conversation's iterations; the first begins with the system prompt.
    pub fn messages_of<'a>(
        &'a self,
        iteration: &'a Iteration,
    ) -> impl Iterator<Item = MessageRef<'a>> {
        self.lead(iteration).chain(iteration.messages())
    }

    /// All messages, oldest first.
    pub fn messages(&self) -> impl Iterator<Item = MessageRef<'_>> {
        self.iterations()
            .flat_map(|iteration| self.messages_of(iteration))
    }

    /// Number of messages.
    #[must_use]
    pub fn count_messages(&self) -> usize {
        self.messages + usize::from(self.system.is_some())
    }

    /// The message at a 0-based position of an iteration.
    ///
    /// # Complexity
    /// O(log n)
    #[must_use]
    pub fn message(&self, number: i64, position: usize) -> Option<MessageRef<'_>> {
        let iteration = self.iteration(number)?;
        match (self.lead(iteration).next(), position) {
            (Some(system), 0) => Some(system),
            (Some(_), _) => iteration.message(position - 1),
            (None, _) => iteration.message(position),
        }
    }

    /// How much there is to walk and to copy, at most.
    #[must_use]
    pub fn size(&self) -> Size {
        let system = self.system().map_or(Size::default(), Message::size);
        self.size.plus(self.metadata.size()).plus(system)
    }

    /// Whether dropping this context may free more than a destructor should on a normal scheduler.
    ///
    /// Contexts of one conversation share a token until they differ by a segment. Whoever shares
    /// ours holds all but a segment of what we hold.
    #[must_use]
    pub fn is_heavy_to_drop(&self) -> bool {
        self.weight() > SEGMENT
            && self
                .segment
                .as_ref()
                .is_some_and(|one| Arc::strong_count(one) == 1)
    }

    /// Lets go of the token before a drop, and tells whether that is heavy: of several threads
    /// that drop the last holders at the same time, exactly one hears so.
    pub fn let_go(&mut self) -> bool {
        let was_last = self.segment.take().and_then(Arc::into_inner).is_some();
        was_last && self.weight() > SEGMENT
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
            content => Some(Arc::new(Message::new(
                Role::System,
                content,
                Box::default(),
                None,
            ))),
        };
    }

    /// Puts fields that this version does not know in the place of those there were.
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
        if let Content::Parts(parts) = &mut message.content {
            for part in parts {
                part.item_reused = part.item_id().is_some_and(|id| self.ids.join_item(id));
            }
        }
        for call in &mut message.calls {
            call.aliases = self.ids.join(&call.id);
            let id = item_id(call.provider_metadata.as_ref());
            call.aliases.item_reused = id.is_some_and(|id| self.ids.join_item(id));
        }
    }

    /// Takes the ids of the message that joined last out again.
    fn leave(&mut self, message: &Message) {
        for call in message.calls.iter().rev() {
            self.ids.leave(&call.id, &call.aliases);
            let id = item_id(call.provider_metadata.as_ref());
            if let Some(id) = id.filter(|_| !call.aliases.item_reused) {
                self.ids.leave_item(id);
            }
        }
        if let Content::Parts(parts) = &message.content {
            for part in parts.iter().filter(|part| !part.item_reused) {
                if let Some(id) = part.item_id() {
                    self.ids.leave_item(id);
                }
            }
        }
    }

    /// Adds a message with the results of its calls to the current iteration.
    pub(crate) fn append_answered(&mut self, mut message: Message, exchange: Exchange) {
        self.join(&mut message);
        self.change_current(|current| current.push_answered(message, exchange));
    }

    /// Changes the results of the last message.
    pub(crate) fn update_exchange(&mut self, change: impl FnOnce(&mut Exchange)) {
        self.change_current(|current| current.update_exchange(change));
    }

    /// Changes the current iteration in what is not counted.
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

    /// Whoever changes what a context holds says so here.
    pub(crate) fn grown(&mut self) {
        let weight = self.weight();
        // One that has become much smaller does not hold what the older ones hold, either.
        if weight > self.segment_end || weight.saturating_add(2 * SEGMENT) < self.segment_end {
            self.begin_segment();
        }
    }

    fn weight(&self) -> usize {
        let size = self.size();
        size.terms + size.bytes / BYTES_PER_TERM
    }

    fn begin_segment(&mut self) {
        self.segment = Some(Arc::new(()));
        self.segment_end = self.weight().saturating_add(SEGMENT);
    }

    /// Takes the current iteration away; the one before it is the current one again. `false` when
    /// there is none before it.
    ///
    /// # Complexity
    /// O(log n), and the calls of the iteration.
    pub(crate) fn drop_current(&mut self) -> bool {
        let Some(before) = self.done.last().cloned() else {
            return false;
        };
        self.done.drop_last_mut();
        let dropped = std::mem::replace(&mut self.current, Arc::new(before));
        for entry in dropped.entries().rev() {
            self.leave(&entry.message);
        }
        self.messages = self.messages.saturating_sub(dropped.count_messages());
        self.size = self.size.minus(dropped.size());
        // Whoever has the other token holds more than this context.
        self.begin_segment();
        true
    }

    /// Completes the current iteration and opens the next.
    pub(crate) fn complete(&mut self, at: Time) {
        self.update_current(|current| current.completed_at = current.completed_at.or(Some(at)));
        self.open(Iteration::new(self.current.number.saturating_add(1), at));
    }

    /// Opens an empty iteration behind the current one.
    pub(crate) fn open(&mut self, next: Iteration) {
        self.size = self.size.plus(next.size());
        let last = std::mem::replace(&mut self.current, Arc::new(next));
        self.done.push_back_mut(
            Arc::try_unwrap(last).unwrap_or_else(|shared| Iteration::clone(&shared)),
        );
    }
}

impl PartialEq for Context {
    /// Equal contents, down to ids and times. Handles play no part.
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
            && self.system == other.system
            && self.created_at == other.created_at
            && self.updated_at == other.updated_at
            && self.metadata == other.metadata
            && self.extra == other.extra
            && self.current == other.current
            && self.done == other.done
    }
}

impl Eq for Context {}
