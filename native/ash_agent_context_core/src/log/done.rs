//! The completed iterations.

use rpds::VectorSync;

use crate::log::iteration::Iteration;

/// Iterations that a cut frees one by one; of more than that it only looks away.
const FEW: usize = 32;

/// A list that shares what did not change with the lists it came from, and can be cut in O(log n).
///
/// The vector knows no cut but dropping its last element. So what is cut off may stay in it, unseen, until
/// something else is written there; it is shared with the conversation it was cut from, which usually lives on.
#[derive(Debug, Clone)]
pub(crate) struct Done {
    list: VectorSync<Iteration>,
    len: usize,
}

impl Default for Done {
    fn default() -> Self {
        Self {
            list: VectorSync::new_sync(),
            len: 0,
        }
    }
}

impl Done {
    pub const fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, index: usize) -> Option<&Iteration> {
        self.list.get(index).filter(|_| index < self.len)
    }

    pub fn first(&self) -> Option<&Iteration> {
        self.get(0)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Iteration> {
        self.list.iter().take(self.len)
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
        }
    }

    /// Keeps the first so many.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        if self.list.len() - self.len <= FEW {
            while self.list.len() > self.len && self.list.drop_last_mut() {}
        }
    }

    /// Whether there is more in memory than is seen.
    pub fn hides(&self) -> bool {
        self.list.len() > self.len
    }
}

impl PartialEq for Done {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for Done {}
