//! Ids and names as a provider takes them.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::log::call::ToolCall;
use crate::log::provider::Provider;
use crate::value::letters::{hex, plain_stem};

/// The id that is sent for a call.
///
/// Nobody else's ids fit the short form, nine letters and digits, so those that are safe elsewhere are of no use there, and a
/// digest of nine letters could meet another one. The number in it is the call's from the moment it joins, so that a request's
/// bytes stay as they are; the letter is another than `a` only where a model made up an id of this very form. Where an id itself
/// looks like the short form of an earlier call, it is sent in its own short form as well.
pub(crate) fn sent_id(provider: Provider, call: &ToolCall) -> Cow<'_, str> {
    let (facts, aliases) = (provider.facts(), &call.aliases);
    let is_taken = aliases.clash
        || (facts.has_items && aliases.reused)
        || (facts.short_ids && aliases.short.clash);
    if !is_taken && (facts.takes_id)(&call.id, call.came_from(provider)) {
        Cow::Borrowed(&call.id)
    } else if facts.short_ids {
        Cow::Owned(aliases.short.text())
    } else {
        Cow::Borrowed(call.safe_id())
    }
}

/// The name that is sent for a tool: its own, or one that is made of it, the same for the same name
/// and another for another.
pub(crate) fn sent_name(provider: Provider, name: &str) -> Cow<'_, str> {
    if (provider.facts().takes_name)(name) {
        Cow::Borrowed(name)
    } else {
        let digest = hex(Sha256::digest(name.as_bytes()).iter().take(8));
        Cow::Owned(format!("tool_{}_{digest}", plain_stem(name, 32)))
    }
}
