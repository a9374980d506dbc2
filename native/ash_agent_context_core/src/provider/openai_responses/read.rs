//! OpenAI Responses.

use super::Room;
use crate::error::Error;
use crate::log::call::ToolCall;
use crate::log::message::Status;
use crate::log::part::{Content, Part, PartKind, Source};
use crate::log::provider::Provider;
use crate::provider::format::Reads;
use crate::value::{Map, Value, MAX_DEPTH};

use crate::provider::dialect::blocks::output;
use crate::provider::foreign::{
    at, call, inline_file, json_like, json_part, metadata, metadata_of, name_at, part,
    plain_content, provider_block, text_block, url_image, Object,
};
use crate::provider::listener::{Answer, Listener};

const PROVIDER: Provider = Provider::OpenAiResponses;
const ROLES: &str = "\"user\", \"assistant\", \"system\" or \"developer\"";

impl Reads for Room {
    fn read(&self, body: &mut Object, history: &mut Listener) -> Result<(), Error> {
        if let Some(instructions) = body.take("instructions") {
            let key = body.key("instructions");
            let content = |value| match value {
                Value::Binary(text) => Ok(Content::Text(text)),
                _ => Err(Error::invalid(Vec::new(), "text")),
            };
            history
                .read_prompt(instructions, content)
                .map_err(|error| error.within(key))?;
        }
        let key = body.key("input");
        let items = match body.take("input") {
            Some(Value::Binary(text)) => {
                history.user(Content::Text(text), None);
                return Ok(());
            }
            Some(Value::List(items)) => items.into_vec(),
            _ => return Err(body.wrong("input", "text or a list of items")),
        };
        let mut said = Said::default();
        history
            .read_each(items, |item, history| read_item(item, history, &mut said))
            .map_err(|error| error.within(key))?;
        said.flush(history);
        Ok(())
    }
}

/// Items of the model that make one message.
#[derive(Default)]
struct Said {
    elements: Vec<usize>,
    parts: Vec<Part>,
    calls: Vec<ToolCall>,
    /// Whether a message item is among them.
    speaks: bool,
    /// Whether the message is in the short form, with a text that is not in a list.
    is_text: bool,
}

impl Said {
    fn flush(&mut self, history: &mut Listener) {
        let said = std::mem::take(self);
        if said.elements.is_empty() {
            return;
        }
        let content = if said.is_text {
            plain_content(said.parts)
        } else if said.parts.is_empty() {
            Content::None
        } else {
            Content::Parts(said.parts.into_boxed_slice())
        };
        history.assistant_of(&said.elements, content, said.calls, None);
    }

    /// Ends what stands in front of an item that belongs to the next message.
    fn make_room(&mut self, history: &mut Listener, speaks: bool) {
        if (self.speaks && self.calls.is_empty()) || (speaks && !self.calls.is_empty()) {
            self.flush(history);
        }
    }
}

fn read_item(item: Value, history: &mut Listener, said: &mut Said) -> Result<(), Error> {
    let element = history.element();
    let kind: Box<str> = match name_at(&item, "type") {
        Some(kind) => kind.into(),
        None => "message".into(),
    };
    match &*kind {
        "message" => read_message(item, history, said),
        "function_call" => {
            let call = read_call(item)?;
            said.elements.push(element);
            said.calls.push(call);
            Ok(())
        }
        "reasoning" => {
            let part = reasoning(item)?;
            said.make_room(history, false);
            said.elements.push(element);
            said.parts.push(part);
            Ok(())
        }
        "function_call_output" => {
            let answer = read_output(item)?;
            said.flush(history);
            history.answer(answer);
            Ok(())
        }
        // What the application answers to a vendor's own calls.
        kind if kind.ends_with("_output") || kind.ends_with("_response") => {
            let block = provider_block(PROVIDER, item)?;
            said.flush(history);
            history.user(Content::Parts(Box::new([block])), None);
            Ok(())
        }
        _ => {
            let block = provider_block(PROVIDER, item)?;
            said.elements.push(element);
            said.parts.push(block);
            Ok(())
        }
    }
}

