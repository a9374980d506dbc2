//! Iterations, with the exchanges in them and the sizes and reports that they keep.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use crate::error::Error;
use crate::log::call::{ToolCall, FEW};
use crate::log::entries::Entries;
use crate::log::exchange::{Entry, Exchange, MessageRef};
use crate::log::failed::Failures;
use crate::log::ids::Ids;
use crate::log::kind::CallKind;
use crate::log::marks::Marks;
use crate::log::memo::Memo;
use crate::log::message::{Message, Outcome, Role, Status};
use crate::log::metadata::Metadata;
use crate::log::original::Original;
use crate::log::piece::Pieces;
use crate::log::provider::Provider;
use crate::log::tally::Tallies;
use crate::prices::bill::Reported;
use crate::prices::usage::Usage;
use crate::value::time::Time;
use crate::value::{Map, Size};

/// The counts and ids of a conversation at the end of an iteration: a rewind goes on from them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checkpoint {
    pub ids: Ids,
    pub messages: usize,
    pub size: Size,
    pub usage: Usage,
}

/// One cycle of the agent loop.
#[derive(Debug, Clone, Default)]
pub struct Iteration {
    /// Its number; never used again, never changed.
    pub number: u64,
    /// The time at which it was opened.
    pub started_at: Time,
    /// The time of the last result or of the next user message; `None` while it runs.
    pub completed_at: Option<Time>,
    /// The application's own metadata.
    pub metadata: Metadata,
    /// Requests for it that failed.
    pub(crate) failures: Failures,
    /// Fields of a snapshot that this version does not know.
    pub(crate) extra: Option<Map>,
    /// The number of the iteration with the message of the user that began the turn.
    pub(crate) turn: u64,
    /// The number of the last iteration up to this one that has a provider's report on tokens.
    pub(crate) reported: Option<u64>,
    /// The state at the end of this iteration; only some have it.
    pub(crate) checkpoint: Option<Arc<Checkpoint>>,
    entries: Entries<Entry>,
    messages: usize,
    has_assistant: bool,
    /// Encodings of all its messages; copies with the same messages share them.
    pieces: OnceLock<Arc<Pieces>>,
    marks: OnceLock<Arc<Marks>>,
    /// The keys of what it shows, by its look.
    pub(crate) seen: Memo<Box<[u64]>>,
    pub(crate) tallies: Tallies,
    usage: Usage,
    pending: usize,
    calls: usize,
    /// The bytes of text that the longest result has, at least.
    pub(crate) longest: usize,
    size: Size,
}

impl Iteration {
    pub(crate) fn new(number: u64, started_at: Time) -> Self {
        Self {
            number,
            started_at,
            turn: number,
            ..Self::default()
        }
    }

    /// Returns the iteration as part of the same turn as the one before.
    pub(crate) fn behind(mut self, before: &Self) -> Self {
        self.turn = before.turn;
        self.reported = before.reported;
        self
    }

    pub(crate) fn with_extra(mut self, extra: Option<Map>) -> Self {
        self.size = self.size.plus(extra.iter().map(Map::size).sum());
        self.extra = extra;
        self
    }

