//! What a response comes to: the content and the calls of a message.

use std::collections::HashSet;

use crate::log::call::ToolCall;
use crate::log::part::{Content, Part, PartKind};
use crate::log::provider::Provider;
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

/// Notes on the model's thinking stand with it; where it has no words, they make a part of their own.
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
    let mut entries = vec![
        (Value::atom("provider"), Value::atom(provider.name())),
        (key, details),
    ];
    entries.extend(asked.map(|asked| (Value::atom("model"), Value::text(asked))));
    let part = Part {
        kind: PartKind::Thinking(Box::default()),
        provider_metadata: Some(Map::new(entries)),
        extra: None,
        item_reused: false,
    };
    parts.insert(0, part);
}

/// Leaves out what a provider's own tool was asked where its answer did not come any more.
pub(super) fn keep_pairs(parts: &mut Vec<Part>) {
    let answered: HashSet<Box<str>> = parts
        .iter()
        .filter_map(|part| pair(part, false))
        .map(Into::into)
        .collect();
    parts.retain(|part| pair(part, true).is_none_or(|id| answered.contains(id)));
}

/// The id of what a provider's own tool is asked, or of its answer.
fn pair(part: &Part, asks: bool) -> Option<&str> {
    let PartKind::ProviderBlock { data, .. } = &part.kind else {
        return None;
    };
    let inner = |key| match data.get_named(key) {
        Some(Value::Map(inner)) => inner.get_named("toolUseId")?.as_str(),
        _ => None,
    };
    let kind = data.get_named("type").and_then(Value::as_str);
    match (kind, asks) {
        (Some(kind), true) if kind.ends_with("_tool_use") => data.get_named("id")?.as_str(),
        (Some(_), false) => data.get_named("tool_use_id")?.as_str(),
        (None, true) => inner("toolUse"),
        (None, false) => inner("toolResult"),
        _ => None,
    }
}
