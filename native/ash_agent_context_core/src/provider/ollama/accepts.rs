//! Says what Ollama accepts.

use super::Room;
use crate::provider::accepts::{Accepts, Rules, SystemPlace};
use crate::value::letters::is_blank;

impl Accepts for Room {
    fn takes_id(&self, _id: &str, _is_own: bool) -> bool {
        true
    }

    fn takes_name(&self, name: &str) -> bool {
        !is_blank(name)
    }

    fn history(&self) -> Rules {
        Rules {
            system: SystemPlace::First,
            ..Rules::default()
        }
    }
}
