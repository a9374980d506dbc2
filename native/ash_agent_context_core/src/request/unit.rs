//! Items that go back as they were imported together, or not at all.

use crate::provider::options::Options;
use crate::request::item::Item;

/// An item and where it stands.
#[derive(Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub item: Item<'a>,
    /// The number of the iteration.
    pub iteration: u64,
    /// The 0-based position of the message in it.
    pub position: usize,
}

/// Items of which one has the elements of all: the first one.
#[derive(Default)]
pub(crate) struct Unit<'a>(Vec<Placed<'a>>);

impl<'a> Unit<'a> {
    /// Takes the next item, and gives the unit before it where it begins another one.
    pub fn push(&mut self, next: Placed<'a>, options: &Options<'_>) -> Option<Self> {
        let ended = match next.item.is_held(options) || self.0.is_empty() {
            true => None,
            false => Some(std::mem::take(self)),
        };
        self.0.push(next);
        ended
    }

    /// The first item, if all of them go back as they were imported.
    pub fn imported(&self, options: &Options<'_>) -> Option<(Placed<'a>, &'a str)> {
        let first = self.0.first()?;
        let elements = first
            .item
            .imported(options)
            .filter(|json| !json.is_empty())?;
        let is_whole = self
            .0
            .iter()
            .all(|placed| placed.item.imported(options).is_some());
        is_whole.then_some((*first, elements))
    }

    /// The items, and the elements of each that is sent as it was imported.
    pub fn resolve(self, options: &Options<'_>) -> Vec<(Item<'a>, Option<&'a str>)> {
        let is_imported = self.imported(options).is_some();
        let elements = |item: Item<'a>| item.elements(options).filter(|_| is_imported);
        let items = self.0.into_iter().map(|placed| placed.item);
        items.map(|item| (item, elements(item))).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> IntoIterator for Unit<'a> {
    type Item = Placed<'a>;
    type IntoIter = std::vec::IntoIter<Placed<'a>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
