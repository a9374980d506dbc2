//! The version of the form, and how deep a document may be.

use crate::value::MAX_DEPTH;

/// The format that is written, and the newest that is read.
pub const VERSION: i64 = 1;

/// Levels of nesting that the values in a document may have: attributes can bring in values that
/// are a few levels deeper than [`MAX_DEPTH`].
pub const LEVELS: usize = MAX_DEPTH + 9;

/// Levels of nesting that a whole document may have: a map with other than string keys takes three
/// levels of JSON for one of its own, and twelve more lead from the top to the innermost values.
pub const NESTING: usize = 3 * LEVELS + 12;
