//! The messages of an iteration, and the slots of an exchange.

use std::sync::Arc;

use rpds::VectorSync;

/// Up to here one block of memory is faster in everything: an append copies a few pointers instead
/// of making three nodes, and reading a conversation misses the processor's cache half as often.
const FEW: usize = 16;

/// A list that shares what did not change with the lists it came from.
#[derive(Debug, Clone, Default)]
pub(crate) enum Entries<T> {
    /// An empty list takes no memory.
    #[default]
    None,
    /// A question, an answer, perhaps some more: most iterations are so.
    Few(Arc<[T]>),
    /// Nobody keeps a model from making many.
    Many(VectorSync<T>),
}

impl<T: Clone> Entries<T> {
    pub fn of(one: T, count: usize) -> Self {
        let all = std::iter::repeat_n(one, count);
        match count {
            0 => Self::None,
            1..=FEW => Self::Few(all.collect()),
            _ => Self::Many(all.collect()),
        }
    }

    fn list(&self) -> Result<&[T], &VectorSync<T>> {
        match self {
            Self::None => Ok(&[]),
            Self::Few(few) => Ok(few),
            Self::Many(many) => Err(many),
        }
    }

    pub fn len(&self) -> usize {
        self.list().map_or_else(VectorSync::len, <[T]>::len)
    }

    pub fn get(&self, at: usize) -> Option<&T> {
        self.list()
            .map_or_else(|many| many.get(at), |few| few.get(at))
    }

    pub fn last(&self) -> Option<&T> {
        self.list().map_or_else(VectorSync::last, <[T]>::last)
    }

    pub fn iter(&self) -> Iter<'_, T> {
        match self.list() {
            Ok(few) => Iter::Few(few.iter()),
            Err(many) => Iter::Many(many.iter()),
        }
    }

    /// Appends, in O(1) up to [`FEW`] and in O(log n) beyond.
    pub fn push(&mut self, entry: T) {
        match self {
            Self::None => *self = Self::Few(Arc::new([entry])),
            Self::Few(few) if few.len() < FEW => {
                *few = few.iter().cloned().chain([entry]).collect();
            }
            Self::Few(few) => {
                let mut many: VectorSync<T> = few.iter().cloned().collect();
                many.push_back_mut(entry);
                *self = Self::Many(many);
            }
            Self::Many(many) => many.push_back_mut(entry),
        }
    }

    pub fn set(&mut self, index: usize, entry: T) {
        match self {
            Self::None => {}
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

impl<T: Clone + PartialEq> PartialEq for Entries<T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Clone + Eq> Eq for Entries<T> {}

pub(crate) enum Iter<'a, T> {
    Few(std::slice::Iter<'a, T>),
    Many(rpds::vector::Iter<'a, T, archery::ArcTK>),
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
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

impl<T> DoubleEndedIterator for Iter<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Self::Few(few) => few.next_back(),
            Self::Many(many) => many.next_back(),
        }
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}
