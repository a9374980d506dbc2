//! Says what a provider accepts: ids, names, and the order of a history.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::log::call::ToolCall;
use crate::value::letters::is_plain;

/// Says what a provider accepts.
pub(crate) trait Accepts: Sync {
    /// Returns whether it takes the id of a call, as far as one can see from the id alone; `is_own` when the
    /// call came from it.
    fn takes_id(&self, id: &str, is_own: bool) -> bool;

    /// Returns whether it takes the name of a tool.
    fn takes_name(&self, name: &str) -> bool {
        (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
    }

    /// The id that is sent for a call.
    fn id<'a>(&self, call: &'a ToolCall, is_own: bool) -> Cow<'a, str> {
        let fits = self.takes_id(&call.id, is_own) && !call.aliases.clash;
        Cow::Borrowed(if fits { &call.id } else { call.safe_id() })
    }

    /// The name that is sent for a tool: its own, or one that is made of it, the same for the same name
    /// and another for another.
    fn name<'a>(&self, name: &'a str) -> Cow<'a, str> {
        if self.takes_name(name) {
            Cow::Borrowed(name)
        } else {
            Cow::Owned(plain_name(name))
        }
    }

    /// The rules for the order of a history.
    fn history(&self) -> Rules {
        Rules::default()
    }
}

/// Holds what a provider takes, or is known to take, of a history that was made elsewhere. Messages that
/// break the rules are read, and follow the rules when they are sent again.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rules {
    /// Neighbours of one role are one turn.
    pub merges_neighbours: bool,
    /// Messages that were merged do not go back as they came.
    pub remakes_merged: bool,
    /// A text has no other form than a list with it.
    pub lists_only: bool,
    /// Where a system message may stand.
    pub system: SystemPlace,
    /// Results and other parts were never seen in one message.
    pub results_stand_alone: bool,
    /// All results of a message stand in one element.
    pub results_stand_together: bool,
    /// A result is an object, which is never empty.
    pub wraps_results: bool,
    /// Calls stand among what the model says. Elsewhere they have a list of their own.
    pub calls_anywhere: bool,
    /// The use of a tool that the provider runs itself waits for its result only while nothing but results of
    /// calls follows it.
    pub closes_uses: bool,
    /// The list has items and not messages: an id is used once, and what the model says between a call
    /// and its result does not part them.
    pub has_items: bool,
}

/// Where a system message may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SystemPlace {
    /// Everywhere.
    #[default]
    Anywhere,
    /// Before all others.
    First,
    /// Not directly after the model, nor at the end.
    AfterUser,
}

fn plain_name(name: &str) -> String {
    let digest = Sha256::digest(name.as_bytes());
    let digest: String = digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let stem: String = name
        .chars()
        .take(32)
        .map(|letter| match u8::try_from(letter) {
            Ok(byte) if is_plain(byte) => letter,
            _ => '_',
        })
        .collect();
    format!("tool_{stem}_{digest}")
}