fn read_message(item: Value, history: &mut Listener, said: &mut Said) -> Result<(), Error> {
    let mut item = Object::read(item, "an item, an object")?;
    let role = item.need_text("role")?;
    match &*role {
        "user" => {
            let content = item.content("content", user_part)?;
            said.flush(history);
            history.user(content, None);
        }
        "system" | "developer" => {
            let content = item.content("content", |part| text_block(part, "text"))?;
            said.flush(history);
            history.system(content, None);
        }
        "assistant" => {
            let id = item.text("id")?;
            let content = item.content("content", |part| assistant_part(part, id.as_deref()))?;
            said.make_room(history, true);
            said.elements.push(history.element());
            said.speaks = true;
            said.is_text |= matches!(content, Content::Text(_));
            said.parts
                .append(&mut crate::provider::foreign::into_parts(content));
        }
        _ => return Err(item.wrong("role", ROLES)),
    }
    Ok(())
}

fn read_call(item: Value) -> Result<ToolCall, Error> {
    let mut item = Object::read(item, "")?;
    let own = item.text("id")?;
    let id = item.need_text("call_id")?;
    let name = item.need_name("name")?;
    let arguments = item.arguments("arguments")?;
    let metadata = metadata_of(PROVIDER, "id", own.as_deref());
    Ok(call(Some(id), name, arguments, metadata))
}

fn read_output(item: Value) -> Result<Answer, Error> {
    let mut item = Object::read(item, "")?;
    let id = item.need_text("call_id")?;
    let content = item.content("output", |value| {
        match (name_at(&value, "type"), media(&value)) {
            (Some("input_text"), _) => text_block(value, "text"),
            (_, Some(kind)) => Ok(part(kind, None)),
            _ => json_part(&value),
        }
    })?;
    Ok(Answer {
        id: Some(id),
        ..Answer::ok(output(content, Status::Ok))
    })
}

/// Reasoning, whose text is its summary.
fn reasoning(item: Value) -> Result<Part, Error> {
    let id = name_at(&item, "id");
    let encrypted = name_at(&item, "encrypted_content");
    let mut metadata = metadata(PROVIDER, &[("id", id), ("encrypted_content", encrypted)]);
    let mut text: Vec<u8> = Vec::new();
    if let Some(Value::List(summary)) = at(&item, "summary") {
        for piece in &**summary {
            if let Some(Value::Binary(words)) = at(piece, "text") {
                if !text.is_empty() {
                    text.extend_from_slice(b"\n\n");
                }
                text.extend_from_slice(words);
            }
        }
        let summary = json_like(Value::List(summary.clone()), MAX_DEPTH - 1)?;
        metadata = Map::put(&metadata, Value::atom("summary"), summary);
    }
    let kind = PartKind::Thinking(text.into_boxed_slice());
    Ok(part(kind, Some(metadata)))
}

fn user_part(value: Value) -> Result<Part, Error> {
    if name_at(&value, "type") == Some("input_text") {
        return text_block(value, "text");
    }
    match media(&value) {
        Some(kind) => Ok(part(kind, None)),
        None => provider_block(PROVIDER, value),
    }
}

fn assistant_part(value: Value, id: Option<&str>) -> Result<Part, Error> {
    let text = match name_at(&value, "type") {
        Some("output_text" | "input_text" | "text") => text_block(value, "text")?,
        Some("refusal") => text_block(value, "refusal")?,
        Some("message" | "function_call" | "function_call_output" | "reasoning") => {
            return Err(Error::invalid(
                Vec::new(),
                "a part of a message, not an item",
            ));
        }
        _ => return provider_block(PROVIDER, value),
    };
    Ok(part(text.kind, metadata_of(PROVIDER, "id", id)))
}

fn media(value: &Value) -> Option<PartKind> {
    match name_at(value, "type")? {
        "input_image" => {
            let url = name_at(value, "image_url").filter(|url| !url.trim().is_empty())?;
            Some(url_image(url.into()))
        }
        "input_file" => {
            let filename = name_at(value, "filename").map(Into::into);
            if let Some(data) = name_at(value, "file_data") {
                return inline_file(data, filename);
            }
            let url = name_at(value, "file_url").filter(|url| !url.trim().is_empty())?;
            Some(PartKind::File {
                media_type: None,
                source: Source::Url(url.into()),
                filename,
            })
        }
        _ => None,
    }
}
