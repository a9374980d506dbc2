//! The completed iterations.

use std::any::Any;
use std::sync::Arc;

use rpds::VectorSync;

use crate::log::iteration::Iteration;
use crate::log::kept::{has_same, Kept, Slot};
use crate::value::steps;

/// A cut frees up to so many iterations one by one. It leaves more in memory, out of sight.
const FEW: usize = 32;

/// A list that shares what did not change with the lists it came from, and can be cut in O(log n).
///
/// The vector can only drop its last element. So the elements after a cut may stay in it, unseen, until something else is
/// written there; they are shared with the conversation it was cut from, which usually lives on.
#[derive(Debug, Clone)]
pub(crate) struct History {
    list: VectorSync<Iteration>,
    len: usize,
    /// Lists with the same one came from each other by pushing alone. It keeps what was made of their beginning.
    edition: Arc<Kept>,
}

impl Default for History {
    fn default() -> Self {
        Self {
            list: VectorSync::new_sync(),
            len: 0,
            edition: Arc::default(),
        }
    }
}

impl History {
    pub const fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, index: usize) -> Option<&Iteration> {
        steps::count(1);
        self.list.get(index).filter(|_| index < self.len)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Iteration> {
        let iterations = self.list.iter().take(self.len);
        iterations.inspect(|_| steps::count(1))
    }

    pub fn push(&mut self, iteration: Iteration) {
        if self.len == self.list.len() {
            self.list.push_back_mut(iteration);
        } else {
            self.list.set_mut(self.len, iteration);
        }
        self.len += 1;
    }

    pub fn set(&mut self, index: usize, iteration: Iteration) {
        if index < self.len {
            self.list.set_mut(index, iteration);
            self.edition = Arc::default();
        }
    }

    /// Returns true if the shorter of the two is the beginning of the longer one, as far as that can be told without
    /// comparing their elements one by one.
    ///
    /// A pushed element is at the same address in all lists derived from the one that it was pushed to. So when
    /// nothing but pushing happened, and the last element that both have is the same one, all before it are.
    pub fn continues(&self, other: &Self) -> bool {
        let Some(last) = self.len.min(other.len).checked_sub(1) else {
            return true;
        };
        has_same(&self.list, &other.list, last) && Arc::ptr_eq(&self.edition, &other.edition)
    }

    /// Takes out what was kept in a slot, if it was made of the beginning of this list.
    pub fn take_kept<T: Any>(&self, slot: Slot) -> Option<Box<T>> {
        self.edition.take(slot, &self.list, self.len)
    }

    /// Keeps what was made of the first `len`.
    pub fn keep<T: Any + Send>(&self, slot: Slot, len: usize, made: Box<T>) {
        self.edition.put(slot, &self.list, len, made);
    }

    /// Returns true if nobody else has what is kept of it.
    pub fn is_last_keeper(&self) -> bool {
        Arc::strong_count(&self.edition) == 1 && !self.edition.is_empty()
    }

    /// Keeps the first `len`.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            self.edition = Arc::default();
        }
        self.len = self.len.min(len);
        if self.list.len() - self.len <= FEW {
            while self.list.len() > self.len && self.list.drop_last_mut() {
                steps::count(1);
            }
        }
    }

    /// Returns true if there is more in memory than can be seen.
    pub fn holds_more(&self) -> bool {
        self.list.len() > self.len
    }
}

impl PartialEq for History {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for History {}
