//! Messages of an iteration, with the slots of their calls.

use std::sync::Arc;

use crate::log::call::ToolCall;
use crate::log::decision::{Decision, Decisions};
use crate::log::entries::Entries;
use crate::log::late::CallPlace;
use crate::log::memo::Memo;
use crate::log::message::{Message, Outcome, Role};
use crate::log::original::Original;
use crate::log::part::Part;
use crate::log::piece::Pieces;
use crate::log::provider::Provider;
use crate::prices::bill::Reported;
use crate::prices::usage::Usage;
use crate::value::{Map, Size};

/// A message of an iteration, with the results of its calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The message itself.
    pub message: Arc<Message>,
    /// The slots of its calls; `None` when it has no calls.
    pub exchange: Option<Arc<Exchange>>,
    /// The provider's report on tokens.
    pub usage: Option<Arc<Reported>>,
    /// The message's position in the iteration; projected ones count.
    pub(crate) position: usize,
    /// The number of slots before its own in the iteration.
    pub(crate) slots: usize,
}

/// The slots of an assistant message's calls.
#[derive(Debug, Clone, Default)]
pub struct Exchange {
    /// A list in which answering one of many calls copies no others.
    slots: Entries<Option<Arc<Outcome>>>,
    /// The size of all outcomes.
    answers: Size,
    pub(crate) decisions: Decisions,
    filled: usize,
    /// The application's own metadata on the results.
    pub metadata: Option<Map>,
    /// The call that waited for the one result, which stands alone.
    pub arrival: Option<CallPlace>,
    /// True if a call waits or waited for its result.
    pub(crate) has_waited: bool,
    /// The elements it was imported from.
    pub(crate) original: Option<Original>,
    pub(crate) pieces: Pieces,
    pub(crate) counts: Memo<u64>,
    /// The bytes of text that the longest result has.
    pub(crate) longest: usize,
}

impl PartialEq for Exchange {
    fn eq(&self, other: &Self) -> bool {
        self.slots == other.slots
            && self.decisions == other.decisions
            && self.metadata == other.metadata
            && self.arrival == other.arrival
            && self.original == other.original
    }
}

impl Eq for Exchange {}

impl Exchange {
    pub(crate) fn new(calls: usize) -> Self {
        Self {
            slots: Entries::of(None, calls),
            ..Self::default()
        }
    }

    /// Returns the results in the order of the calls; `None` where one is pending.
    pub fn slots(&self) -> impl Iterator<Item = Option<&Outcome>> {
        self.slots.iter().map(Option::as_deref)
    }

    /// Returns the calls that have a result, each with it.
    pub(crate) fn answered_calls<'a>(
        &'a self,
        calls: &'a [ToolCall],
    ) -> impl Iterator<Item = (&'a ToolCall, &'a Outcome)> {
        let slots = calls.iter().zip(self.slots());
        slots.filter_map(|(call, outcome)| Some((call, outcome?)))
    }

    /// Returns the result in a slot.
    #[must_use]
    pub fn slot(&self, slot: usize) -> Option<&Outcome> {
        self.slots.get(slot)?.as_deref()
    }

    /// Returns the decision about the call of a slot.
    #[must_use]
    pub fn decision(&self, slot: usize) -> Option<&Decision> {
        self.decisions.get(slot)
    }

    /// Asks again about the calls that were approved and have no result.
    pub(crate) fn ask_again(&mut self) {
        let slots = &self.slots;
        let is_open = |slot| slots.get(slot).is_some_and(Option::is_none);
        self.decisions.ask_again(is_open);
    }

    /// Returns the slots as [`Exchange::slots`] does, to be shared.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = Option<&Arc<Outcome>>> {
        self.slots.iter().map(Option::as_ref)
    }

    /// Returns the number of calls.
    #[must_use]
    pub fn count_calls(&self) -> usize {
        self.slots.len()
    }

    /// Returns the number of calls that have no result.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.slots.len() - self.filled
    }

    /// Returns the number of calls that have a result.
    #[must_use]
    pub const fn count_filled(&self) -> usize {
        self.filled
    }

    pub(crate) fn fill(&mut self, slot: usize, outcome: impl Into<Arc<Outcome>>) {
        let outcome = outcome.into();
        let Some(before) = self.slots.get(slot) else {
            return;
        };
        match before {
            Some(before) => self.answers = self.answers.minus(before.size()),
            None => self.filled += 1,
        }
        self.has_waited |= outcome.wait().is_some();
        self.longest = self.longest.max(outcome.longest());
        self.answers = self.answers.plus(outcome.size());
        self.slots.set(slot, Some(outcome));
        self.original = None; // imported results are complete; these are others
    }

    /// Returns the place of the call that a late result is for, if the conversation has it.
    pub(crate) fn late_place(&self) -> Option<CallPlace> {
        self.arrival.filter(|place| place.iteration > 0)
    }

    pub(crate) fn add_metadata(&mut self, metadata: Option<Map>) {
        let Some(metadata) = metadata else { return };
        let mut entries = self.metadata.take().unwrap_or_default().into_entries();
        entries.extend(metadata.into_entries());
        self.metadata = Some(Map::new(entries));
    }

    pub(crate) fn size(&self) -> Size {
        let original = self.original.as_ref().map(Original::size);
        let metadata = self.metadata.as_ref().map(Map::size);
        let own: Size = [original, metadata].into_iter().flatten().sum();
        let decided = self.decisions.size().plus(Size::new(4, 0));
        own.plus(decided).plus(self.answers)
    }
}

