//! The log: all that was said. It knows nothing of views, of tokens, or of the forms of providers.

pub mod address;
pub mod alias;
pub mod arrivals;
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
pub(crate) mod kept;
pub mod kind;
pub mod late;
pub(crate) mod marks;
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
mod signature;
pub mod tally;
pub(crate) mod waits;

use std::sync::Arc;

use crate::error::Error;
use crate::log::exchange::{Entry, Exchange};
use crate::log::generation::{Generation, LIGHT};
use crate::log::history::History;
use crate::log::ids::Ids;
use crate::log::iteration::Iteration;
use crate::log::late::CallPlace;
use crate::log::message::Message;
use crate::log::metadata::Metadata;
use crate::log::origin::Origin;
use crate::log::part::{item_id, Content, Part};
use crate::log::served::{PartPlace, SplitPairs};
use crate::log::waits::Waits;
use crate::prices::bill::Reported;
use crate::prices::usage::Usage;
use crate::value::time::Time;
use crate::value::{Map, Size};

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
    pub(crate) ids: Ids,
    /// The calls that wait or waited; `None` if none ever did.
    pub(crate) waits: Option<Arc<Waits>>,
    messages: usize,
    size: Size,
    /// The size of the metadata added to earlier iterations since their checkpoints.
    noted: Size,
    /// The size of what a context keeps beside the log, such as its view.
    pub(crate) beside: Size,
    /// Terms that a rewind may have left in memory.
    unseen: usize,
    generation: Generation,
}

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
            waits: None,
            messages: 0,
            size,
            noted: Size::default(),
            beside: Size::default(),
            unseen: 0,
            generation: Generation::default(),
        }
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
            range: (self.first_number(), self.current.number),
        }
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

    /// Returns the size of what there is to walk and to copy, at most.
    #[must_use]
    pub fn size(&self) -> Size {
        let system = self.system().map_or(Size::default(), Message::size);
        let origin = self.origin.as_deref().map(Origin::size);
        let waits = self.waits.as_deref().map_or(Size::default(), Waits::size);
        let beside = self
            .metadata
            .size()
            .plus(system)
            .plus(self.beside)
            .plus(waits);
        self.size.plus(beside).plus(origin.unwrap_or_default())
    }

    /// Returns true if dropping this context may free more than a destructor should on a normal scheduler.
    #[must_use]
    pub fn is_heavy_to_drop(&self) -> bool {
        let is_last = self.generation.is_last() || self.history.is_last_keeper();
        is_last && self.weight() > LIGHT
    }

    /// Lets go of the generation before a drop. Returns true if the drop is heavy: of several threads that drop the last holders
    /// at the same time, exactly one hears so.
    pub fn let_go(&mut self) -> bool {
        // What is kept of a history is freed with the last that has it, whatever others share.
        let is_last = self.generation.let_go() || self.history.is_last_keeper();
        is_last && self.weight() > LIGHT
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
    pub(crate) fn append(&mut self, message: Message) {
        let exchange = Exchange::new(message.calls.len());
        self.append_answered(message, exchange);
    }

    /// Takes down the ids of a message that joins the conversation. A result that arrives late has those of its call.
    fn join(&mut self, message: &mut Message, arrival: Option<CallPlace>) {
        if let Some(place) = arrival {
            let aliases = self.call_at(place).map(|call| call.aliases.clone());
            for (call, aliases) in message.calls.iter_mut().zip(aliases) {
                call.aliases = aliases;
            }
            return;
        }
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
                part.number = self.ids.join_file(part, place);
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
        self.join(&mut message, exchange.late_place());
        self.ids.join_kept_files(&exchange);
        self.change_current(|current| current.push_answered(message, exchange));
    }

    /// Adds a message with its exchange from a conversation that shares its beginning with this one.
    pub(crate) fn append_entry(&mut self, entry: Entry) {
        let (number, index) = (self.current.number, self.current.entries().len());
        if !entry.repeats_call() {
            self.ids.join_again(&entry.message, number, index);
        }
        if let Some(exchange) = entry.exchange.as_deref() {
            self.ids.join_kept_files(exchange);
        }
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

    pub(crate) fn change_current(&mut self, change: impl FnOnce(&mut Iteration)) {
        let current = Arc::make_mut(&mut self.current);
        let (old, messages) = (current.size(), current.count_messages());
        change(current);
        self.messages = self.messages - messages + current.count_messages();
        self.size = self.size.plus(current.size()).minus(old);
        self.note_waits();
        self.grown();
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
            && self.waits == other.waits
    }
}

impl Eq for Log {}
