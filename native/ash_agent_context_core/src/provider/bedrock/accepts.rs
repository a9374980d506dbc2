//! Says what Bedrock accepts.

use super::Room;
use crate::provider::accepts::{Accepts, Rules};
use crate::value::letters::is_dotted;

impl Accepts for Room {
    fn takes_id(&self, id: &str, _is_own: bool) -> bool {
        (1..=64).contains(&id.chars().count()) && id.bytes().all(is_dotted)
    }

    fn history(&self) -> Rules {
        Rules {
            merges_neighbours: true,
            remakes_merged: true,
            lists_only: true,
            results_stand_together: true,
            calls_anywhere: true,
            ..Rules::default()
        }
    }
}
