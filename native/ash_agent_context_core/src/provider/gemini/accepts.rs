//! Says what Gemini accepts.

use super::Room;
use crate::provider::accepts::{Accepts, Rules};
use crate::value::letters::is_dotted;

impl Accepts for Room {
    fn takes_id(&self, _id: &str, _is_own: bool) -> bool {
        true
    }

    fn takes_name(&self, name: &str) -> bool {
        let first = name.bytes().next();
        first.is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
            && name.len() <= 128
            && name.bytes().all(is_dotted)
    }

    fn history(&self) -> Rules {
        Rules {
            merges_neighbours: true,
            lists_only: true,
            results_stand_alone: true,
            results_stand_together: true,
            wraps_results: true,
            calls_anywhere: true,
            ..Rules::default()
        }
    }
}
