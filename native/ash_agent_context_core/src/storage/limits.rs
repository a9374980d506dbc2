//! The version of the stored form, and the levels of nesting that a document may have.

use crate::value::MAX_DEPTH;

/// The version that is written of conversations in which no call ever waited.
pub const VERSION: i64 = 1;

/// The version of the others, and the newest that is read: whoever does not know late results would show them in another place.
pub const LATE_VERSION: i64 = 2;

/// Values in a document may have so many levels: attributes can bring in values that are a few levels deeper than
/// [`MAX_DEPTH`].
pub const LEVELS: usize = MAX_DEPTH + 9;

/// A whole document may have so many levels: a map with other than string keys takes three levels of JSON for one of its own,
/// and twelve more lead from the top to the innermost values.
pub const NESTING: usize = 3 * LEVELS + 12;
