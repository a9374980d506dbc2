//! What arrives late: which call it is for, whether it is taken, and where it stands. The slot of a call that waits keeps its
//! placeholder, so nothing that was sent before changes.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use crate::error::Error;
use crate::log::call::ToolCall;
use crate::log::exchange::{Entry, Exchange};
use crate::log::late::{Arrived, CallKey, CallPlace, Late, LateState, Refusal, Wait};
use crate::log::message::{Message, Outcome, Role, Status};
use crate::log::original::Original;
use crate::log::part::Content;
use crate::log::waits::{Arrival, GoneCall, WaitNote, Waits};
use crate::log::Log;
use crate::value::Value;

/// A call that waits or waited.
#[derive(Debug, Clone, Copy)]
pub struct LateCall<'a> {
    /// The call.
    pub call: &'a ToolCall,
    /// The arguments that it was started with.
    pub arguments: &'a Value,
    /// The number of its iteration.
    pub iteration: u64,
    /// What it waits for.
    pub wait: &'a Wait,
    /// Where it stands.
    pub state: LateState,
    /// Its result.
    pub outcome: Option<&'a Outcome>,
    /// The number of the iteration in which the result has its place.
    pub placed: Option<u64>,
}

impl Log {
    /// Returns true if a call waits here or did, be it before a rewind.
    #[must_use]
    pub const fn held_waiting(&self) -> bool {
        self.waits.is_some()
    }

    /// Keeps from now on that a call waited here.
    pub(crate) fn waits_mut(&mut self) -> &mut Waits {
        Arc::make_mut(self.waits.get_or_insert_default())
    }

    pub(crate) fn waits(&self) -> &Waits {
        static NONE: LazyLock<Waits> = LazyLock::new(Waits::default);
        self.waits.as_deref().unwrap_or(&NONE)
    }

    fn entry_at(&self, (iteration, message): (u64, usize)) -> Option<&Entry> {
        self.get_numbered(iteration)?.entry(message)
    }

    /// Returns a call.
    pub(crate) fn call_at(&self, place: CallPlace) -> Option<&ToolCall> {
        let entry = self.entry_at((place.iteration, place.message))?;
        entry.message.calls.get(place.call)
    }

    fn slot_at(&self, place: CallPlace) -> Option<&Outcome> {
        let entry = self.entry_at((place.iteration, place.message))?;
        entry.exchange.as_deref()?.slot(place.call)
    }

    /// Returns true if a call that waits has this place and id, and no result yet.
    pub(crate) fn takes_arrival(&self, place: CallPlace, id: &str) -> bool {
        self.is_unanswered(place) && self.call_at(place).is_some_and(|call| &*call.id == id)
    }

    /// Returns true if a call that waits has this place, and its result has none.
    pub(crate) fn is_unanswered(&self, place: CallPlace) -> bool {
        let note = self.waits().at(place);
        note.is_some_and(|note| note.placed.is_none())
    }

    /// Returns the result of a call that waited.
    fn result_of(&self, note: &WaitNote) -> Option<&Outcome> {
        match note.placed {
            None => self.waits().arrival(note.place).map(|outcome| &**outcome),
            Some(placed) if placed == (note.place.iteration, note.place.message) => {
                self.slot_at(note.place)
            }
            Some(placed) => self.entry_at(placed)?.exchange.as_deref()?.slot(0),
        }
    }

    /// Returns the late result that has its place in a message.
    fn arrived_at(&self, placed: (u64, usize)) -> Option<Arc<Outcome>> {
        let exchange = self.entry_at(placed)?.exchange.as_deref()?;
        exchange.outcomes().next()?.cloned()
    }

    fn state_of(&self, note: &WaitNote) -> LateState {
        match note.placed {
            Some(_) => LateState::Placed,
            None if note.is_elsewhere => LateState::Elsewhere,
            None if self.waits().arrival(note.place).is_some() => LateState::Arrived,
            None => LateState::Open,
        }
    }

