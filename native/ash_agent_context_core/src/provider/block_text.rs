//! The text in a provider's own block, for all other providers.

use crate::value::letters::{is_blank, utf8};
use crate::value::{Map, Value};

/// The most levels of a block to look at.
const LEVELS: usize = 12;

/// The keys of texts, or of more of the block.
const KEYS: [&str; 16] = [
    "text",
    "refusal",
    "transcript",
    "content",
    "source",
    "citationsContent",
    "guardContent",
    "searchResult",
    "document",
    "toolResult",
    "parts",
    "message",
    "audio",
    "context",
    "data",
    // The name of a tool that a tool search found.
    "tool_name",
];

/// Returns the texts of a block, each on a line of its own, or nothing if it has none or they are thoughts.
pub(crate) fn words(data: &Map) -> Option<String> {
    let mut texts = Vec::new();
    collect(data, LEVELS, &mut texts);
    let texts = texts.join("\n");
    (!is_blank(&texts)).then_some(texts)
}

fn collect(data: &Map, levels: usize, texts: &mut Vec<String>) {
    let Some(levels) = levels.checked_sub(1) else {
        return;
    };
    let kind = data.get_named("type").and_then(Value::as_name);
    let is_thought = data.get_named("thought") == Some(&Value::Bool(true))
        || data.get_named("reasoningContent").is_some()
        || kind.is_some_and(|kind| kind.contains("thinking") || kind.contains("reasoning"));
    if is_thought {
        return;
    }
    for key in KEYS {
        match data.get_named(key) {
            Some(Value::Binary(bytes)) if is_words(key, kind) => {
                let text = utf8(bytes);
                if !is_blank(&text) {
                    texts.push(text.into_owned());
                }
            }
            Some(Value::Map(inner)) => collect(inner, levels, texts),
            Some(Value::List(items)) => {
                let maps = items.iter().filter_map(Value::as_map);
                maps.for_each(|inner| collect(inner, levels, texts));
            }
            _ => {}
        }
    }
}

/// Returns whether a text under this key is words, and not bytes or an address.
fn is_words(key: &str, kind: Option<&str>) -> bool {
    match key {
        // The text of a plain text document.
        "data" => kind == Some("text"),
        "source" => false,
        _ => true,
    }
}
