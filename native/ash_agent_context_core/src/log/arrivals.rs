//! What arrives late: which call it is for, whether it is taken, and where it stands. The slot of a call that waits keeps its
//! placeholder, so nothing that was sent before changes.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::Error;
use crate::log::call::ToolCall;
use crate::log::exchange::{Entry, Exchange};
use crate::log::late::{Arrived, CallKey, CallPlace, Late, LateState, Refusal, Wait};
use crate::log::message::{Message, Outcome, Role, Status};
use crate::log::part::Content;
use crate::log::waits::{GoneCall, WaitNote, Waits};
use crate::log::Log;

/// A call that waits or waited.
#[derive(Debug, Clone, Copy)]
pub struct LateCall<'a> {
    /// The call.
    pub call: &'a ToolCall,
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
        static NONE: Waits = Waits::NONE;
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
        let mut calls = self.waits().calls.iter();
        let note = calls.rfind(|note| note.place == place);
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
        self.waits().calls.iter().filter_map(|note| {
            Some(LateCall {
                call: self.call_at(note.place)?,
                iteration: note.place.iteration,
                wait: self.slot_at(note.place)?.wait()?,
                state: self.state_of(note),
                outcome: self.result_of(note),
                placed: note.placed.map(|(iteration, _)| iteration),
            })
        })
    }

    /// Returns the places of calls, each with the iteration in which its result stands.
    pub(crate) fn placed_arrivals(&self) -> impl Iterator<Item = (CallPlace, u64)> + '_ {
        let calls = self.waits().calls.iter();
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
        let is_meant = |note: &&WaitNote| match key {
            CallKey::Id(id) => self.call_at(note.place).is_some_and(|call| call.id == *id),
            CallKey::Handle(handle) => {
                let wait = self.slot_at(note.place).and_then(Outcome::wait);
                wait.is_some_and(|wait| wait.handle.as_ref() == Some(handle))
            }
        };
        let is_open = |note: &&WaitNote| self.state_of(note) == LateState::Open;
        let mut open = waits.calls.iter().filter(is_meant).filter(is_open);
        match (open.next(), open.next()) {
            (Some(note), None) => return Ok(note),
            (Some(_), Some(_)) => return Err(Refusal::Ambiguous),
            _ => {}
        }
        if let Some(note) = waits.calls.iter().rfind(is_meant) {
            return Ok(note);
        }
        let is_gone = waits.gone.iter().any(|gone| match key {
            CallKey::Id(id) => gone.id == *id,
            CallKey::Handle(handle) => gone.handle.as_ref() == Some(handle),
        });
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
        let waiting = waits.calls.iter();
        let waiting =
            waiting.filter_map(|note| self.slot_at(note.place)?.wait()?.handle.as_deref());
        let gone = waits.gone.iter().filter_map(|gone| gone.handle.as_deref());
        let mut known: HashSet<&str> = waiting.chain(gone).collect();
        let is_used = |handle: Option<&'o str>| handle.is_some_and(|handle| !known.insert(handle));
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
        let exchange = self.entry_at(own).filter(|_| is_in_slot);
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
            let waits = self.waits_mut();
            waits.arrivals.push((place, Arc::new(outcome)));
            waits.resize();
        }
        Ok(true)
    }

    /// Adds the results that have arrived to the current iteration.
    pub(crate) fn append_arrivals(&mut self) {
        for (place, outcome) in self.waits().arrivals.clone() {
            self.append_arrival(place, outcome);
        }
    }

    fn append_arrival(&mut self, place: CallPlace, outcome: Arc<Outcome>) {
        let Some(call) = self.call_at(place).cloned() else {
            return;
        };
        let message = Message::new(Role::User, Content::None, Box::new([call]), None);
        let mut exchange = Exchange::new(1);
        exchange.fill(0, outcome);
        exchange.arrival = Some(place);
        self.append_answered(message, exchange);
    }

    /// Adds a late result to the current iteration, for the call of this iteration and id that waits. Returns false if none does.
    pub(crate) fn put_arrival(
        &mut self,
        (iteration, id): (u64, &str),
        outcome: Outcome,
        arrived: Arrived,
    ) -> bool {
        let mut calls = self.waits().calls.iter().map(|note| note.place);
        let place =
            calls.rfind(|place| place.iteration == iteration && self.takes_arrival(*place, id));
        let Some(place) = place else { return false };
        let outcome = outcome.with_late(Some(Late {
            wait: None,
            arrived: Some(arrived),
        }));
        self.append_arrival(place, Arc::new(outcome));
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
            let waits = self.waits_mut();
            waits.arrivals.retain(|(of, _)| *of != place);
            if let Some(note) = waits.find_mut(place) {
                note.placed = Some(here);
            }
            waits.resize();
        }
        if !exchange.has_waited {
            return;
        }
        let waits = self.waits_mut();
        for (call, outcome) in exchange.slots().enumerate() {
            let waited = outcome.filter(|outcome| outcome.wait().is_some());
            let Some(outcome) = waited else { continue };
            let place = CallPlace {
                iteration: here.0,
                message: here.1,
                call,
            };
            waits.note(place, (outcome.status != Status::Waiting).then_some(here));
        }
        waits.resize();
    }

    /// Returns the calls that wait or waited after a rewind to the end of an iteration. What arrived after it has no place again;
    /// calls after it are gone.
    pub(crate) fn waits_up_to(&self, last: u64) -> Option<Arc<Waits>> {
        let waits = self.waits.as_deref()?;
        let mut next = Waits {
            gone: waits.gone.clone(),
            ..Waits::default()
        };
        let mut cut_off = Vec::new();
        for note in &waits.calls {
            let mut note = note.clone();
            if note.place.iteration > last {
                let wait = self.slot_at(note.place).and_then(Outcome::wait);
                next.gone
                    .extend(self.call_at(note.place).map(|call| GoneCall {
                        id: call.id.clone(),
                        handle: wait.and_then(|wait| wait.handle.clone()),
                    }));
                continue;
            }
            let cut = note.placed.filter(|(placed, _)| *placed > last);
            if let Some(placed) = cut {
                let exchange = self
                    .entry_at(placed)
                    .and_then(|entry| entry.exchange.as_deref());
                let outcome = exchange.and_then(|exchange| exchange.outcomes().next()?.cloned());
                cut_off.extend(outcome.map(|outcome| (placed, (note.place, outcome))));
                note.placed = None;
            }
            next.calls.push(note);
        }
        // In the order in which they came.
        cut_off.sort_by_key(|(placed, _)| *placed);
        let unplaced = waits.arrivals.iter().filter(|(of, _)| of.iteration <= last);
        let cut_off = cut_off.into_iter().map(|(_, arrival)| arrival);
        next.arrivals = cut_off.chain(unplaced.cloned()).collect();
        next.resize();
        Some(Arc::new(next))
    }

    /// Forgets what is kept of calls that waited beside the messages.
    pub(crate) fn forget_late(&mut self) {
        if self.waits.is_some() {
            self.waits_mut().put(&[], Vec::new(), Vec::new());
        }
    }

    /// Leaves the calls that wait to the conversation that this one was forked from, with what has arrived for them.
    pub(crate) fn leave_waiting(&mut self) {
        if self.waits.is_none() {
            return;
        }
        let waits = self.waits_mut();
        for note in &mut waits.calls {
            note.is_elsewhere |= note.placed.is_none();
        }
        waits.arrivals.clear();
        waits.resize();
    }
}
