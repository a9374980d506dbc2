//! What was made of the beginning of a history, kept for all that goes on from there.

use std::any::Any;
use std::ptr;
use std::sync::Mutex;

use rpds::VectorSync;

use crate::log::iteration::Iteration;

/// So many things are kept beside each other.
const SLOTS: usize = 3;

/// Things made of the beginning of a list that only grows. Who goes on with one takes it, so nobody waits for anybody, and who
/// finds none makes it anew.
#[derive(Debug, Default)]
pub(crate) struct Kept([Mutex<Option<Prefix>>; SLOTS]);

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
        slot: usize,
        list: &VectorSync<Iteration>,
        len: usize,
    ) -> Option<Box<T>> {
        let kept = self.0.get(slot)?.lock().ok()?.take()?;
        // Lists that share this grew from each other, so all before an element that both have is in both.
        let is_same = kept.len <= len
            && kept.len.checked_sub(1).is_none_or(|last| {
                match (list.get(last), kept.list.get(last)) {
                    (Some(own), Some(other)) => ptr::eq(own, other),
                    _ => false,
                }
            });
        kept.made.downcast().ok().filter(|_| is_same)
    }

    /// Puts a thing in, made of the first `len` of a list.
    pub fn put<T: Any + Send>(
        &self,
        slot: usize,
        list: &VectorSync<Iteration>,
        len: usize,
        made: Box<T>,
    ) {
        let list = list.clone();
        let place = self.0.get(slot).and_then(|place| place.lock().ok());
        // What was there may take long to free: nobody else shall wait for that.
        let before = place.and_then(|mut place| place.replace(Prefix { list, len, made }));
        drop(before);
    }
}