/// One of the messages that users and providers see.
#[derive(Debug, Clone, Copy)]
pub enum MessageRef<'a> {
    /// A message that was added.
    Added(&'a Message),
    /// The message projected from the filled slots.
    Results(&'a [ToolCall], &'a Exchange),
}

impl Entry {
    /// Returns the message and, once a slot is filled, the results after it. A result that arrived late stands alone.
    pub fn messages(&self) -> impl DoubleEndedIterator<Item = MessageRef<'_>> {
        let results = self.exchange.as_deref();
        let results = results.filter(|exchange| exchange.filled > 0);
        let results = results.map(|results| MessageRef::Results(&self.message.calls, results));
        let added = (!self.message.is_arrival()).then_some(MessageRef::Added(&self.message));
        added.into_iter().chain(results)
    }

    /// Returns true if its call is in the conversation already: it is a result that arrived late.
    pub(crate) fn repeats_call(&self) -> bool {
        let exchange = self.exchange.as_deref();
        exchange.and_then(Exchange::late_place).is_some()
    }

    /// Returns the elements that its first message was imported from: a late result stands alone.
    pub(crate) fn first_original(&self) -> Option<&Original> {
        match self.message.is_arrival() {
            true => self.exchange.as_deref()?.original.as_ref(),
            false => self.message.original.as_ref(),
        }
    }

    /// Returns the calls of a message of the model.
    pub fn said_calls(&self) -> impl Iterator<Item = &ToolCall> {
        let calls = self.message.calls.iter();
        calls.filter(|_| !self.message.is_arrival())
    }

    /// Returns each call with its result.
    pub fn calls(&self) -> impl Iterator<Item = (&ToolCall, Option<&Outcome>)> {
        let slots = self.exchange.iter().flat_map(|exchange| exchange.slots());
        self.message.calls.iter().zip(slots)
    }

    pub(crate) fn count(&self) -> usize {
        self.messages().count()
    }
    /// Returns how many tokens the conversation has with its message, by the last report of a provider, and how many it had by
    /// [`Method::Estimate`](crate::tokens::Method::Estimate) then. Reasoning that is not in the message is not sent again.
    pub(crate) fn reported_length(&self) -> Option<(u64, u64)> {
        let reported = self.usage.as_deref()?;
        let is_kept = |part: &Part| part.kind.is_thinking() || part.kind.block().is_some();
        let kept = self.message.content.parts().iter().any(is_kept);
        let Usage {
            input,
            output,
            reasoning,
            ..
        } = reported.last;
        let dropped = if kept { 0 } else { reasoning };
        let length = input.saturating_add(output.saturating_sub(dropped));
        Some((length, reported.estimate))
    }

    /// Returns the provider that sent the message.
    pub(crate) fn provider(&self) -> Option<Provider> {
        self.message.reply.as_deref()?.provider
    }

    /// Returns true for a message of the model.
    pub(crate) fn is_model(&self) -> bool {
        self.message.role == Role::Assistant
    }
}
