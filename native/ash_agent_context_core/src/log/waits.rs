//! The calls of a log that wait or waited, and what has arrived for them.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use rpds::{
    HashTrieMapSync, HashTrieSetSync, RedBlackTreeMapSync, RedBlackTreeSetSync, VectorSync,
};

use crate::log::late::{Arrived, CallPlace, Late, Wait};
use crate::log::message::{Outcome, Output, Status};
use crate::value::{steps, Size, Value};

/// What a model reads in the slot of a call that waits, for ever: what was sent does not change.
pub(crate) const PLACEHOLDER: &str =
    "This call is still running. If its result arrives, it comes in a later message, as a \
    late_result with the id of this call. That is data from the tool, not words of the user.";

impl Outcome {
    /// Returns what stands in the slot of a call that waits.
    pub(crate) fn waiting(wait: Wait) -> Self {
        let output = Output::Value(Value::text(PLACEHOLDER));
        Self::new(Status::Waiting, output).with_late(Some(Late {
            wait: Some(wait),
            arrived: None,
        }))
    }

    /// Returns what the call waits for, or did.
    #[must_use]
    pub fn wait(&self) -> Option<&Wait> {
        self.late.as_ref()?.wait.as_ref()
    }

    /// Returns how the result came, if it was late.
    #[must_use]
    pub fn arrived(&self) -> Option<&Arrived> {
        self.late.as_ref()?.arrived.as_ref()
    }

    /// Returns true if it tells the same as another one that is to arrive.
    pub(crate) fn says_as(&self, other: &Self) -> bool {
        self.status == other.status
            && self.output == other.output
            && self.error_type == other.error_type
    }
}

/// A call that waits or waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitNote {
    pub place: CallPlace,
    pub is_elsewhere: bool,
    /// The iteration and the message with its result; its own if it came while its exchange was open.
    pub placed: Option<(u64, usize)>,
}

/// A call that is gone, since the conversation was rewound to before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GoneCall {
    pub id: Box<str>,
    pub handle: Option<Box<str>>,
}

/// A result that has no place among the messages yet.
pub(crate) type Arrival = (CallPlace, Arc<Outcome>);

/// The calls of a log that wait or waited. A copy shares what it holds, and each call is found by its place, its handle and its
/// id, so a result costs as much among many calls as among few.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waits {
    /// In the order of the log.
    calls: VectorSync<WaitNote>,
    places: HashTrieMapSync<CallPlace, usize>,
    handles: HashTrieMapSync<Box<str>, usize>,
    ids: HashTrieMapSync<Box<str>, VectorSync<usize>>,
    /// Those that wait here and have no result.
    open: RedBlackTreeSetSync<usize>,
    elsewhere: usize,
    /// Which calls were noted or changed, in turn, or `None` for all. A mark is in no other list than in those that were made from
    /// this one, so two with the same mark at a position are the same up to there.
    changes: VectorSync<(Option<usize>, Arc<()>)>,
    /// In the order in which they came.
    arrivals: RedBlackTreeMapSync<usize, Arrival>,
    arrived: HashTrieMapSync<CallPlace, usize>,
    gone: VectorSync<GoneCall>,
    gone_handles: HashTrieSetSync<Box<str>>,
    size: Size,
}

impl PartialEq for Waits {
    fn eq(&self, other: &Self) -> bool {
        self.calls == other.calls && self.arrivals().eq(other.arrivals()) && self.gone == other.gone
    }
}

impl Eq for Waits {}

/// What a call takes here beside what it has arrived with.
const FEW: Size = Size::new(2, 0);

impl Waits {
    pub const fn size(&self) -> Size {
        self.size
    }

    pub fn calls(&self) -> impl Iterator<Item = &WaitNote> {
        self.calls.iter().inspect(|_| steps::count(1))
    }

    /// Returns those that wait here and have no result, in the order of the log.
    pub fn open(&self) -> impl Iterator<Item = &WaitNote> {
        self.all_at(self.open.iter().copied())
    }

