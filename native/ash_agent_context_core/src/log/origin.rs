//! The conversation that a fork was made of.

use crate::value::{Map, Size};

/// The conversation that a fork was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Its id.
    pub id: Box<str>,
    /// The number of its current iteration then.
    pub iteration: u64,
    /// Fields of a snapshot that this version does not know.
    pub(crate) extra: Option<Map>,
}

impl Origin {
    pub(crate) fn size(&self) -> Size {
        Size::new(4, self.id.len()).plus(self.extra.iter().map(Map::size).sum())
    }
}
