//! Says what Anthropic accepts.

use super::Room;
use crate::provider::accepts::{Accepts, Rules};
use crate::value::letters::is_plain;

impl Accepts for Room {
    fn takes_id(&self, id: &str, _is_own: bool) -> bool {
        !id.is_empty() && id.bytes().all(is_plain)
    }

    fn history(&self) -> Rules {
        Rules {
            merges_neighbours: true,
            closes_uses: true,
            calls_anywhere: true,
            ..Rules::default()
        }
    }
}
