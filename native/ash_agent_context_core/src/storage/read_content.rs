//! Reads stored content: text, or parts with their types.

use crate::error::{each, Error};
use crate::log::hints;
use crate::log::part::{Content, Part, PartKind, Place};
use crate::storage::limits::LEVELS;
use crate::storage::table::*;
use crate::storage::take::{at, fields, wrong, NIL};
use crate::storage::trust::Trust;
use crate::storage::untagged;
use crate::value::node::Node;
use crate::value::Value;

pub(crate) fn read_content(node: Node<'_>, place: Place, trust: Trust) -> Result<Content, Error> {
    let expected = "text, a list of parts or null";
    match node.into_list() {
        Ok(parts) => read_parts(parts, place, trust).map(Content::Parts),
        Err(Node::Text(text)) => Ok(Content::Text(text.into())),
        Err(other) => match untagged::untag_text(other.into_value())? {
            Value::Nil => Ok(Content::None),
            Value::Binary(text) => Ok(Content::Text(text)),
            _ => Err(Error::expected(expected)),
        },
    }
}

pub(crate) fn read_parts(
    parts: Vec<Node<'_>>,
    place: Place,
    trust: Trust,
) -> Result<Box<[Part]>, Error> {
    each(parts, |part| read_part(part, place, trust)).map(Vec::into_boxed_slice)
}

fn read_part(node: Node<'_>, place: Place, trust: Trust) -> Result<Part, Error> {
    // As values, since the content that users give is read by the same rules.
    let mut fields = fields(Node::Value(node.into_value()), "a content part", trust)?;
    let name = fields.take("type").unwrap_or(NIL);
    let name = name.as_str().unwrap_or_default();
    // Fields of another type are not known here, and kept as they came.
    let own: &[&'static str] = match name {
        "text" | "thinking" => &["text"],
        "image" | "audio" | "video" => &["media_type", "data", "url", "file_id"],
        "file" => &["media_type", "filename", "data", "url", "file_id"],
        _ => &["data"],
    };
    for key in own {
        if let Some(value) = fields.values.get_mut(key) {
            at(key, untagged::untag(value, LEVELS, trust.structs))?;
        }
    }
    let kind = PartKind::read(name, place, &mut fields.values).map_err(|key| {
        wrong(
            key,
            match key {
                "type" => "the type of a content part that may stand here",
                _ => "what a content part of this type has here",
            },
        )
    })?;
    let provider_metadata = Given::<Terms>::read(&mut fields, "provider_metadata")?;
    let hints = Given::<Terms>::read(&mut fields, "options")?
        .map(|given| hints::check(kind.takes(), given))
        .transpose()
        .map_err(|key| {
            let expected = "what a content part of this type can be asked";
            Error::invalid(vec![Value::text("options"), Value::text(key)], expected)
        })?;
    Ok(Part {
        kind,
        provider_metadata,
        hints,
        extra: fields.keep_rest()?,
        withheld: false,
        number: None,
    })
}
