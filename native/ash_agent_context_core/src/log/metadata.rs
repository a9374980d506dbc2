//! Metadata: what the application keeps beside a conversation or an iteration.

use rpds::RedBlackTreeMapSync;

use crate::value::{Map, Size, Value};

/// A map that shares what did not change with the maps it came from.
#[derive(Debug, Clone)]
pub struct Metadata {
    /// Each value with its size, which is counted once.
    entries: RedBlackTreeMapSync<Value, (Value, Size)>,
    size: Size,
}

impl Metadata {
    /// Returns the metadata with one more entry, or with another value for one of them.
    ///
    /// # Complexity
    /// O(log n)
    #[must_use]
    pub fn put(&self, key: Value, value: Value) -> Self {
        let mut next = self.clone();
        next.put_mut(key, value);
        next
    }

    fn put_mut(&mut self, key: Value, value: Value) {
        let size = key.size().plus(value.size());
        let old = self.entries.get(&key).map(|(_, size)| *size);
        self.size = self.size.plus(size).minus(old.unwrap_or_default());
        self.entries.insert_mut(key, (value, size));
    }

    /// Returns the value of a key.
    ///
    /// # Complexity
    /// O(log n)
    #[must_use]
    pub fn get(&self, key: &Value) -> Option<&Value> {
        self.entries.get(key).map(|(value, _)| value)
    }

    /// Returns the entries in the order of their keys.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Value, &Value)> {
        self.entries.iter().map(|(key, (value, _))| (key, value))
    }

    /// Returns how much there is to walk and to copy.
    #[must_use]
    pub const fn size(&self) -> Size {
        self.size
    }
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        self.iter().len() == other.iter().len() && self.iter().eq(other.iter())
    }
}

impl Eq for Metadata {}

impl Default for Metadata {
    fn default() -> Self {
        Self {
            entries: RedBlackTreeMapSync::new_sync(),
            size: Size::new(1, 0),
        }
    }
}

impl From<Map> for Metadata {
    fn from(map: Map) -> Self {
        let mut metadata = Self::default();
        for (key, value) in map.into_entries() {
            metadata.put_mut(key, value);
        }
        metadata
    }
}
