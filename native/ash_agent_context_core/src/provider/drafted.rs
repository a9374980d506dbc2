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

/// A text alone is text.
pub(super) fn content(mut parts: Vec<Part>) -> Content {
    match &*parts {
        [] => Content::None,
        [Part {
            kind: PartKind::Text(_),
            provider_metadata: None,
            ..
        }] => match parts.pop() {
            Some(Part {
                kind: PartKind::Text(text),
                ..
            }) => Content::Text(text),
            _ => Content::None,
        },
        _ => Content::Parts(parts.into_boxed_slice()),
    }
}

/// Metadata on the model's thinking stands with it; where it has no other words, it makes a part of its own,
/// with the words that are in it.
pub(super) fn put_details(
    parts: &mut Vec<Part>,
    details: Vec<Value>,
    provider: Provider,
    asked: Option<&str>,
) {
    if details.is_empty() {
        return;
    }
    let key = Value::atom("reasoning_details");
    let details = Value::List(details.into_boxed_slice());
    let thinks = |part: &&mut Part| matches!(part.kind, PartKind::Thinking(_));
    if let Some(part) = parts.iter_mut().find(thinks) {
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
    parts.insert(0, part);
}

/// Leaves out what a provider's own tool was asked where its answer did not come any more.
pub(super) fn keep_pairs(parts: &mut Vec<Part>) {
    let halves = parts.iter().filter_map(Part::half);
    let answered: HashSet<String> = halves
        .filter(|half| half.is_result)
        .map(|half| half.key)
        .collect();
    let is_kept = |part: &Part| {
        let half = part.half();
        half.is_none_or(|half| half.is_result || answered.contains(&half.key))
    };
    parts.retain(is_kept);
}
