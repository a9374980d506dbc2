//! Reads requests to Gemini generateContent. Keys may be in snake case, as the servers take them, too.

use super::Room;
use crate::error::{each, Error};
use crate::log::call::ToolCall;
use crate::log::message::{Output, Status};
use crate::log::part::{is_base64, Content, Part, PartKind, Source};
use crate::log::provider::Provider;
use crate::provider::format::Reads;
use crate::value::{Map, Value, MAX_DEPTH};

use crate::provider::dialect::blocks::ModelBlocks;
use crate::provider::foreign::{
    at, call, check_levels, given_content, image_or_file, inline_image, into_parts, json_text,
    metadata, metadata_of, name_at, part, provider_block, system_part, text_part,
};
use crate::provider::listener::{Listener, ReadResult, UserBlock};
use crate::value::fields::Fields;

const PROVIDER: Provider = Provider::Gemini;

/// A key in camel case and in snake case.
type Spelling = (&'static str, &'static str);

const SYSTEM: Spelling = ("systemInstruction", "system_instruction");
const CALL: Spelling = ("functionCall", "function_call");
const RESPONSE: Spelling = ("functionResponse", "function_response");
const SIGNATURE: Spelling = ("thoughtSignature", "thought_signature");
const TYPE: Spelling = ("mimeType", "mime_type");
const NAME: Spelling = ("displayName", "display_name");

fn find(value: &Value, key: Spelling) -> Option<&Value> {
    at(value, key.0).or_else(|| at(value, key.1))
}

fn find_name(value: &Value, key: Spelling) -> Option<&str> {
    find(value, key)?.as_name()
}

/// Returns the spelling of a key that an object has.
fn find_spelling(value: &Value, key: Spelling) -> &'static str {
    match at(value, key.0) {
        Some(_) => key.0,
        None => key.1,
    }
}

impl Reads for Room {
    fn read(&self, body: &mut Fields, history: &mut Listener) -> Result<(), Error> {
        for key in [SYSTEM.0, SYSTEM.1] {
            history.read_prompt(body, key, system_content)?;
        }
        make_list(body, "contents");
        history.read_list(body, "contents", "a list of contents", read_content)
    }
}

/// Puts a list around an object that stands alone, which the API takes, too.
fn make_list(fields: &mut Fields, name: &str) {
    if let Some(one @ Value::Map(_)) = fields.get_mut(name) {
        *one = Value::List(Box::new([one.clone()]));
    }
}

/// Reads a content, or a bare text, which clients take too.
fn system_content(system: Value) -> Result<Content, Error> {
    if let Value::Binary(text) = system {
        return Ok(Content::Text(text));
    }
    let mut system = Fields::read(system, "a content, an object")?;
    make_list(&mut system, "parts");
    let parts = system.content("parts", |part| system_part(PROVIDER, part))?;
    Ok(given_content(into_parts(parts)))
}

fn read_content(content: Value, history: &mut Listener) -> Result<(), Error> {
    let mut content = Fields::read(content, "a content, an object")?;
    let role = content.text("role")?;
    make_list(&mut content, "parts");
    let parts = content.need_list("parts", "a list of parts")?;
    let read = match role.as_deref() {
        Some("model") => model(parts, history),
        // Other roles too, which we do not know.
        _ => user(parts, history),
    };
    read.map_err(|error| error.within(content.key("parts")))
}

fn user(values: Vec<Value>, history: &mut Listener) -> Result<(), Error> {
    history.read_user(values, |value| {
        if find(&value, RESPONSE).is_some() {
            let key = find_spelling(&value, RESPONSE);
            let answer = Fields::read(value, "")?.need_object(key, "a response", response);
            return answer.map(UserBlock::Answer);
        }
        if find(&value, CALL).is_some() {
            return Err(Error::invalid(Vec::new(), "a part of a user's content"));
        }
        let is_thought = at(&value, "thought") == Some(&Value::Bool(true));
        match is_thought && at(&value, "text").is_some() {
            // Thoughts of the user have no neutral form.
            true => provider_block(PROVIDER, value).map(UserBlock::Part),
            false => content_part(value).map(UserBlock::Part),
        }
    })
}

fn model(values: Vec<Value>, history: &mut Listener) -> Result<(), Error> {
    let mut said = ModelBlocks::default();
    each(values, |value| {
        if find(&value, CALL).is_some() {
            said.call(read_call(value)?);
        } else if find(&value, RESPONSE).is_some() {
            return Err(Error::invalid(Vec::new(), "a part of a model's content"));
        } else {
            said.part(model_part(value)?);
        }
        Ok(())
    })?;
    said.join(PROVIDER, |_| false, history);
    Ok(())
}

