//! Says what it accepts.

use super::Room;
use crate::provider::accepts::Accepts;
use crate::value::letters::is_plain;

impl Accepts for Room {
    fn takes_id(&self, id: &str, _is_own: bool) -> bool {
        !id.is_empty() && id.bytes().all(is_plain)
    }
}
