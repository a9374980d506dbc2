//! Thoughts with references, as Mistral sends them: the chunks between the texts, and their places.

use crate::error::Error;
use crate::log::part::{Part, PartKind};
use crate::log::provider::Provider;
use crate::provider::foreign::{at, json_like, metadata, part};
use crate::value::fields::Fields;
use crate::value::{Map, Value, MAX_DEPTH};

/// The metadata key for a thought's references.
pub(crate) const REFERENCES: &str = "references";

/// A piece of a thought.
pub(crate) enum ThoughtPiece<'a> {
    Text(&'a str),
    /// A reference between two texts.
    Chunk(&'a Value),
}

/// Returns a reference with its place: the bytes of the thought's text before it.
pub(crate) fn reference(after: usize, chunk: Value) -> Value {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    Value::Map(Map::new(vec![
        (Value::text("after"), Value::Int(after)),
        (Value::text("chunk"), chunk),
    ]))
}

/// Reads a thought: pieces of text, mostly one, and its references.
pub(super) fn read(value: Value, provider: Provider) -> Result<Part, Error> {
    let mut object = Fields::read(value, "")?;
    let pieces = object.need_list("thinking", "a list of text parts")?;
    let (mut text, mut references) = (Vec::new(), Vec::new());
    for piece in pieces {
        match at(&piece, "text") {
            Some(Value::Binary(bytes)) => text.extend_from_slice(bytes),
            _ => references.push(reference(text.len(), json_like(piece, MAX_DEPTH - 2)?)),
        }
    }
    let signature = object.text("signature")?;
    let mut metadata = metadata(provider, &[("signature", signature.as_deref())]);
    if object.take_given("closed") == Some(Value::Bool(true)) {
        metadata = metadata.put(Value::atom("closed"), Value::Bool(true));
    }
    if !references.is_empty() {
        let references = Value::List(references.into_boxed_slice());
        metadata = metadata.put(Value::atom(REFERENCES), references);
    }
    let kind = PartKind::Thinking(text.into_boxed_slice());
    Ok(part(kind, Some(metadata)))
}

/// Returns the pieces of a thought of this text. A reference whose place is not between two characters follows the last that
/// fits.
pub(crate) fn pieces<'a>(text: &'a str, part: &'a Part) -> Vec<ThoughtPiece<'a>> {
    let references = part.noted(REFERENCES).and_then(Value::as_list);
    let (mut pieces, mut rest, mut begin) = (Vec::new(), text, 0);
    for of in references.unwrap_or_default() {
        let after = match at(of, "after") {
            Some(Value::Int(after)) => usize::try_from(*after).unwrap_or_default(),
            _ => 0,
        };
        let split = after
            .checked_sub(begin)
            .and_then(|middle| rest.split_at_checked(middle));
        if let Some((before, behind)) = split.filter(|(before, _)| !before.is_empty()) {
            pieces.push(ThoughtPiece::Text(before));
            (rest, begin) = (behind, after);
        }
        pieces.extend(at(of, "chunk").map(ThoughtPiece::Chunk));
    }
    if !rest.is_empty() {
        pieces.push(ThoughtPiece::Text(rest));
    }
    pieces
}
