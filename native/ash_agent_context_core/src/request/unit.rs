//! Items that go back as they were imported together, or not at all.

use crate::provider::options::Options;
use crate::request::item::Item;

/// An item and its place.
#[derive(Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub item: Item<'a>,
    /// The number of the iteration.
    pub iteration: u64,
    /// The 0-based position of the message in it.
    pub position: usize,
}

/// Returns the elements of items that share them, if all of the items go back as they were imported.
pub(crate) fn imported_elements<'a>(unit: &[Item<'a>], options: &Options<'_>) -> Option<&'a str> {
    let is_imported = |item: &Item<'a>| item.imported_elements(options).is_some();
    let elements = unit.first()?.imported_elements(options)?;
    (!elements.is_empty() && unit.iter().all(is_imported)).then_some(elements)
}

/// Splits items into units, and returns with each item the elements with which it goes back as it was imported.
pub(crate) fn resolve<'a, 'i, 'o>(
    items: &'i [Item<'a>],
    options: &'i Options<'o>,
) -> impl Iterator<Item = (Item<'a>, Option<&'a str>)> + use<'a, 'i, 'o> {
    let units = items.chunk_by(|_, next| next.is_held(options));
    units.flat_map(move |unit| {
        let is_imported = imported_elements(unit, options).is_some();
        let elements = move |item: &Item<'a>| item.elements(options).filter(|_| is_imported);
        unit.iter().map(move |item| (*item, elements(item)))
    })
}
