//! Maps and sets by keys that are hashes already: to hash them again with care takes longer than all else that is done with them.

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
