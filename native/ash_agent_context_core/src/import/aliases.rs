//! Aliases of calls in a history of which some ids go back as they came.

use std::collections::HashSet;

use crate::log::call::ToolCall;
use crate::log::ids::Ids;
use crate::log::provider::Provider;
use crate::provider::accepts::sent_id;

/// Returns whether a call gets an alias that a later call has as its id, in a message that is kept as it was: an alias only
/// avoids ids before it. Each message has its calls, and `true` if it is kept.
pub fn meet_kept_ids(provider: Provider, mut messages: Vec<(&mut [ToolCall], bool)>) -> bool {
    let may_alias = |(calls, is_kept): &(&mut [ToolCall], bool)| !is_kept && !calls.is_empty();
    if !messages.iter().any(may_alias) {
        return false;
    }
    let (mut ids, mut aliases) = (Ids::default(), HashSet::new());
    for (calls, is_kept) in &mut messages {
        for call in calls.iter_mut() {
            call.aliases = ids.join(&call.id);
            if *is_kept && aliases.contains(&*call.id) {
                return true;
            }
            let sent = sent_id(provider, call);
            if !*is_kept && *sent != *call.id {
                aliases.insert(sent.into_owned());
            }
        }
    }
    false
}
