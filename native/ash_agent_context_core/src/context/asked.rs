//! The views that requests were made from, as they were then.

use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use crate::value::Size;
use crate::view::View;

/// Views by the iterations since whose requests they were used; `None` shows the log as it is. One that
/// did not change is there once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    since: RedBlackTreeMapSync<u64, Option<Arc<View>>>,
    size: Size,
}

impl Asked {
    /// The view of an iteration's request, and the iteration since which it was used.
    pub fn of(&self, number: u64) -> Option<(u64, Option<&Arc<View>>)> {
        let (since, view) = self.since.range(..=number).next_back()?;
        Some((*since, view.as_ref()))
    }

    /// The view that is noted with an iteration, where it is another one than before.
    pub fn at(&self, number: u64) -> Option<Option<&View>> {
        Some(self.since.get(&number)?.as_deref())
    }

    /// Notes the view of an iteration's request.
    pub fn note(&mut self, number: u64, view: Option<Arc<View>>) {
        let known = self.of(number);
        if known.is_some_and(|(_, known)| is_same(known, view.as_ref())) {
            return;
        }
        if let Some(Some(before)) = self.since.get(&number) {
            self.size = self.size.minus(before.noted_size());
        }
        let size = view.as_deref().map_or(Size::default(), View::noted_size);
        self.size = self.size.plus(size);
        self.since.insert_mut(number, view);
    }

    /// Forgets the requests from an iteration on.
    pub fn cut(&mut self, from: u64) {
        let gone: Vec<u64> = self
            .since
            .range(from..)
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            if let Some(Some(view)) = self.since.get(&number) {
                self.size = self.size.minus(view.noted_size());
            }
            self.since.remove_mut(&number);
        }
    }

    pub const fn size(&self) -> Size {
        self.size
    }

    /// The first iteration whose notes are not the same as another one's.
    pub fn differs_at(&self, other: &Self) -> Option<u64> {
        let (mut own, mut others) = (self.since.iter(), other.since.iter());
        loop {
            match (own.next(), others.next()) {
                (None, None) => return None,
                (Some((number, _)), None) | (None, Some((number, _))) => return Some(*number),
                (Some(a), Some(b)) if a.0 == b.0 && is_same(a.1.as_ref(), b.1.as_ref()) => {}
                (Some(a), Some(b)) => return Some(*a.0.min(b.0)),
            }
        }
    }
}

fn is_same(a: Option<&Arc<View>>, b: Option<&Arc<View>>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a.is_noted_as(b),
        _ => false,
    }
}

impl PartialEq for Asked {
    fn eq(&self, other: &Self) -> bool {
        self.differs_at(other).is_none()
    }
}
