//! What a response comes to: the content and the calls of a message.

use std::collections::HashSet;

use crate::log::call::ToolCall;
use crate::log::part::{Content, Part, PartKind};
use crate::log::provider::Provider;
use crate::provider::foreign::{detailed, part};
use crate::value::{Map, Value};

/// What there is to put on a conversation.
#[derive(Debug)]
pub(crate) struct Said {
    pub content: Content,
    pub calls: Vec<ToolCall>,
    /// For each call, whether it is complete.
    pub done: Vec<bool>,
}

/// A part and its place among those that were shown, from 1.
type Placed = (usize, Part);

/// Metadata on the model's thinking stands with it; where it has no other words, it makes a part of its own
/// before all others, with the words that are in it.
pub(super) fn put_details(
    parts: &mut Vec<Placed>,
    details: Vec<Value>,
    provider: Provider,
    asked: Option<&str>,
) {
    if details.is_empty() {
        return;
    }
    let key = Value::atom("reasoning_details");
    let details = Value::List(details.into_boxed_slice());
    let thinks = |(_, part): &&mut Placed| matches!(part.kind, PartKind::Thinking(_));
    if let Some((_, part)) = parts.iter_mut().find(thinks) {
        let metadata = part.provider_metadata.take().unwrap_or_default();
        part.provider_metadata = Some(metadata.put(key, details));
        return;
    }
    let words = detailed(&details).into_bytes().into();
    let mut entries = vec![
        (Value::atom("provider"), Value::atom(provider.name())),
        (key, details),
    ];
    entries.extend(asked.map(|asked| (Value::atom("model"), Value::text(asked))));
    let part = part(PartKind::Thinking(words), Some(Map::new(entries)));
    parts.insert(0, (0, part));
}

/// Leaves out what a provider's own tool was asked where its answer did not come any more.
pub(super) fn keep_pairs(parts: &mut Vec<Placed>) {
    let halves = parts.iter().filter_map(|(_, part)| part.half());
    let answered: HashSet<String> = halves
        .filter(|half| half.is_result)
        .map(|half| half.key)
        .collect();
    let is_kept = |(_, part): &Placed| {
        let half = part.half();
        half.is_none_or(|half| half.is_result || answered.contains(&half.key))
    };
    parts.retain(is_kept);
}
