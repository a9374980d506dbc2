//! Pinning: messages, results and facts that stay in the view whatever hides the rest.

use std::sync::Arc;

use crate::context::Context;
use crate::error::Error;
use crate::value::time::Time;
use crate::view::pins::{Pin, Pins};
use crate::view::View;

impl Context {
    /// Returns the iteration and the slot of the newest call of an id.
    ///
    /// # Complexity
    /// O(n)
    #[must_use]
    pub fn place_of_call(&self, id: &str) -> Option<(u64, usize)> {
        self.log.iterations_back().find_map(|iteration| {
            let mut calls = iteration.calls();
            let slot = calls.position(|(call, _)| &*call.id == id)?;
            Some((iteration.number, slot))
        })
    }

    /// Pins something, so that it stays in the view.
    ///
    /// # Errors
    /// [`Error::UnknownPin`] for what the conversation does not have, [`Error::TooManyPins`].
    ///
    /// # Complexity
    /// O(the log) if iterations are hidden
    pub fn pin(&self, pin: Pin, at: Time) -> Result<Self, Error> {
        if !self.has(&pin) {
            return Err(Error::UnknownPin { pin: pin.name() });
        }
        let pins = Pins::new(self.pins().cloned().chain([pin]))?;
        Ok(self.with_pins(pins, at))
    }

    /// Removes a pin.
    ///
    /// # Complexity
    /// O(the log) if iterations are hidden
    #[must_use]
    pub fn unpin(&self, pin: &Pin, at: Time) -> Self {
        let left = self.pins().filter(|one| *one != pin).cloned();
        let pins = Pins::new(left).unwrap_or_default();
        self.with_pins(pins, at)
    }

    /// Returns all pins.
    pub fn pins(&self) -> impl Iterator<Item = &Pin> {
        let pins = self.view().and_then(View::pins);
        pins.into_iter().flat_map(Pins::iter)
    }

    pub(crate) fn with_pins(&self, pins: Pins, at: Time) -> Self {
        self.changed(at, |next| {
            next.change_view(|view| {
                view.pins = (!pins.is_empty()).then(|| Arc::new(pins));
                view.resize();
            });
            next.note_anew();
        })
    }

    fn has(&self, pin: &Pin) -> bool {
        let find = |number: &u64| self.log.get_numbered(*number);
        match pin {
            Pin::Iteration(number) => find(number).is_some(),
            Pin::Message(number, at) => find(number).is_some_and(|one| *at < one.count_messages()),
            Pin::Result(number, slot) => find(number).is_some_and(|one| *slot < one.count_calls()),
            Pin::Fact(words) => !words.trim().is_empty(),
        }
    }
}