    /// Returns the calls that wait or waited, in the order of the log.
    pub fn late_calls(&self) -> impl Iterator<Item = LateCall<'_>> {
        self.read_late(self.waits().calls())
    }

    /// Returns the calls that wait here and have no result. This costs as much as there are such calls.
    pub fn waiting_calls(&self) -> impl Iterator<Item = LateCall<'_>> {
        self.read_late(self.waits().open())
    }

    /// Returns the calls that wait or waited under these handles.
    pub fn find_late_calls<'a>(
        &'a self,
        handles: impl Iterator<Item = &'a str> + 'a,
    ) -> impl Iterator<Item = LateCall<'a>> {
        self.read_late(handles.filter_map(|handle| self.waits().of_handle(handle)))
    }

    /// Returns the late calls that may not be the same in both: as they are here, and as they were before. For a conversation that
    /// was made from the other one by going on, this costs as much as has changed.
    #[must_use]
    pub fn late_changes<'a>(&'a self, before: &'a Self) -> [Vec<LateCall<'a>>; 2] {
        let changed = self.waits().changed_since(before.waits());
        [self, before].map(|log| match changed.clone() {
            Some(positions) => log
                .read_late(log.waits().all_at(positions.into_iter()))
                .collect(),
            None => log.late_calls().collect(),
        })
    }

    fn read_late<'a>(
        &'a self,
        notes: impl Iterator<Item = &'a WaitNote> + 'a,
    ) -> impl Iterator<Item = LateCall<'a>> + 'a {
        notes.filter_map(|note| {
            let (call, slot) = (self.call_at(note.place)?, self.slot_at(note.place)?);
            let edited = slot.edited.as_ref();
            Some(LateCall {
                call,
                arguments: edited.unwrap_or(&call.arguments.value),
                iteration: note.place.iteration,
                wait: slot.wait()?,
                state: self.state_of(note),
                outcome: self.result_of(note),
                placed: note.placed.map(|(iteration, _)| iteration),
            })
        })
    }

    /// Returns the places of calls, each with the iteration in which its result stands.
    pub(crate) fn placed_arrivals(&self) -> impl Iterator<Item = (CallPlace, u64)> + '_ {
        let calls = self.waits().calls();
        let placed = calls.filter_map(|note| Some((note.place, note.placed?)));
        placed
            .filter(|(place, placed)| *placed != (place.iteration, place.message))
            .map(|(place, (iteration, _))| (place, iteration))
    }

    /// Returns whether a call of this name waits here or did.
    pub(crate) fn knows_waiting(&self, key: &CallKey) -> bool {
        !matches!(self.find_waiting(key), Err(Refusal::Unknown))
    }

    /// Finds the call of a name. Of several calls with an id, it is the one that waits, or the newest.
    fn find_waiting(&self, key: &CallKey) -> Result<&WaitNote, Refusal> {
        let waits = self.waits();
        let is_gone = match key {
            CallKey::Handle(handle) => match waits.of_handle(handle) {
                Some(note) => return Ok(note),
                None => waits.knows_handle(handle),
            },
            CallKey::Id(id) => {
                let is_open = |note: &&WaitNote| self.state_of(note) == LateState::Open;
                let mut open = waits.of_id(id).filter(is_open);
                match (open.next(), open.next()) {
                    (Some(note), None) => return Ok(note),
                    (Some(_), Some(_)) => return Err(Refusal::Ambiguous),
                    _ => {}
                }
                if let Some(note) = waits.of_id(id).last() {
                    return Ok(note);
                }
                waits.gone().any(|gone| gone.id == *id)
            }
        };
        Err(match is_gone {
            true => Refusal::Rewound,
            false => Refusal::Unknown,
        })
    }

    /// Checks that the handles of new calls that wait are new. Returns the position of the first that is not.
    pub(crate) fn find_used_handle<'o>(
        &self,
        outcomes: impl Iterator<Item = &'o Outcome> + Clone,
    ) -> Option<usize> {
        let handles = outcomes.map(|outcome| outcome.wait()?.handle.as_deref());
        // Hardly ever does a call wait.
        let first = handles.clone().position(|handle| handle.is_some())?;
        let waits = self.waits();
        let mut new = HashSet::new();
        let mut is_used = |handle: &'o str| waits.knows_handle(handle) || !new.insert(handle);
        let is_used = |handle: Option<&'o str>| handle.is_some_and(&mut is_used);
        Some(first + handles.skip(first).position(is_used)?)
    }

    /// Takes a result for a call that waits: into its slot while its exchange is open, else to those that get a place later.
    /// Returns false if it has arrived already.
    ///
    /// # Errors
    /// [`Error::LateToolResult`]
    pub(crate) fn arrive(
        &mut self,
        key: &CallKey,
        outcome: Outcome,
        arrived: Arrived,
    ) -> Result<bool, Error> {
        let (CallKey::Id(name) | CallKey::Handle(name)) = key;
        let refuse = |why: Refusal| Error::LateToolResult {
            call: name.clone(),
            why: why.name(),
        };
        let note = self.find_waiting(key).map_err(refuse)?;
        let place = note.place;
        let here = (
            self.current.number,
            self.current.entries().len().saturating_sub(1),
        );
        let own = (place.iteration, place.message);
        let is_in_open_exchange = own == here && self.current.count_pending() > 0;
        let is_in_slot = note
            .placed
            .map_or(is_in_open_exchange, |placed| placed == own);
        // Where the output stands alone, nothing else tells of arguments that a person changed.
        let is_alone = self.call_at(place).is_some_and(ToolCall::is_async);
        let exchange = self.entry_at(own).filter(|_| is_in_slot || is_alone);
        let exchange = exchange.and_then(|entry| entry.exchange.as_deref());
        let edited = exchange.and_then(|exchange| exchange.decisions.edited(place.call));
        let outcome = outcome.of_edited(edited);
        match self.state_of(note) {
            LateState::Open => {}
            LateState::Elsewhere => return Err(refuse(Refusal::Elsewhere)),
            LateState::Arrived | LateState::Placed => {
                let before = self.result_of(note);
                return match before {
                    Some(before) if before.says_as(&outcome) => Ok(false),
                    Some(before) if before.status == Status::Cancelled => {
                        Err(refuse(Refusal::Cancelled))
                    }
                    _ => Err(refuse(Refusal::Answered)),
                };
            }
        }
        let wait = self.slot_at(place).and_then(Outcome::wait);
        let wait = wait.filter(|_| is_in_open_exchange).cloned();
        let outcome = outcome.with_late(Some(Late {
            wait,
            arrived: Some(arrived),
        }));
        if is_in_open_exchange {
            self.update_exchange(|exchange| exchange.fill(place.call, outcome));
        } else {
            self.waits_mut().keep(place, Arc::new(outcome));
        }
        Ok(true)
    }

    /// Adds the results that have arrived to the current iteration.
    pub(crate) fn append_arrivals(&mut self) {
        let arrivals: Vec<_> = self.waits().arrivals().cloned().collect();
        for (place, outcome) in arrivals {
            self.append_arrival(place, outcome, None);
        }
    }

    /// Adds the results that have arrived for a call of the last message, which waited for them. Returns whether there were any.
    pub(crate) fn append_awaited(&mut self) -> bool {
        let Some(last) = self.current.last() else {
            return false;
        };
        let is_awaited = |(_, outcome): &&Arrival| {
            let id = outcome
                .arrived()
                .and_then(|arrived| arrived.awaited_by.as_deref());
            id.is_some_and(|id| last.message.find_call(id).is_some())
        };
        let awaited: Vec<_> = self
            .waits()
            .arrivals()
            .filter(is_awaited)
            .cloned()
            .collect();
        let is_any = !awaited.is_empty();
        for (place, outcome) in awaited {
            self.append_arrival(place, outcome, None);
        }
        is_any
    }

    /// Adds a late result to the current iteration, with the elements that it was imported from.
    pub(crate) fn append_arrival(
        &mut self,
        place: CallPlace,
        outcome: Arc<Outcome>,
        original: Option<Original>,
    ) {
        let Some(call) = self.call_at(place).cloned() else {
            return;
        };
        let message = Message::new(Role::User, Content::None, Box::new([call]), None);
        let mut exchange = Exchange::new(1);
        exchange.fill(0, outcome);
        exchange.arrival = Some(place);
        exchange.original = original;
        self.append_answered(message, exchange);
    }

    /// Adds a late result to the current iteration, for the call of this iteration and id that waits. Returns false if none does.
    pub(crate) fn put_arrival(
        &mut self,
        (iteration, id): (u64, &str),
        outcome: Outcome,
        arrived: Arrived,
    ) -> bool {
        let is_meant =
            |note: &&WaitNote| note.place.iteration == iteration && note.placed.is_none();
        let note = self.waits().of_id(id).filter(is_meant).last();
        let Some(place) = note.map(|note| note.place) else {
            return false;
        };
        let outcome = outcome.with_late(Some(Late {
            wait: None,
            arrived: Some(arrived),
        }));
        self.append_arrival(place, Arc::new(outcome), None);
        true
    }

    /// Notes what the last message says of calls that wait.
    pub(crate) fn note_waits(&mut self) {
        let entries = self.current.entries().len();
        let Some(exchange) = self.current.last().and_then(|last| last.exchange.clone()) else {
            return;
        };
        let here = (self.current.number, entries.saturating_sub(1));
        if let Some(place) = exchange.arrival {
            self.waits_mut().place(place, here);
        }
        if !exchange.has_waited {
            return;
        }
        let calls = self.current.last().map(|last| last.message.clone());
        let calls = calls.iter().flat_map(|message| &message.calls);
        for (slot, (outcome, call)) in exchange.slots().zip(calls).enumerate() {
            let wait = outcome.and_then(|outcome| Some((outcome, outcome.wait()?)));
            let Some((outcome, wait)) = wait else {
                continue;
            };
            let place = CallPlace {
                iteration: here.0,
                message: here.1,
                call: slot,
            };
            let placed = (outcome.status != Status::Waiting).then_some(here);
            let names = (&*call.id, wait.handle.as_deref());
            self.waits_mut().note(place, names, placed);
        }
    }

    /// Returns the calls that wait or waited after a rewind to the end of an iteration. What arrived after it has no place again;
    /// calls after it are gone.
    pub(crate) fn waits_up_to(&self, last: u64) -> Option<Arc<Waits>> {
        let waits = self.waits.as_deref()?;
        let mut next = Waits::default();
        waits.gone().for_each(|gone| next.add_gone(gone.clone()));
        let (mut cut_off, mut elsewhere) = (Vec::new(), HashSet::new());
        for note in waits.calls() {
            let (place, mut placed) = (note.place, note.placed);
            let wait = self.slot_at(place).and_then(Outcome::wait);
            let handle = wait.and_then(|wait| wait.handle.as_deref());
            let Some(call) = self.call_at(place) else {
                continue;
            };
            if place.iteration > last {
                next.add_gone(GoneCall {
                    id: call.id.clone(),
                    handle: handle.map(Into::into),
                });
                continue;
            }
            if let Some(cut) = placed.filter(|(placed, _)| *placed > last) {
                let outcome = self.arrived_at(cut);
                cut_off.extend(outcome.map(|outcome| (cut, (place, outcome))));
                placed = None;
            }
            if note.is_elsewhere {
                elsewhere.insert(place);
            }
            next.note(place, (&call.id, handle), placed);
        }
        // In the order in which they came.
        cut_off.sort_by_key(|(placed, _)| *placed);
        let unplaced = waits.arrivals().filter(|(of, _)| of.iteration <= last);
        let cut_off = cut_off.into_iter().map(|(_, arrival)| arrival);
        let arrivals = cut_off.chain(unplaced.cloned()).collect();
        let gone = next.gone().cloned().collect();
        next.put(&elsewhere, arrivals, gone);
        Some(Arc::new(next))
    }

    /// Takes what is known of late results beside the messages from a conversation in whose place this one stands. As after a
    /// rewind, a result whose place is gone has none again, and calls that are not here any more are gone.
    pub(crate) fn take_waits(&mut self, before: &Self) {
        let Some(waits) = before.waits.as_deref() else {
            return;
        };
        let mut gone: Vec<_> = waits.gone().cloned().collect();
        let (mut placed, mut elsewhere) = (Vec::new(), HashSet::new());
        let mut places = HashMap::new();
        for note in waits.calls() {
            let wait = before.slot_at(note.place).and_then(Outcome::wait);
            let handle = wait.and_then(|wait| wait.handle.as_deref());
            let Some(call) = before.call_at(note.place) else {
                continue;
            };
            let here = match handle {
                Some(handle) => self.waits().of_handle(handle),
                None => self
                    .waits()
                    .of_id(&call.id)
                    .find(|here| here.place == note.place),
            };
            let Some(here) = here else {
                gone.push(GoneCall {
                    id: call.id.clone(),
                    handle: handle.map(Into::into),
                });
                continue;
            };
            let place = here.place;
            if here.placed.is_some() {
                continue;
            }
            places.insert(note.place, place);
            if note.is_elsewhere {
                elsewhere.insert(place);
            }
            let own = (note.place.iteration, note.place.message);
            let cut = note.placed.filter(|placed| *placed != own);
            placed.extend(cut.and_then(|cut| Some((cut, (place, before.arrived_at(cut)?)))));
        }
        placed.sort_by_key(|(placed, _)| *placed);
        let cut_off = placed.into_iter().map(|(_, arrival)| arrival);
        let arrivals = waits.arrivals();
        let unplaced =
            arrivals.filter_map(|(of, outcome)| Some((*places.get(of)?, outcome.clone())));
        let arrivals = cut_off.chain(unplaced).collect();
        self.waits_mut().put(&elsewhere, arrivals, gone);
    }

    /// Forgets what is kept of calls that waited beside the messages.
    pub(crate) fn forget_late(&mut self) {
        if self.waits.is_some() {
            self.waits_mut()
                .put(&HashSet::new(), Vec::new(), Vec::new());
        }
    }

    /// Leaves the calls that wait to the conversation that this one was forked from, with what has arrived for them.
    pub(crate) fn leave_waiting(&mut self) {
        if self.waits.is_none() {
            return;
        }
        self.waits_mut().leave();
    }
}
