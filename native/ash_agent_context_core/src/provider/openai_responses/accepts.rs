//! Says what OpenAI Responses accepts.

use std::borrow::Cow;

use super::Room;
use crate::log::call::ToolCall;
use crate::provider::accepts::{Accepts, Rules};

impl Accepts for Room {
    fn takes_id(&self, id: &str, _is_own: bool) -> bool {
        (1..=64).contains(&id.chars().count())
    }

    /// An id may be used once in a conversation.
    fn id<'a>(&self, call: &'a ToolCall, is_own: bool) -> Cow<'a, str> {
        let aliases = &call.aliases;
        let fits = self.takes_id(&call.id, is_own) && !aliases.reused && !aliases.clash;
        Cow::Borrowed(if fits { &call.id } else { call.safe_id() })
    }

    fn history(&self) -> Rules {
        Rules {
            has_items: true,
            calls_anywhere: true,
            ..Rules::default()
        }
    }
}
