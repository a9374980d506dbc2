//! What was made of the beginning of a history, kept for all that goes on from there.

use std::any::Any;
use std::ptr;
use std::sync::Mutex;

use rpds::VectorSync;

use crate::log::iteration::Iteration;

/// What is kept beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// The facts of a range of iterations.
    RangeFacts,
    /// The facts of what a view does not show in full.
    ShortenedFacts,
    /// What a range of iterations adds up to.
    RangeSum,
}

/// Things made of the beginning of a list that only grows. Who goes on with one takes it, so nobody waits for anybody, and who
/// finds none makes it anew.
#[derive(Debug, Default)]
pub(crate) struct Kept([Mutex<Option<Prefix>>; 3]);

/// A thing, with the list that it was made of: the list keeps its last element from being freed, so that no other one has its
/// address.
#[derive(Debug)]
struct Prefix {
    list: VectorSync<Iteration>,
    len: usize,
    made: Box<dyn Any + Send>,
}

impl Kept {
    /// Takes a thing out, if it was made of the beginning of this list.
    pub fn take<T: Any>(
        &self,
        slot: Slot,
        list: &VectorSync<Iteration>,
        len: usize,
    ) -> Option<Box<T>> {
        let kept = self.0.get(slot as usize)?.lock().ok()?.take()?;
        // Lists that share this grew from each other, so all before an element that both have is in both.
        let is_same = kept.len <= len
            && kept
                .len
                .checked_sub(1)
                .is_none_or(|last| has_same(list, &kept.list, last));
        kept.made.downcast().ok().filter(|_| is_same)
    }

    /// Puts a thing in, made of the first `len` of a list.
    pub fn put<T: Any + Send>(
        &self,
        slot: Slot,
        list: &VectorSync<Iteration>,
        len: usize,
        made: Box<T>,
    ) {
        let list = list.clone();
        let place = self
            .0
            .get(slot as usize)
            .and_then(|place| place.lock().ok());
        // What was there may take long to free: nobody else shall wait for that.
        let before = place.and_then(|mut place| place.replace(Prefix { list, len, made }));
        drop(before);
    }

    /// Returns true if nothing is kept, or somebody else is at it.
    pub fn is_empty(&self) -> bool {
        let holds =
            |place: &Mutex<Option<Prefix>>| place.try_lock().is_ok_and(|kept| kept.is_some());
        !self.0.iter().any(holds)
    }
}

/// Returns true if two lists have the same element at an index, by its address.
pub(super) fn has_same(
    one: &VectorSync<Iteration>,
    other: &VectorSync<Iteration>,
    index: usize,
) -> bool {
    let pair = one.get(index).zip(other.get(index));
    pair.is_some_and(|(one, other)| ptr::eq(one, other))
}
