//! Reading requests to OpenAI Responses.

use std::collections::{HashMap, HashSet};

use super::calls::{self, Form};
use super::read_media::media;
use super::{assumed, read_calls, Room, PROVIDER};
use crate::error::Error;
use crate::log::call::ToolCall;
use crate::log::part::{Content, Part, PartKind};
use crate::provider::foreign::{
    at, json_like, metadata, name_at, part, plain_content, provider_block, system_part, text_block,
    Object,
};
use crate::provider::format::Reads;
use crate::provider::listener::Listener;
use crate::value::{Map, Value, MAX_DEPTH};

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
        let mut reading = Reading {
            assumed: match ["previous_response_id", "conversation"]
                .iter()
                .any(|key| body.has(key))
            {
                true => assumed::calls(&items),
                false => HashMap::new(),
            },
            ..Reading::default()
        };
        history
            .read_each(items, |item, history| reading.item(item, history))
            .map_err(|error| error.within(key))?;
        reading.said.flush(history);
        Ok(())
    }
}

/// A list of items that is being read.
#[derive(Default)]
struct Reading {
    said: Said,
    /// Calls that the application answers.
    called: HashSet<Box<str>>,
    /// Calls that the API itself answers.
    served: HashSet<Box<str>>,
    /// Calls that only the API keeps, by the position of the item after them.
    assumed: HashMap<usize, Vec<ToolCall>>,
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

    /// Ends the items before one that belongs to the next message.
    fn make_room(&mut self, history: &mut Listener, speaks: bool) {
        if (self.speaks && self.calls.is_empty()) || (speaks && !self.calls.is_empty()) {
            self.flush(history);
        }
    }
}

impl Reading {
    fn item(&mut self, item: Value, history: &mut Listener) -> Result<(), Error> {
        let element = history.element();
        if let Some(calls) = self.assumed.remove(&element) {
            self.said.flush(history);
            history.assistant_of(&[], Content::None, calls, None);
        }
        let said = &mut self.said;
        let kind: Box<str> = match name_at(&item, "type") {
            Some(kind) => kind.into(),
            None => "message".into(),
        };
        if &*kind == "message" {
            return read_message(item, history, said);
        }
        if &*kind == "reasoning" {
            let part = reasoning(item)?;
            said.make_room(history, false);
            said.elements.push(element);
            said.parts.push(part);
            return Ok(());
        }
        if let Some(form) = Form::of_call(&kind).filter(|_| !calls::is_served(&item)) {
            if let Some(call) = read_calls::call(form, &item)? {
                said.elements.push(element);
                self.served.remove(&call.id);
                self.called.insert(call.id.clone());
                said.calls.push(call);
                return Ok(());
            }
        } else if let Some(form) =
            Form::of_output(&kind).filter(|_| !is_served_output(&self.served, &item))
        {
            if let Some(answer) = read_calls::answer(form, &item)? {
                said.flush(history);
                history.answer(answer);
                return Ok(());
            }
        } else if let Some(id) = name_at(&item, "call_id").filter(|id| !self.called.contains(*id)) {
            self.served.insert(id.into());
        }
        let block = provider_block(PROVIDER, item)?;
        said.elements.push(element);
        said.parts.push(block);
        Ok(())
    }
}

/// Whether the API itself gave this output.
fn is_served_output(served: &HashSet<Box<str>>, item: &Value) -> bool {
    let id = name_at(item, "call_id");
    id.is_some_and(|id| served.contains(id))
        || (name_at(item, "type") == Some("tool_search_output")
            && (name_at(item, "execution") == Some("server") || id.is_none()))
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
            let content = item.content("content", |part| system_part(PROVIDER, part))?;
            said.flush(history);
            history.system(content, None);
        }
        "assistant" => {
            let notes = [("id", item.text("id")?), ("phase", item.text("phase")?)];
            let content = item.content("content", |part| assistant_part(part, &notes))?;
            said.make_room(history, true);
            said.elements.push(history.element());
            said.speaks = true;
            said.is_text |= matches!(content, Content::Text(_));
            said.parts
                .append(&mut crate::provider::foreign::into_parts(content));
        }
        _ => {
            // The API knows more roles than we do, or will.
            let element = history.element();
            let block = part(
                PartKind::ProviderBlock {
                    provider: PROVIDER,
                    data: item.put_back("role", Value::text(&role)),
                },
                None,
            );
            said.make_room(history, false);
            said.elements.push(element);
            said.parts.push(block);
        }
    }
    Ok(())
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

fn assistant_part(value: Value, notes: &[(&str, Option<Box<str>>)]) -> Result<Part, Error> {
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
    let known: Vec<_> = notes
        .iter()
        .map(|(key, note)| (*key, note.as_deref()))
        .collect();
    let is_noted = known.iter().any(|(_, note)| note.is_some());
    Ok(part(
        text.kind,
        is_noted.then(|| metadata(PROVIDER, &known)),
    ))
}
