//! The id and the time for attributes and histories without them.

use crate::value::time::Time;

/// The values for attributes and histories that leave them out.
#[derive(Debug, Clone, Copy)]
pub struct Defaults<'a> {
    /// The id of a conversation without one.
    pub id: &'a str,
    /// The time of messages without one.
    pub at: Time,
}
