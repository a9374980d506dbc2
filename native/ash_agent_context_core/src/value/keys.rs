//! Maps and sets by keys that are hashes already: to hash them again with care takes longer than all else that is done with them.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};

pub(crate) type KeyMap<V> = HashMap<u64, V, Seed>;
pub(crate) type KeySet = HashSet<u64, Seed>;

/// A random number, so that nobody can choose texts whose keys share their places.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seed(u64);

impl Default for Seed {
    fn default() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }
}

impl BuildHasher for Seed {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for Seed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, key: u64) {
        // An odd number without a pattern: 2^64 divided by the golden ratio.
        let wide = u128::from(self.0 ^ key) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (wide as u64) ^ ((wide >> 64) as u64);
    }
}

/// A map that goes back to what it was at a time.
#[derive(Debug)]
pub(crate) struct NotedMap<V> {
    map: KeyMap<V>,
    /// What was there before each change since then; `None` before it.
    before: Option<Vec<(u64, Option<V>)>>,
}

impl<V> Default for NotedMap<V> {
    fn default() -> Self {
        Self {
            map: KeyMap::default(),
            before: None,
        }
    }
}

impl<V: Clone> NotedMap<V> {
    pub fn get(&self, key: u64) -> Option<&V> {
        self.map.get(&key)
    }

    pub fn has(&self, key: u64) -> bool {
        self.map.contains_key(&key)
    }

    /// Returns the value of a key to change it; a new one if there is none.
    pub fn change(&mut self, key: u64, new: impl FnOnce() -> V) -> &mut V {
        match self.map.entry(key) {
            Entry::Occupied(entry) => {
                let value = entry.into_mut();
                if let Some(before) = &mut self.before {
                    before.push((key, Some(value.clone())));
                }
                value
            }
            Entry::Vacant(entry) => {
                if let Some(before) = &mut self.before {
                    before.push((key, None));
                }
                entry.insert(new())
            }
        }
    }
}

/// What can take back its changes.
pub(crate) trait Noted {
    /// Begins to note them.
    fn note(&mut self);

    /// Takes back all that were noted.
    fn go_back(&mut self);
}

impl<V> Noted for NotedMap<V> {
    fn note(&mut self) {
        self.before = Some(Vec::new());
    }

    fn go_back(&mut self) {
        for (key, value) in self.before.take().into_iter().flatten().rev() {
            match value {
                Some(value) => self.map.insert(key, value),
                None => self.map.remove(&key),
            };
        }
    }
}
