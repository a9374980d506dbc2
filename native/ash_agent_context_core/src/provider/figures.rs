//! Under which keys a provider reports the tokens it counted.

use crate::log::bill::{Count, Term};

/// Holds what has a price of its own in a report: a number in an object, or in those objects of a list where a word
/// stands under a key.
pub(crate) struct Billed {
    /// The key of the object or list.
    pub under: &'static str,
    /// Which objects of a list.
    pub of: Option<(&'static str, &'static str)>,
    /// The number's keys.
    pub number: &'static [&'static str],
    /// Says what it counts.
    pub count: Count,
}

impl Billed {
    /// A number in an object.
    pub const fn in_object(
        under: &'static str,
        number: &'static [&'static str],
        count: Count,
    ) -> Self {
        Self {
            under,
            of: None,
            number,
            count,
        }
    }

    /// Numbers in a list.
    pub const fn in_list(
        under: &'static str,
        of: (&'static str, &'static str),
        number: &'static [&'static str],
        count: Count,
    ) -> Self {
        Self {
            under,
            of: Some(of),
            number,
            count,
        }
    }
}

/// The keys of a report; those that are not there are empty. A key in snake case is what some clients
/// make of one in camel case.
pub(crate) struct Figures {
    /// Objects that hold the report.
    pub around: &'static [&'static str],
    /// Of the request, without what the cache had or was given.
    pub input: &'static [&'static str],
    /// Of the request, all of it.
    pub whole_input: &'static [&'static str],
    /// Read from the cache and not in `input`.
    pub cache_read: &'static [&'static str],
    /// Written to the cache and not in `input`.
    pub cache_written: &'static [&'static str],
    /// Holds what the provider's own tools read, beside `whole_input`.
    pub tools: &'static [&'static str],
    /// Of the answer, all of it.
    pub output: &'static [&'static str],
    /// Of the answer, without thoughts.
    pub candidates: &'static [&'static str],
    /// Thoughts, beside `candidates`.
    pub thoughts: &'static [&'static str],
    /// Of both.
    pub total: &'static [&'static str],
    /// Of the request, what came from the cache.
    pub cached: &'static [&'static str],
    /// Of the request, what was written to the cache, where `input` or `whole_input` has it.
    pub written: &'static [&'static str],
    /// Of the answer, what the model thought.
    pub reasoning: &'static [&'static str],
    /// Objects with details of the request, such as `cached` and `written`.
    pub input_details: &'static [&'static str],
    /// Objects with details of the answer, such as `reasoning`.
    pub output_details: &'static [&'static str],
    /// Holds what has a price of its own.
    pub billed: &'static [Billed],
    /// Words on which prices depend.
    pub terms: &'static [(&'static str, Term)],
    /// Lists of parts that are billed apart, each with the keys of a report.
    pub parts: &'static [&'static str],
}

impl Figures {
    /// None at all.
    pub const NONE: Self = Self {
        around: &[],
        input: &[],
        whole_input: &[],
        cache_read: &[],
        cache_written: &[],
        tools: &[],
        output: &[],
        candidates: &[],
        thoughts: &[],
        total: &[],
        cached: &[],
        written: &[],
        reasoning: &[],
        input_details: &[],
        output_details: &[],
        billed: &[],
        terms: &[],
        parts: &[],
    };
}
