//! Says what OpenAI Chat Completions accepts.

use super::Room;
use crate::provider::accepts::Accepts;

impl Accepts for Room {
    /// Older models and Azure take 40 characters; an id that came from OpenAI may have the 64 that
    /// newer ones take.
    fn takes_id(&self, id: &str, is_own: bool) -> bool {
        let most = if is_own { 64 } else { 40 };
        (1..=most).contains(&id.chars().count())
    }
}
