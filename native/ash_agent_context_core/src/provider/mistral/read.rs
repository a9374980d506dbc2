//! Reading requests to Mistral.

use super::Room;
use crate::error::Error;
use crate::log::part::{Part, PartKind};
use crate::log::provider::Provider;
use crate::provider::dialect::chat::read::{self, Rules};
use crate::provider::foreign::{at, metadata, part, Object};
use crate::provider::format::Reads;
use crate::provider::listener::Listener;
use crate::value::Value;

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

/// Thinking: pieces of text, mostly one.
fn thinking(value: Value) -> Result<Part, Error> {
    let mut object = Object::read(value, "")?;
    let pieces = object.need_list("thinking", "a list of text parts")?;
    let mut text = Vec::new();
    for piece in &pieces {
        if let Some(Value::Binary(bytes)) = at(piece, "text") {
            text.extend_from_slice(bytes);
        }
    }
    let signature = object.text("signature")?;
    let metadata = metadata(Provider::Mistral, &[("signature", signature.as_deref())]);
    let kind = PartKind::Thinking(text.into_boxed_slice());
    Ok(part(kind, Some(metadata)))
}
