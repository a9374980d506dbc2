//! The messages of an iteration.

use std::sync::Arc;

use rpds::VectorSync;

use crate::log::exchange::Entry;

/// Up to here one block of memory is faster in everything: an append copies a few pointers instead
/// of making three nodes, and reading a conversation misses the processor's cache half as often.
const FEW: usize = 16;

/// A list that shares what did not change with the lists it came from.
#[derive(Debug, Clone)]
pub(crate) enum Entries {
    /// What an iteration usually has: a question, an answer, perhaps some more.
    Few(Arc<[Entry]>),
    /// What nobody keeps a model from making.
    Many(VectorSync<Entry>),
}

impl Entries {
    pub fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many(many) => many.len(),
        }
    }

    pub fn get(&self, at: usize) -> Option<&Entry> {
        match self {
            Self::Few(few) => few.get(at),
            Self::Many(many) => many.get(at),
        }
    }

    pub fn last(&self) -> Option<&Entry> {
        match self {
            Self::Few(few) => few.last(),
            Self::Many(many) => many.last(),
        }
    }

    pub fn iter(&self) -> Iter<'_> {
        match self {
            Self::Few(few) => Iter::Few(few.iter()),
            Self::Many(many) => Iter::Many(many.iter()),
        }
    }

    /// Appends, in O(1) up to [`FEW`] and in O(log n) beyond.
    pub fn push(&mut self, entry: Entry) {
        match self {
            Self::Few(few) if few.len() < FEW => {
                *few = few.iter().cloned().chain([entry]).collect();
            }
            Self::Few(few) => {
                let mut many: VectorSync<Entry> = few.iter().cloned().collect();
                many.push_back_mut(entry);
                *self = Self::Many(many);
            }
            Self::Many(many) => many.push_back_mut(entry),
        }
    }

    /// Puts another entry in the place of one.
    pub fn set(&mut self, index: usize, entry: Entry) {
        match self {
            Self::Few(few) => {
                if let Some(place) = Arc::make_mut(few).get_mut(index) {
                    *place = entry;
                }
            }
            Self::Many(many) => {
                many.set_mut(index, entry);
            }
        }
    }
}

impl Default for Entries {
    fn default() -> Self {
        Self::Few(Arc::default())
    }
}

impl PartialEq for Entries {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Entries {}

/// The entries in their order.
pub(crate) enum Iter<'a> {
    Few(std::slice::Iter<'a, Entry>),
    Many(rpds::vector::Iter<'a, Entry, archery::ArcTK>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a Entry;

    fn next(&mut self) -> Option<&'a Entry> {
        match self {
            Self::Few(few) => few.next(),
            Self::Many(many) => many.next(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self {
            Self::Few(few) => few.size_hint(),
            Self::Many(many) => many.size_hint(),
        }
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Self::Few(few) => few.next_back(),
            Self::Many(many) => many.next_back(),
        }
    }
}

impl ExactSizeIterator for Iter<'_> {}