    /// Returns the messages with their exchanges.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> + ExactSizeIterator {
        self.entries.iter()
    }

    /// Returns the message at a 0-based position, with its exchange.
    pub(crate) fn entry(&self, index: usize) -> Option<&Entry> {
        self.entries.get(index)
    }

    /// Returns the last message that was added.
    #[must_use]
    pub fn last(&self) -> Option<&Entry> {
        self.entries.last()
    }

    /// Returns all messages, projected ones in their places.
    pub fn messages(&self) -> impl Iterator<Item = MessageRef<'_>> {
        self.entries().flat_map(Entry::messages)
    }

    /// Returns the number of messages, projected ones too.
    #[must_use]
    pub const fn count_messages(&self) -> usize {
        self.messages
    }

    /// Returns the number of calls without a result.
    #[must_use]
    pub const fn count_pending(&self) -> usize {
        self.pending
    }

    /// Returns the message at a 0-based position.
    ///
    /// # Complexity
    /// O(log² n)
    #[must_use]
    pub fn message(&self, position: usize) -> Option<MessageRef<'_>> {
        if position >= self.messages {
            return None;
        }
        // The last entry that begins at or before the position.
        let (mut low, mut high) = (0, self.entries.len());
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.entries.get(middle) {
                Some(entry) if entry.position <= position => low = middle,
                _ => high = middle,
            }
        }
        let entry = self.entries.get(low)?;
        entry.messages().nth(position - entry.position)
    }

    /// Returns each call with its result.
    pub fn calls(&self) -> impl Iterator<Item = (&ToolCall, Option<&Outcome>)> {
        self.entries().flat_map(Entry::calls)
    }

    /// Returns the calls without a result.
    pub fn pending(&self) -> impl Iterator<Item = &ToolCall> {
        // Only the last message can have any: nothing is added while one waits.
        let last = self.last().filter(|_| self.pending > 0);
        let calls = last.into_iter().flat_map(Entry::calls);
        let pending = calls.filter(|(_, outcome)| outcome.is_none());
        pending.map(|(call, _)| call)
    }

    /// Returns the ids of the calls without a result.
    #[must_use]
    pub fn pending_ids(&self) -> Vec<Box<str>> {
        self.pending().map(|call| call.id.clone()).collect()
    }

    /// Returns true if the model has spoken.
    #[must_use]
    pub const fn has_assistant(&self) -> bool {
        self.has_assistant
    }

    /// Returns how much there is to walk and to copy.
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
            .plus(self.metadata.size())
            .plus(self.failures.size())
            .plus(Size::new(8, 0))
    }

    pub(crate) const fn count_calls(&self) -> usize {
        self.calls
    }

    pub(crate) fn pieces(&self) -> &Arc<Pieces> {
        self.pieces.get_or_init(Arc::default)
    }

    /// Returns the marks of its texts, made by `make` once.
    pub(crate) fn marks(&self, make: impl FnOnce() -> Marks) -> &Marks {
        self.marks.get_or_init(|| Arc::new(make()))
    }

    /// Forgets what was made of other messages; the iteration that this one was copied from keeps it.
    fn forget(&mut self) {
        (self.pieces, self.marks) = (OnceLock::new(), OnceLock::new());
        self.seen = Memo::default();
    }

    /// Adds a message with the results of its calls.
    pub(crate) fn push_answered(&mut self, message: Message, exchange: Exchange) {
        let has_calls = !message.calls.is_empty();
        self.push_entry(Entry {
            message: Arc::new(message),
            usage: None,
            position: 0,
            slots: 0,
            exchange: has_calls.then(|| Arc::new(exchange)),
        });
    }

    /// Adds a message with its exchange and report, perhaps of another iteration.
    pub(crate) fn push_entry(&mut self, mut entry: Entry) {
        entry.slots = self.calls;
        let message = &entry.message;
        self.size = self.size.plus(message.size());
        self.calls += message.calls.len();
        self.has_assistant |= message.role == Role::Assistant;
        if message.role == Role::User && !message.is_arrival() {
            self.turn = self.number;
        }
        if let Some(exchange) = entry.exchange.as_deref() {
            // Contents of slots are counted as they arrive; the rest of an exchange belongs to the message.
            let answers = exchange.size().minus(Exchange::default().size());
            self.size = self.size.plus(answers);
            self.longest = self.longest.max(exchange.longest);
            self.pending += exchange.pending();
        }
        if let Some(reported) = entry.usage.as_deref() {
            self.reported = Some(self.number);
            self.usage = self.usage.plus(reported.sum);
        }
        entry.position = self.messages;
        self.forget();
        self.messages += entry.count();
        self.entries.push(entry);
    }

    /// Changes the report on the last message of the model.
    pub(crate) fn report(&mut self, change: impl FnOnce(&Reported) -> Reported) {
        let Some(index) = self.entries.iter().rposition(Entry::is_model) else {
            return;
        };
        let Some(mut entry) = self.entries.get(index).cloned() else {
            return;
        };
        let before = entry.usage.clone().unwrap_or_default();
        let after = change(&before);
        self.usage = self.usage.minus(before.sum).plus(after.sum);
        entry.usage = Some(Arc::new(after));
        self.entries.set(index, entry);
        self.reported = Some(self.number);
    }

    /// Returns the sum of the tokens that providers reported.
    #[must_use]
    pub const fn usage(&self) -> Usage {
        self.usage
    }

    /// Drops the imported form of the last messages, up to the element that also held what followed them. Returns true if
    /// that was found, or cannot be further ahead.
    pub(crate) fn forget_wire(&mut self, provider: Provider) -> bool {
        for index in (0..self.entries.len()).rev() {
            let Some(mut entry) = self.entries.get(index).cloned() else {
                continue;
            };
            let results = entry.exchange.clone();
            let results = results.filter(|exchange| exchange.count_filled() > 0);
            let held = results
                .as_deref()
                .map(|results| Original::of(results.original.as_ref(), provider));
            if let Some(results) = results.as_deref() {
                // Existing encodings contain the ids of the old message.
                let mut exchange = results.clone();
                exchange.original = exchange.original.filter(|own| own.provider != provider);
                entry.exchange = Some(Arc::new(exchange));
            }
            let message = entry.message.clone();
            let message = Original::of(message.original.as_ref(), provider);
            let reaches_message = matches!(held, None | Some(Some("")));
            let ends = match entry.message.is_arrival() {
                true => held != Some(Some("")),
                false => !reaches_message || message != Some(""),
            };
            if reaches_message && message.is_some() {
                entry.message = Arc::new(entry.message.without_wire());
            }
            self.entries.set(index, entry);
            self.forget();
            if ends {
                return true;
            }
        }
        false
    }

    /// Returns the provider whose element before the iteration also holds its first message, as it was imported.
    pub(crate) fn held_by(&self) -> Option<Provider> {
        let original = self.entries.get(0)?.first_original()?;
        original.json.is_empty().then_some(original.provider)
    }

    /// Returns some of the messages with their exchanges.
    pub(crate) fn entries_from(&self, start: usize, end: usize) -> impl Iterator<Item = &Entry> {
        (start..end).filter_map(|index| self.entries.get(index))
    }

    /// Changes the exchange of the last message.
    pub(crate) fn update_exchange(&mut self, change: impl FnOnce(&mut Exchange)) {
        let Some(mut entry) = self.entries.last().cloned() else {
            return;
        };
        let Some(mut exchange) = entry.exchange.as_deref().cloned() else {
            return;
        };
        let before = (entry.count(), exchange.pending(), exchange.size());
        change(&mut exchange);
        self.pending = self.pending - before.1 + exchange.pending();
        self.size = self.size.plus(exchange.size()).minus(before.2);
        self.longest = self.longest.max(exchange.longest);
        entry.exchange = Some(Arc::new(exchange));
        self.forget();
        self.messages = self.messages - before.0 + entry.count();
        self.entries
            .set(self.entries.len().saturating_sub(1), entry);
    }

    /// Fills slots of the last message.
    ///
    /// # Errors
    /// When a result has no slot, its slot is filled, or two results are for one slot.
    pub(crate) fn fill(
        &mut self,
        results: Vec<(Box<str>, Outcome)>,
        metadata: Option<Map>,
    ) -> Result<(), Error> {
        let Some(entry) = self.last().filter(|_| self.pending > 0) else {
            return Err(Error::NoPendingToolCalls {
                given: results.into_iter().map(|(id, _)| id).collect(),
            });
        };
        let answered = entry.exchange.as_deref();
        let mut given = (results.len() > FEW).then(HashSet::new);
        let mut places = Vec::with_capacity(results.len());
        for (id, outcome) in &results {
            let Some(place) = entry.message.find_call(id) else {
                return Err(Error::UnknownToolCall {
                    id: id.clone(),
                    pending: self.pending_ids(),
                });
            };
            let is_double = match &mut given {
                Some(given) => !given.insert(place),
                None => places.contains(&place),
            };
            if is_double {
                return Err(Error::DuplicateToolResult { id: id.clone() });
            }
            if answered.is_some_and(|exchange| exchange.slot(place).is_some()) {
                return Err(Error::ToolCallAlreadyAnswered {
                    id: id.clone(),
                    pending: self.pending_ids(),
                });
            }
            // Nothing can be shown in the place of a person's word to a provider.
            let call = entry.message.calls.get(place);
            let is_word = call.is_some_and(|call| call.kind == CallKind::McpApproval);
            if is_word && outcome.status == Status::Waiting {
                return Err(Error::IllegalStatus {
                    id: id.clone(),
                    from: "pending",
                    to: Status::Waiting.name(),
                });
            }
            let is_question =
                answered.is_some_and(|exchange| exchange.decisions.is_question(place));
            if is_question && outcome.status == Status::Waiting {
                return Err(Error::IsAQuestion { id: id.clone() });
            }
            places.push(place);
        }
        self.update_exchange(|exchange| {
            for (place, (_, outcome)) in places.into_iter().zip(results) {
                let outcome = outcome.of_edited(exchange.decisions.edited(place));
                exchange.fill(place, outcome);
            }
            exchange.add_metadata(metadata);
        });
        Ok(())
    }

    /// Counts a report that came after the iteration's end at its end, too.
    pub(crate) fn add_to_checkpoint(&mut self, usage: Usage) {
        if let Some(checkpoint) = &mut self.checkpoint {
            let checkpoint = Arc::make_mut(checkpoint);
            checkpoint.usage = checkpoint.usage.plus(usage);
        }
    }
}

impl PartialEq for Iteration {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
            && self.started_at == other.started_at
            && self.completed_at == other.completed_at
            && self.metadata == other.metadata
            && self.failures == other.failures
            && self.extra == other.extra
            && self.entries == other.entries
    }
}

impl Eq for Iteration {}
