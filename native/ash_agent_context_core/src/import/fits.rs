//! Rules, on ids too, that providers are known to have although the message can be read: one that breaks them does not come
//! back as it was.

use std::collections::HashSet;

use crate::log::call::ToolCall;
use crate::log::ids::Ids;
use crate::log::message::Output;
use crate::log::part::{check_addresses, Content, Part};
use crate::log::provider::Provider;
use crate::provider::accepts::sent_id;
use crate::provider::facts::Rule;
use crate::provider::foreign::at;
use crate::value::Value;
use crate::value::{json, letters};

/// Returns whether a message has no blank text, no thinking at its end where that is refused, and no call whose id or name the
/// provider refuses.
pub fn message(provider: Provider, content: &Content, calls: &[ToolCall]) -> bool {
    let says = match content {
        Content::None => true,
        // Beside calls the text may be empty.
        Content::Text(text) => !is_blank(text) || (text.is_empty() && !calls.is_empty()),
        Content::Parts(parts) => are_taken(parts),
    };
    let (takes_id, takes_name) = (provider.facts().takes_id, provider.facts().takes_name);
    let takes = |call: &ToolCall| takes_id(&call.id, true) && takes_name(call.name.as_str());
    let leads = !provider.facts().has(Rule::ThoughtsLead) || !ends_in_thinking(content, calls);
    says && leads && calls.iter().all(takes)
}

/// Returns whether arguments that are JSON text have half a character, which no reader takes.
pub fn has_half(element: &Value) -> bool {
    let calls = at(element, "tool_calls").and_then(Value::as_list);
    let functions = calls
        .into_iter()
        .flatten()
        .filter_map(|call| at(call, "function"));
    let mut texts = functions
        .chain([element])
        .filter_map(|of| at(of, "arguments")?.as_str());
    texts.any(|text| text.contains("\\u") && json::replace_halves(text) != text)
}

/// Returns whether the model's thinking is the last in its message.
fn ends_in_thinking(content: &Content, calls: &[ToolCall]) -> bool {
    let count = content.count_parts();
    let last = content.parts().last();
    last.is_some_and(|part| part.kind.is_thinking())
        && calls.iter().all(|call| call.parts_before() < count)
}

/// Returns whether the provider takes a result, as far as is known.
pub fn result(provider: Provider, output: &Output, is_error: bool) -> bool {
    let facts = provider.facts();
    let is_refused = facts.refused_key.is_some_and(|key| output.has_key(key));
    let is_text = |part: &Part| part.kind.media().is_none();
    let is_wordless = is_error && facts.has(Rule::FailuresAreText);
    match output {
        Output::Value(_) if is_refused => false,
        Output::Parts(parts) if is_wordless && !parts.iter().all(is_text) => false,
        Output::Value(_) if provider.facts().has(Rule::WrapsResults) => true,
        Output::Value(Value::Binary(text)) => !is_blank(text),
        Output::Value(_) => true,
        Output::Parts(parts) => are_taken(parts),
    }
}

/// Returns whether no text is blank, and every address is one that a provider may fetch.
fn are_taken(parts: &[Part]) -> bool {
    let is_blank = |part: &Part| {
        // An empty text may have a signature.
        part.kind.text().is_some_and(|text| is_blank(text)) && part.provider_metadata.is_none()
    };
    !parts.iter().any(is_blank) && check_addresses(parts).is_ok()
}

fn is_blank(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(letters::is_blank)
}

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