/// Reads a part of the model's that is not a call. An image or the like that it made becomes a block of Gemini's; if it is a
/// thought, it is not part of the answer.
pub(super) fn model_part(value: Value) -> Result<Part, Error> {
    let is_thought = at(&value, "thought") == Some(&Value::Bool(true));
    if is_thought && at(&value, "text").is_none() {
        return provider_block(PROVIDER, value);
    }
    let mut part = content_part(value)?;
    if part.kind.media().is_some() && part.provider_metadata.is_none() {
        part.provider_metadata = Some(metadata(PROVIDER, &[]));
    }
    Ok(part)
}

fn read_call(value: Value) -> Result<ToolCall, Error> {
    let signature = find_name(&value, SIGNATURE);
    let metadata = metadata_of(PROVIDER, "signature", signature);
    let key = find_spelling(&value, CALL);
    Fields::read(value, "")?.need_object(key, "a function call", |mut function| {
        let id = function.text("id")?;
        let name = function.need_name("name")?;
        Ok(call(id, name, function.arguments("args")?, metadata))
    })
}

fn content_part(value: Value) -> Result<Part, Error> {
    let signature = find_name(&value, SIGNATURE);
    let signed = metadata_of(PROVIDER, "signature", signature);
    match at(&value, "text") {
        Some(Value::Binary(text)) if at(&value, "thought") == Some(&Value::Bool(true)) => {
            let metadata = metadata(PROVIDER, &[("signature", signature)]);
            return Ok(part(PartKind::Thinking(text.clone()), Some(metadata)));
        }
        Some(Value::Binary(text)) => return Ok(part(PartKind::Text(text.clone()), signed)),
        Some(_) => return Err(Error::invalid(vec![Value::text("text")], "text")),
        None => {}
    }
    match media(&value) {
        Some(kind) => Ok(part(kind, signed)),
        None => provider_block(PROVIDER, value),
    }
}

fn media(value: &Value) -> Option<PartKind> {
    if let Some(blob) = find(value, ("inlineData", "inline_data")) {
        let media_type = find_name(blob, TYPE)?;
        let data = name_at(blob, "data")?;
        if media_type.starts_with("image/") {
            return inline_image(media_type.into(), data.into());
        }
        let filename = find_name(blob, NAME).map(Into::into);
        let source = Source::Data(data.into());
        let file = image_or_file(false, Some(media_type.into()), source, filename);
        return is_base64(data).then_some(file);
    }
    let file = find(value, ("fileData", "file_data"))?;
    let uri = find_name(file, ("fileUri", "file_uri")).filter(|uri| !uri.trim().is_empty())?;
    let media_type = find_name(file, TYPE).map(Into::into);
    let source = Source::Url(uri.into());
    let is_image = find_name(file, TYPE).is_some_and(|name| name.starts_with("image/"));
    let filename = find_name(file, NAME).map(Into::into);
    Some(image_or_file(is_image, media_type, source, filename))
}

fn response(mut response: Fields) -> Result<ReadResult, Error> {
    let id = response.text("id")?;
    let name = response.text("name")?;
    let given = response.map("response")?.unwrap_or_default();
    given
        .iter()
        .try_for_each(|(_, value)| check_levels(value, MAX_DEPTH - 1))?;
    let key = response.key("parts");
    let media = match response.take_given("parts") {
        Some(Value::List(parts)) => {
            each(parts.into_vec(), content_part).map_err(|error| error.within(key))?
        }
        _ => Vec::new(),
    };
    let (status, value) = result(given);
    let output = if media.is_empty() {
        Output::Value(value)
    } else {
        let words = match value {
            Value::Binary(text) => text_part(text),
            other => json_text(&other),
        };
        let is_media = |part: &Part| part.kind.is_text() || part.kind.media().is_some();
        let mut parts = vec![words];
        parts.extend(media.into_iter().filter(is_media));
        Output::Parts(parts.into_boxed_slice())
    };
    Ok(ReadResult::new(id, name, status, output))
}

/// Reads a result. An object with only the documented keys has the output, or the error, in them; any other object is the output.
fn result(given: Map) -> (Status, Value) {
    let (output, error) = (given.get_named("output"), given.get_named("error"));
    match (given.len(), output, error) {
        (1, Some(text @ Value::Binary(_)), _) => (Status::Ok, text.clone()),
        (1, _, Some(reason)) => (Status::Error, reason.clone()),
        _ => (Status::Ok, Value::Map(given)),
    }
}
