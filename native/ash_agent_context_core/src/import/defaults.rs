//! The id and the time of attributes and histories that have none.

use crate::value::time::Time;

/// Holds what attributes and histories may leave out.
#[derive(Debug, Clone, Copy)]
pub struct Defaults<'a> {
    /// The id of a conversation that brings none.
    pub id: &'a str,
    /// The time of what has none.
    pub at: Time,
}
