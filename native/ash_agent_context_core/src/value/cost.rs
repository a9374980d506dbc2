//! Estimates what a call costs before it is made: whoever makes it decides where it may run.

use crate::value::Size;

/// The most work that a call may cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// The data that it walks and copies.
    pub work: Size,
    /// Terms of a context that it hands out; long texts are not copied.
    pub handed_out: usize,
}

impl Cost {
    /// The cost of work that must not block a scheduler, whatever its input: making tables, compiling patterns.
    pub const LONG: Self = Self::steps(usize::MAX);

    /// Returns the cost of so many steps of constant time.
    #[must_use]
    pub const fn steps(steps: usize) -> Self {
        Self {
            work: Size::new(steps, 0),
            handed_out: 0,
        }
    }

    /// Returns the cost of handing out data of this size.
    #[must_use]
    pub const fn handing_out(size: Size) -> Self {
        Self {
            work: Size::new(0, 0),
            handed_out: size.terms,
        }
    }

    /// Returns the cost of both, one after the other.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            work: self.work.plus(other.work),
            handed_out: self.handed_out.saturating_add(other.handed_out),
        }
    }

    /// Returns the cost of doing it so many times.
    #[must_use]
    pub const fn times(self, times: usize) -> Self {
        Self {
            work: Size::new(
                self.work.terms.saturating_mul(times),
                self.work.bytes.saturating_mul(times),
            ),
            handed_out: self.handed_out.saturating_mul(times),
        }
    }
}

impl From<Size> for Cost {
    /// Counts the data to walk and copy, with nothing handed out.
    fn from(work: Size) -> Self {
        Self {
            work,
            handed_out: 0,
        }
    }
}
