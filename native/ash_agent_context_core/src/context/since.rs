//! Values that are kept with the iteration since which they were used. One that did not change is kept once.

use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use crate::value::{Size, Value};
use crate::view::View;

#[derive(Debug, Clone)]
pub(crate) struct Since<T> {
    values: RedBlackTreeMapSync<u64, Arc<T>>,
    size: Size,
}

/// A value that is kept until it changes.
pub(crate) trait Noted {
    fn size(&self) -> Size;

    fn is_same(&self, other: &Self) -> bool;
}

impl Noted for Value {
    fn size(&self) -> Size {
        Self::size(self)
    }

    fn is_same(&self, other: &Self) -> bool {
        self == other
    }
}

impl Noted for Option<Arc<View>> {
    fn size(&self) -> Size {
        self.as_deref().map_or(Size::default(), View::noted_size)
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(own, other) || own.is_noted_as(other),
            _ => false,
        }
    }
}

impl<T> Default for Since<T> {
    fn default() -> Self {
        Self {
            values: RedBlackTreeMapSync::default(),
            size: Size::default(),
        }
    }
}

impl<T: Noted> Since<T> {
    /// Returns the value of an iteration, and the iteration since which it was used.
    pub fn of(&self, number: u64) -> Option<(u64, &T)> {
        let (since, value) = self.values.range(..=number).next_back()?;
        Some((*since, value))
    }

    /// Returns the value of an iteration, or the first one if that was noted later.
    pub fn of_or_first(&self, number: u64) -> Option<&T> {
        let own = self.of(number).map(|(_, value)| value);
        own.or_else(|| self.values().next())
    }

    /// Returns the iterations since which the values were used.
    pub fn starts(&self) -> impl Iterator<Item = u64> + '_ {
        self.values.keys().copied()
    }

    /// Returns the value that is noted with an iteration, where it differs from the one before.
    pub fn at(&self, number: u64) -> Option<&T> {
        self.values.get(&number).map(|value| &**value)
    }

    /// Returns the last iteration before one with which a value is noted.
    pub fn before(&self, number: u64) -> Option<u64> {
        let (number, _) = self.values.range(..number).next_back()?;
        Some(*number)
    }

    /// Returns true if a value is noted with an iteration after this one.
    pub fn goes_on(&self, number: u64) -> bool {
        let later = number.saturating_add(1)..;
        self.values.range(later).next().is_some()
    }

    /// Returns all values, each once.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.values.values().map(|value| &**value)
    }

    /// Notes the value of an iteration.
    pub fn note(&mut self, number: u64, value: T) {
        if !self.has(number, &value) {
            self.put(number, value);
        }
    }

    /// Returns true if an iteration has this value already.
    pub fn has(&self, number: u64, value: &T) -> bool {
        let known = self.of(number);
        known.is_some_and(|(_, known)| known.is_same(value))
    }

    /// Notes a value that holds for its own iteration alone.
    pub fn put(&mut self, number: u64, value: T) {
        let before = self.at(number).map_or(Size::default(), T::size);
        self.size = self.size.minus(before).plus(value.size());
        self.values.insert_mut(number, Arc::new(value));
    }

    /// Drops the values from an iteration on.
    pub fn cut(&mut self, from: u64) {
        while let Some((number, value)) = self.values.range(from..).next() {
            let number = *number;
            self.size = self.size.minus(value.size());
            self.values.remove_mut(&number);
        }
    }

    pub const fn size(&self) -> Size {
        self.size
    }

    /// Returns the first iteration whose note differs.
    pub fn differs_at(&self, other: &Self) -> Option<u64> {
        let (mut own, mut others) = (self.values.iter(), other.values.iter());
        loop {
            match (own.next(), others.next()) {
                (None, None) => return None,
                (Some((number, _)), None) | (None, Some((number, _))) => return Some(*number),
                (Some(a), Some(b)) if a.0 == b.0 && (Arc::ptr_eq(a.1, b.1) || a.1.is_same(b.1)) => {
                }
                (Some(a), Some(b)) => return Some(*a.0.min(b.0)),
            }
        }
    }
}