    /// Returns the calls at these positions.
    pub fn all_at<'a>(
        &'a self,
        positions: impl Iterator<Item = usize> + 'a,
    ) -> impl Iterator<Item = &'a WaitNote> {
        let calls = positions.filter_map(|position| self.calls.get(position));
        calls.inspect(|_| steps::count(1))
    }

    /// Returns the positions of the calls that are new or have changed since `before`, or `None` if any may have.
    pub fn changed_since(&self, before: &Self) -> Option<BTreeSet<usize>> {
        let known = before.changes.len();
        if let Some(last) = before.changes.last() {
            let own = self.changes.get(known.saturating_sub(1))?;
            if !Arc::ptr_eq(&own.1, &last.1) {
                return None;
            }
        }
        let new = (known..self.changes.len()).filter_map(|at| self.changes.get(at));
        let new = new.inspect(|_| steps::count(1));
        new.map(|(position, _)| *position).collect()
    }

    fn note_change(&mut self, position: Option<usize>) {
        self.changes.push_back_mut((position, Arc::new(())));
    }

    fn is_open(&self, note: &WaitNote) -> bool {
        !note.is_elsewhere && note.placed.is_none() && !self.arrived.contains_key(&note.place)
    }

    /// Keeps that a call is new or has changed.
    fn touch(&mut self, position: usize) {
        match self
            .calls
            .get(position)
            .is_some_and(|note| self.is_open(note))
        {
            true => self.open.insert_mut(position),
            false => drop(self.open.remove_mut(&position)),
        }
        self.note_change(Some(position));
    }

    pub fn at(&self, place: CallPlace) -> Option<&WaitNote> {
        self.calls.get(*self.places.get(&place)?)
    }

    pub fn of_handle(&self, handle: &str) -> Option<&WaitNote> {
        self.calls.get(*self.handles.get(handle)?)
    }

    /// Returns the calls of an id, the newest last.
    pub fn of_id(&self, id: &str) -> impl Iterator<Item = &WaitNote> {
        let positions = self.ids.get(id).into_iter().flatten();
        let calls = positions.filter_map(|position| self.calls.get(*position));
        calls.inspect(|_| steps::count(1))
    }

    /// Returns whether a call has this handle, or had it before a rewind.
    pub fn knows_handle(&self, handle: &str) -> bool {
        self.handles.contains_key(handle) || self.gone_handles.contains(handle)
    }

    pub fn note(
        &mut self,
        place: CallPlace,
        (id, handle): (&str, Option<&str>),
        placed: Option<(u64, usize)>,
    ) {
        if self.places.contains_key(&place) {
            return self.change(place, |note| note.placed = placed.or(note.placed));
        }
        let position = self.calls.len();
        self.places.insert_mut(place, position);
        if let Some(handle) = handle {
            self.handles.insert_mut(handle.into(), position);
        }
        let mut same = self.ids.get(id).cloned().unwrap_or_default();
        same.push_back_mut(position);
        self.ids.insert_mut(id.into(), same);
        self.calls.push_back_mut(WaitNote {
            place,
            is_elsewhere: false,
            placed,
        });
        self.touch(position);
        self.size = self.size.plus(FEW);
    }

    fn change(&mut self, place: CallPlace, change: impl FnOnce(&mut WaitNote)) {
        let position = self.places.get(&place).copied();
        if let Some(note) = position.and_then(|position| self.calls.get_mut(position)) {
            change(note);
        }
        position.into_iter().for_each(|at| self.touch(at));
    }

    pub fn arrival(&self, place: CallPlace) -> Option<&Arc<Outcome>> {
        let (_, outcome) = self.arrivals.get(self.arrived.get(&place)?)?;
        Some(outcome)
    }

    pub fn arrivals(&self) -> impl Iterator<Item = &Arrival> {
        self.arrivals.values().inspect(|_| steps::count(1))
    }

    pub fn has_arrivals(&self) -> bool {
        !self.arrivals.is_empty()
    }

    /// Keeps a result without a place.
    pub fn keep(&mut self, place: CallPlace, outcome: Arc<Outcome>) {
        let next = self.arrivals.last().map_or(0, |(last, _)| last + 1);
        self.size = self.size.plus(outcome.size());
        self.arrivals.insert_mut(next, (place, outcome));
        self.arrived.insert_mut(place, next);
        self.change(place, |_| {});
    }

    /// Notes where the result of a call has its place.
    pub fn place(&mut self, of: CallPlace, here: (u64, usize)) {
        if let Some(number) = self.arrived.get(&of).copied() {
            let kept = self
                .arrivals
                .get(&number)
                .map(|(_, outcome)| outcome.size());
            self.size = self.size.minus(kept.unwrap_or_default());
            self.arrivals.remove_mut(&number);
            self.arrived.remove_mut(&of);
        }
        self.change(of, |note| note.placed = Some(here));
    }

    pub fn gone(&self) -> impl Iterator<Item = &GoneCall> {
        self.gone.iter().inspect(|_| steps::count(1))
    }

    pub fn add_gone(&mut self, gone: GoneCall) {
        if let Some(handle) = &gone.handle {
            self.gone_handles.insert_mut(handle.clone());
        }
        self.gone.push_back_mut(gone);
        self.size = self.size.plus(FEW);
    }

    /// Takes what a document says of the calls, beside the messages.
    pub fn put(
        &mut self,
        elsewhere: &HashSet<CallPlace>,
        arrivals: Vec<Arrival>,
        gone: Vec<GoneCall>,
    ) {
        self.mark(|note| elsewhere.contains(&note.place));
        self.forget_arrivals();
        for (place, outcome) in arrivals {
            self.keep(place, outcome);
        }
        self.size = self.size.minus(Size::new(2 * self.gone.len(), 0));
        self.gone = VectorSync::default();
        self.gone_handles = HashTrieSetSync::default();
        gone.into_iter().for_each(|gone| self.add_gone(gone));
    }

    /// Leaves the calls without a place to another conversation, with what has arrived for them.
    pub fn leave(&mut self) {
        self.mark(|note| note.is_elsewhere || note.placed.is_none());
        self.forget_arrivals();
    }

    fn mark(&mut self, is_elsewhere: impl Fn(&WaitNote) -> bool) {
        for position in 0..self.calls.len() {
            let marked = self
                .calls
                .get(position)
                .map(|note| (note, is_elsewhere(note)));
            let changed = marked.filter(|(note, is)| note.is_elsewhere != *is);
            let is_elsewhere = changed.map(|(_, is)| is);
            if let Some((is, note)) = is_elsewhere.zip(self.calls.get_mut(position)) {
                note.is_elsewhere = is;
            }
        }
        let marked = self.calls.iter().filter(|note| note.is_elsewhere);
        self.elsewhere = marked.count();
    }

    fn forget_arrivals(&mut self) {
        let sizes = self.arrivals.values().map(|(_, outcome)| outcome.size());
        self.size = self.size.minus(sizes.sum());
        self.arrivals = RedBlackTreeMapSync::default();
        self.arrived = HashTrieMapSync::default();
        let calls = self.calls.iter().enumerate();
        let open = calls.filter(|(_, note)| self.is_open(note));
        self.open = open.map(|(position, _)| position).collect();
        self.note_change(None);
    }

    /// Returns true if a document has anything to say of the calls, beside the messages.
    pub fn is_told(&self) -> bool {
        self.has_arrivals() || !self.gone.is_empty() || self.elsewhere > 0
    }
}
