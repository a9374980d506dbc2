//! The keys under which a provider reports the tokens it counted.

use crate::prices::bill::{Count, Term};

/// A figure of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FigureKind {
    /// The object around the report.
    Around,
    /// An object with details of the request, such as `Cached` and `Written`.
    InputDetails,
    /// An object with details of the answer, such as `Reasoning`.
    OutputDetails,
    /// Read from the cache, and not counted in `Input`.
    CacheRead,
    /// Written to the cache, and not counted in `Input`.
    CacheWritten,
    /// Tokens of the request, without those read from the cache or written to it.
    Input,
    /// All tokens of the request.
    WholeInput,
    /// Tokens that the provider's own tools read, beside `WholeInput`.
    Tools,
    /// Tokens of thoughts, beside `Candidates`.
    Thoughts,
    /// All tokens of the answer.
    Output,
    /// Tokens of the answer without thoughts.
    Candidates,
    /// Tokens of request and answer together.
    Total,
    /// Tokens of the request that came from the cache.
    Cached,
    /// Tokens of the request that were written to the cache, counted in `Input` or `WholeInput`.
    Written,
    /// Tokens of the answer that are reasoning.
    Reasoning,
}

impl FigureKind {
    pub const COUNT: usize = Self::Reasoning as usize + 1;

    /// Returns whether it is an object and not a number.
    pub const fn is_object(self) -> bool {
        matches!(
            self,
            Self::Around | Self::InputDetails | Self::OutputDetails
        )
    }
}

/// A count with a price of its own in a report: a number in an object, or in those objects of a list that have a certain word
/// under a key.
pub(crate) struct Billed {
    /// The path to the object or list.
    pub under: &'static [&'static str],
    /// The key and the word of the objects that count, in a list.
    pub of: Option<(&'static str, &'static str)>,
    /// The path to the number.
    pub number: &'static [&'static str],
    pub count: Count,
}

/// The keys of a provider's report. Some clients turn camel case into snake case, so those keys are there, too.
pub(crate) struct Figures {
    /// The keys of each figure.
    pub keys: &'static [(FigureKind, &'static [&'static str])],
    pub billed: &'static [Billed],
    /// Words on which prices depend.
    pub terms: &'static [(&'static str, Term)],
    /// Lists of parts that are billed apart; each part has the keys of a report.
    pub parts: &'static [&'static str],
}

impl Figures {
    pub const NONE: Self = Self {
        keys: &[],
        billed: &[],
        terms: &[],
        parts: &[],
    };
}
