//! A cache of derived values, such as encodings and counts of tokens, beside the data they are made of.

use std::sync::OnceLock;

/// A list keeps so many values. For more kinds (a new model name every turn) they are made anew each time instead of growing
/// memory without bound.
const LIMIT: usize = 12;

/// An append-only list of values by key. Nobody waits for a value that another thread makes: both
/// make it and one is kept.
#[derive(Debug)]
pub(crate) struct Memo<T> {
    first: OnceLock<Box<MemoLink<T>>>,
}

#[derive(Debug)]
struct MemoLink<T> {
    key: u64,
    value: T,
    next: OnceLock<Box<MemoLink<T>>>,
}

impl<T> Memo<T> {
    pub fn get(&self, key: u64) -> Option<&T> {
        self.iter()
            .find_map(|(known, value)| (known == key).then_some(value))
    }

    /// Returns all values, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        std::iter::successors(self.first.get(), |link| link.next.get())
            .map(|link| (link.key, &link.value))
    }

    /// Returns the value kept under this key, made by `make` when there is none yet. `Err` is a value that found no room.
    pub fn get_or_make(&self, key: u64, make: impl Fn() -> T) -> Result<&T, T> {
        let mut made = None;
        let mut slot = &self.first;
        for _ in 0..LIMIT {
            if slot.get().is_none() {
                let link = MemoLink {
                    key,
                    value: made.take().unwrap_or_else(&make),
                    next: OnceLock::new(),
                };
                made = slot.set(Box::new(link)).err().map(|lost| lost.value);
            }
            let Some(link) = slot.get() else { break };
            if link.key == key {
                return Ok(&link.value);
            }
            slot = &link.next;
        }
        Err(made.unwrap_or_else(make))
    }
}

/// What is derived is equal where its data are.
impl<T> PartialEq for Memo<T> {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl<T> Eq for Memo<T> {}

impl<T: Copy> Memo<T> {
    /// Returns the value under this key, kept or made.
    pub fn value(&self, key: u64, make: impl Fn() -> T) -> T {
        self.get_or_make(key, make)
            .copied()
            .unwrap_or_else(|made| made)
    }
}

impl<T> Default for Memo<T> {
    fn default() -> Self {
        Self {
            first: OnceLock::new(),
        }
    }
}

impl<T> Clone for Memo<T> {
    /// Returns an empty memo: a changed copy needs values of its own.
    fn clone(&self) -> Self {
        Self::default()
    }
}
