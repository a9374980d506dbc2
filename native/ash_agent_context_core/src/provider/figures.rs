//! Under which keys a provider reports the tokens it counted.

use crate::prices::bill::{Count, Term};

/// The figures of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FigureKind {
    /// An object that holds the report.
    Around,
    /// An object with details of the request, such as `Cached` and `Written`.
    InputDetails,
    /// An object with details of the answer, such as `Reasoning`.
    OutputDetails,
    /// Read from the cache and not in `Input`.
    CacheRead,
    /// Written to the cache and not in `Input`.
    CacheWritten,
    /// Of the request, without what the cache had or was given.
    Input,
    /// Of the request, all of it.
    WholeInput,
    /// What the provider's own tools read, beside `WholeInput`.
    Tools,
    /// Thoughts, beside `Candidates`.
    Thoughts,
    /// Of the answer, all of it.
    Output,
    /// Of the answer, without thoughts.
    Candidates,
    /// Of both.
    Total,
    /// Of the request, what came from the cache.
    Cached,
    /// Of the request, what was written to the cache, where `Input` or `WholeInput` has it.
    Written,
    /// Of the answer, what the model thought.
    Reasoning,
}

impl FigureKind {
    /// How many there are.
    pub const COUNT: usize = Self::Reasoning as usize + 1;

    /// Returns whether it is an object and not a number.
    pub const fn is_object(self) -> bool {
        matches!(
            self,
            Self::Around | Self::InputDetails | Self::OutputDetails
        )
    }
}

/// What has a price of its own in a report: a number in an object, or in those objects of a list where a word
/// stands under a key.
pub(crate) struct Billed {
    /// The keys of the object or list.
    pub under: &'static [&'static str],
    /// Which objects of a list.
    pub of: Option<(&'static str, &'static str)>,
    /// The number's keys.
    pub number: &'static [&'static str],
    /// What it counts.
    pub count: Count,
}

/// The keys of a report. A key in snake case is what some clients make of one in camel case.
pub(crate) struct Figures {
    /// The keys of each figure that there is.
    pub keys: &'static [(FigureKind, &'static [&'static str])],
    pub billed: &'static [Billed],
    /// Words on which prices depend.
    pub terms: &'static [(&'static str, Term)],
    /// Lists of parts that are billed apart, each with the keys of a report.
    pub parts: &'static [&'static str],
}

impl Figures {
    /// None at all.
    pub const NONE: Self = Self {
        keys: &[],
        billed: &[],
        terms: &[],
        parts: &[],
    };
}
