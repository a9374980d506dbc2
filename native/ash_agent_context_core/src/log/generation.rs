//! Deciding which of many contexts frees the memory that they share.
//!
//! Contexts of one conversation share a token until they differ by a generation. A context with our token keeps alive all that
//! we do, but for a generation, so that only the last holder of a token has much to free.

use std::sync::Arc;

/// Terms that a destructor may free on the spot.
pub(super) const LIGHT: usize = 2_000;

/// The token that a context shares, and the weight at which it takes another one.
#[derive(Debug, Clone)]
pub(crate) struct Generation {
    token: Option<Arc<()>>,
    end: usize,
}

impl Default for Generation {
    fn default() -> Self {
        Self::beginning_at(0)
    }
}

impl Generation {
    pub fn beginning_at(weight: usize) -> Self {
        Self {
            token: Some(Arc::new(())),
            end: weight.saturating_add(LIGHT),
        }
    }

    /// Begins another generation when a context of this weight has left the present one.
    pub fn grown(&mut self, weight: usize) {
        // A much smaller context does not keep alive what the older ones do, either.
        if weight > self.end || weight.saturating_add(2 * LIGHT) < self.end {
            *self = Self::beginning_at(weight);
        }
    }

    /// Returns true if nobody else keeps alive what this context does.
    pub fn is_last(&self) -> bool {
        let is_last = |one: &Arc<()>| Arc::strong_count(one) == 1;
        self.token.as_ref().is_some_and(is_last)
    }

    /// Lets go of the token. Returns true if nobody else has it.
    pub fn let_go(&mut self) -> bool {
        self.token.take().and_then(Arc::into_inner).is_some()
    }
}
