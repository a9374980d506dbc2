//! Reading requests to Mistral.

use super::Room;
use crate::error::Error;
use crate::log::part::{Part, PartKind};
use crate::log::provider::Provider;
use crate::provider::dialect::chat::read::{self, Rules};
use crate::provider::dialect::chat::thought::{reference, REFERENCES};
use crate::provider::foreign::{at, json_like, metadata, part, Object};
use crate::provider::format::Reads;
use crate::provider::listener::Listener;
use crate::value::{Value, MAX_DEPTH};

const RULES: Rules = Rules {
    provider: Provider::Mistral,
    empty_calls: true,
    thinking: Some(thinking),
};

impl Reads for Room {
    fn read(&self, body: &mut Object, history: &mut Listener) -> Result<(), Error> {
        read::read(body, history, &RULES)
    }
}

/// Thinking: pieces of text, mostly one, and what they refer to.
fn thinking(value: Value) -> Result<Part, Error> {
    let mut object = Object::read(value, "")?;
    let pieces = object.need_list("thinking", "a list of text parts")?;
    let (mut text, mut references) = (Vec::new(), Vec::new());
    for piece in pieces {
        match at(&piece, "text") {
            Some(Value::Binary(bytes)) => text.extend_from_slice(bytes),
            _ => references.push(reference(text.len(), json_like(piece, MAX_DEPTH - 2)?)),
        }
    }
    let signature = object.text("signature")?;
    let mut metadata = metadata(Provider::Mistral, &[("signature", signature.as_deref())]);
    if object.take("closed") == Some(Value::Bool(true)) {
        metadata = metadata.put(Value::atom("closed"), Value::Bool(true));
    }
    if !references.is_empty() {
        let references = Value::List(references.into_boxed_slice());
        metadata = metadata.put(Value::atom(REFERENCES), references);
    }
    let kind = PartKind::Thinking(text.into_boxed_slice());
    Ok(part(kind, Some(metadata)))
}
