//! The metadata of texts, refusals and reasoning of the model, for both reading and writing.

use crate::error::Error;
use crate::log::part::Part;
use crate::provider::block::STORED;
use crate::provider::foreign::{at, json_like, name_at};
use crate::provider::options::Options;
use crate::value::{Bytes, Map, Value, MAX_DEPTH};

/// The fields that the API wants back, by the names under which they are kept.
pub(super) type Notes = Vec<NamedNote>;

type NamedNote = (&'static str, Value);

/// The note that a text is a refusal.
pub(super) const REFUSAL: &str = "refusal";

/// Returns the field with the words of a part of the model's message.
pub(super) fn words_key(part: &Value) -> Option<&'static str> {
    match name_at(part, "type") {
        Some("output_text" | "input_text" | "text") => Some("text"),
        Some("refusal") => Some("refusal"),
        _ => None,
    }
}

/// Returns the notes on a message.
pub(super) fn message_notes(item: &Value) -> Notes {
    names(item, &["id", "phase", "status"])
}

/// Returns the notes on a text or a refusal, with those of its message. The usual status is kept only with an empty text.
///
/// # Errors
/// [`Error::TooDeep`]
pub(super) fn text_notes(part: &Value, of_message: &Notes) -> Result<Notes, Error> {
    let words = words_key(part).and_then(|key| name_at(part, key));
    let says = |note: &&NamedNote| words == Some("") || !is_usual(note);
    let mut notes: Notes = of_message.iter().filter(says).cloned().collect();
    notes.extend(lists(part, &["annotations", "logprobs"])?);
    if words_key(part) == Some(REFUSAL) {
        notes.push((REFUSAL, Value::Bool(true)));
    }
    Ok(notes)
}

/// Returns the words of reasoning and the notes on it. `is_stored`: the API keeps the item.
///
/// # Errors
/// [`Error::TooDeep`]
pub(super) fn reasoning(item: &Value, is_stored: bool) -> Result<(Bytes, Notes), Error> {
    let mut notes = names(item, &["id", "encrypted_content", "status"]);
    notes.retain(|note| !is_usual(note));
    let is_whole = notes.iter().any(|(name, _)| *name == "encrypted_content");
    if is_stored && !is_whole {
        notes.push((STORED, Value::Bool(true)));
    }
    notes.extend(lists(item, &["summary", "content"])?);
    Ok((reasoning_words(|key| at(item, key)), notes))
}

/// Returns the words of reasoning: its summary, or the text that open models show.
pub(super) fn reasoning_words<'a>(list: impl Fn(&str) -> Option<&'a Value>) -> Bytes {
    let words = |key| {
        let Some(Value::List(pieces)) = list(key) else {
            return Vec::new();
        };
        let texts = pieces.iter().filter_map(|piece| match at(piece, "text") {
            Some(Value::Binary(text)) if !text.is_empty() => Some(&**text),
            _ => None,
        });
        texts.collect::<Vec<_>>().join(&b"\n\n"[..])
    };
    let summary = words("summary");
    let is_empty = summary.is_empty();
    let words = if is_empty { words("content") } else { summary };
    words.into_boxed_slice()
}

/// Returns the id of reasoning that can go back: it has the encrypted content, or the API keeps that.
pub(super) fn returning_id<'a>(part: &'a Part, options: &Options<'_>) -> Option<&'a str> {
    let id = part.provider_text("id")?;
    let is_there = part.provider_text("encrypted_content").is_some()
        || part.is_noted(STORED)
        || kept_list(part, options, "content").is_some();
    let is_thought = part.kind.thoughts().is_some();
    (is_thought && is_there && part.is_of(options)).then_some(id)
}

/// Returns a list of the reasoning's item, if the words in it are still those of the part.
pub(super) fn kept_list<'a>(part: &'a Part, options: &Options<'_>, key: &str) -> Option<&'a Value> {
    let words = part.kind.thoughts()?;
    let list = part.provider_list(options, key)?;
    let kept = reasoning_words(|key| part.provider_list(options, key));
    (kept == *words).then_some(list)
}

/// Returns whether a message goes back with its id although it is empty.
pub(super) fn may_be_empty(of_message: &Notes) -> bool {
    let has = |key| of_message.iter().any(|(name, _)| *name == key);
    has("id") && has("status")
}

/// Returns whether a text is that of such an empty message.
pub(super) fn is_empty_message(part: &Part) -> bool {
    part.kind.text().is_some_and(|text| text.is_empty()) && part.provider_text("status").is_some()
}

/// Returns whether a block stands in a message. Every item but a message has a type.
pub(super) fn is_content_part(data: &Map) -> bool {
    match data.get_named("type").and_then(Value::as_name) {
        // Every item but those of a role has a type.
        None => data.get_named("role").is_none(),
        Some(kind) => matches!(
            kind,
            "output_text" | "refusal" | "input_text" | "input_image" | "input_file"
        ),
    }
}

/// Returns the fields that are texts.
fn names(item: &Value, keys: &[&'static str]) -> Notes {
    let name = |key: &&'static str| {
        let name = name_at(item, key).filter(|name| !name.is_empty())?;
        Some((*key, Value::text(name)))
    };
    keys.iter().filter_map(name).collect()
}

fn is_usual((name, value): &NamedNote) -> bool {
    *name == "status" && value.as_name() == Some("completed")
}

/// Returns the lists that are not empty.
fn lists(item: &Value, keys: &[&'static str]) -> Result<Notes, Error> {
    let given = keys.iter().filter_map(|key| match at(item, key) {
        Some(list @ Value::List(items)) if !items.is_empty() => Some((*key, list)),
        _ => None,
    });
    given
        .map(|(key, list)| Ok((key, json_like(list.clone(), MAX_DEPTH - 1)?)))
        .collect()
}
