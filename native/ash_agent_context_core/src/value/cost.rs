//! Estimates what a call costs before it is made: whoever makes it decides where it may run.

use crate::value::Size;

/// Holds what a call does, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Holds what it walks and copies.
    pub work: Size,
    /// Terms that it hands out of what a context holds; long texts are pointed to.
    pub handed_out: usize,
}

impl Cost {
    /// So much that it must not hold anyone up: tables to make, patterns to compile.
    pub const LONG: Self = Self::steps(usize::MAX);

    /// Steps of constant time.
    #[must_use]
    pub const fn steps(steps: usize) -> Self {
        Self {
            work: Size::new(steps, 0),
            handed_out: 0,
        }
    }

    /// Terms that are handed out.
    #[must_use]
    pub const fn handing_out(size: Size) -> Self {
        Self {
            work: Size::new(0, 0),
            handed_out: size.terms,
        }
    }

    /// Both one after the other.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            work: self.work.plus(other.work),
            handed_out: self.handed_out.saturating_add(other.handed_out),
        }
    }

    /// The same so many times.
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
    /// Returns what is walked and copied.
    fn from(work: Size) -> Self {
        Self {
            work,
            handed_out: 0,
        }
    }
}
