//! Says what Mistral accepts.

use std::borrow::Cow;

use super::Room;
use crate::log::call::ToolCall;
use crate::provider::accepts::{Accepts, Rules, SystemPlace};

impl Accepts for Room {
    /// Mistral takes ids of exactly nine letters and digits and refuses all others: "Tool call id was
    /// call_1 but must be a-z, A-Z, 0-9, with a length of 9".
    fn takes_id(&self, id: &str, _is_own: bool) -> bool {
        id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
    }

    /// An id that Mistral refuses is sent as a letter and the call's number in the conversation, in
    /// eight digits: nobody else's ids fit nine letters, so those that are safe elsewhere are of no
    /// use, and a digest of nine letters could meet another one. The number is the call's from the
    /// moment it joins, so that a request's bytes stay as they are; the letter is another than `a`
    /// only where a model made up an id of this very form. Where an id itself looks like the short
    /// form of an earlier call, it is sent in its own short form as well.
    fn id<'a>(&self, call: &'a ToolCall, is_own: bool) -> Cow<'a, str> {
        let aliases = &call.aliases;
        if self.takes_id(&call.id, is_own) && !aliases.short.clash && !aliases.clash {
            Cow::Borrowed(&call.id)
        } else {
            Cow::Owned(aliases.short.text())
        }
    }

    fn history(&self) -> Rules {
        Rules {
            system: SystemPlace::AfterUser,
            ..Rules::default()
        }
    }
}
