//! Ids and names in the form that a provider takes.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::log::call::ToolCall;
use crate::log::provider::Provider;
use crate::provider::facts::Rule;
use crate::value::letters::{hex, plain_stem};

/// Returns the id that is sent for a call.
///
/// For a provider with short ids (nine letters and digits), an id of another provider hardly ever fits, and a digest of nine
/// letters could meet another one. So the short form has the call's number, which it has from the moment it joins: a request's
/// bytes stay as they are. The letter is not `a` only where a model made up an id of this very form. An id that looks like the
/// short form of an earlier call is sent in its own short form as well.
pub(crate) fn sent_id(provider: Provider, call: &ToolCall) -> Cow<'_, str> {
    let (facts, aliases) = (provider.facts(), &call.aliases);
    let is_taken = aliases.clash
        || (facts.has(Rule::HasItems) && aliases.reused)
        || (facts.has(Rule::ShortIds) && aliases.short.clash);
    if !is_taken && (facts.takes_id)(&call.id, call.came_from(provider)) {
        Cow::Borrowed(&call.id)
    } else if facts.has(Rule::ShortIds) {
        Cow::Owned(aliases.short.text())
    } else {
        Cow::Borrowed(call.aliases.safe.as_deref().unwrap_or(&call.id))
    }
}

/// Returns the name that is sent for a tool: its own, or one that is made of it, the same each time and different for each name.
pub(crate) fn sent_name(provider: Provider, name: &str) -> Cow<'_, str> {
    if (provider.facts().takes_name)(name) {
        Cow::Borrowed(name)
    } else {
        let digest = hex(Sha256::digest(name.as_bytes()).iter().take(8));
        Cow::Owned(format!("tool_{}_{digest}", plain_stem(name, 32)))
    }
}
