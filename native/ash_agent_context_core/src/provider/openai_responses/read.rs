//! Reads requests to OpenAI Responses.

use std::collections::{HashMap, HashSet};

use super::calls;
use super::facts::ItemForm;
use super::read_calls::{self, media};
use super::texts::{self, Notes};
use super::{Room, PROVIDER};
use crate::error::Error;
use crate::log::call::ToolCall;
use crate::log::kind::CallKind;
use crate::log::part::{Content, Part, PartKind};
use crate::provider::foreign::{
    into_parts, metadata_with, name_at, order_calls, own_block, part, provider_block, system_part,
    text_block,
};
use crate::provider::format::Reads;
use crate::provider::listener::Listener;
use crate::value::fields::Fields;
use crate::value::Value;

impl Reads for Room {
    fn read(&self, body: &mut Fields, history: &mut Listener) -> Result<(), Error> {
        history.read_prompt(body, "instructions", |instructions| match instructions {
            Value::Binary(text) => Ok(Content::Text(text)),
            _ => Err(Error::invalid(Vec::new(), "text")),
        })?;
        let key = body.key("input");
        let items = match body.take_given("input") {
            Some(Value::Binary(text)) => {
                history.user(Content::Text(text), None);
                return Ok(());
            }
            Some(Value::List(items)) => items.into_vec(),
            _ => return Err(body.wrong("input", "text or a list of items")),
        };
        let continues = body.has("previous_response_id") || body.has("conversation");
        let mut reading = ItemReader {
            outputs: last_outputs(&items),
            assumed: match continues {
                true => read_calls::assume_calls(&items),
                false => HashMap::new(),
            },
            keeps_items: body.get("store") != Some(&Value::Bool(false)),
            ..ItemReader::default()
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
struct ItemReader {
    said: ModelItems,
    /// Calls for the application.
    called: HashSet<Box<str>>,
    /// Calls that the API itself answers.
    served: HashSet<Box<str>>,
    /// The position of each call's last output, see [`last_outputs`].
    outputs: HashMap<(usize, Box<str>), usize>,
    /// The number of messages so far that are not the model's.
    turn: usize,
    /// Calls that only the API keeps, by the position of the item after them.
    assumed: HashMap<usize, Vec<ToolCall>>,
    /// True if the API keeps the items, as it does unless it is told not to.
    keeps_items: bool,
}

/// Items of the model that make one message.
#[derive(Default)]
struct ModelItems {
    elements: Vec<usize>,
    parts: Vec<Part>,
    /// Each with the number of parts before it.
    calls: Vec<(usize, ToolCall)>,
    /// True if there is a message item among them.
    speaks: bool,
    /// True if the message is a bare text, not a list.
    is_text: bool,
}

impl ModelItems {
    fn flush(&mut self, history: &mut Listener) {
        let said = std::mem::take(self);
        if said.elements.is_empty() {
            return;
        }
        let (content, calls) = order_calls(PROVIDER, said.parts, said.calls);
        let content = match content {
            Content::Text(_) if !said.is_text => Content::Parts(into_parts(content).into()),
            content => content,
        };
        history.assistant_of(&said.elements, content, calls, None);
    }

    /// Ends the message before an item of the next one: it has its text, and no calls.
    fn make_room(&mut self, history: &mut Listener) {
        if self.speaks && self.calls.is_empty() {
            self.flush(history);
        }
    }
}

impl ItemReader {
    fn item(&mut self, item: Value, history: &mut Listener) -> Result<(), Error> {
        let element = history.element();
        if let Some(calls) = self.assumed.remove(&element) {
            self.said.flush(history);
            history.assistant_of(&[], Content::None, calls, None);
        }
        let said = &mut self.said;
        let kind: Box<str> = name_at(&item, "type").unwrap_or("message").into();
        if &*kind == "message" {
            self.turn += usize::from(is_of_others(&item));
            let is_answered = |(_, call): &(usize, ToolCall)| {
                let output = self.outputs.get(&(self.turn, call.id.clone()));
                output.is_some_and(|output| *output > element)
            };
            // Items after a call belong to the same answer if the call's output comes after them.
            if !said.calls.iter().all(is_answered) {
                said.flush(history);
            }
            return read_message(item, history, said);
        }
        if &*kind == "reasoning" {
            let (words, notes) = texts::reasoning(&item, self.keeps_items)?;
            let metadata = metadata_with(PROVIDER, notes);
            let part = part(PartKind::Thinking(words), Some(metadata));
            said.make_room(history);
            said.elements.push(element);
            said.parts.push(part);
            return Ok(());
        }
        let output = ItemForm::of_output(&kind);
        let output = output.filter(|_| !is_served_output(&self.served, &item));
        if let Some(form) = ItemForm::of_call(&kind).filter(|_| !calls::is_served(&item)) {
            if let Some(call) = read_calls::call(form, &item)? {
                said.elements.push(element);
                self.served.remove(&call.id);
                self.called.insert(call.id.clone());
                said.calls.push((said.parts.len(), call));
                return Ok(());
            }
        } else if let Some(form) = output {
            if let Some(answer) = read_calls::answer(form, &item)? {
                said.flush(history);
                if form.kind == CallKind::Shell && !calls::is_shell_output(&item) {
                    history.mark_refused();
                }
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

fn is_of_others(item: &Value) -> bool {
    matches!(name_at(item, "role"), Some("user" | "system" | "developer"))
}

/// Returns the position of each call's last output. The key has the number of messages before it that are not the model's.
fn last_outputs(items: &[Value]) -> HashMap<(usize, Box<str>), usize> {
    let mut turn = 0;
    let output = |(position, item): (usize, &Value)| {
        turn += usize::from(is_of_others(item));
        ItemForm::of_output(name_at(item, "type")?)?;
        let id = name_at(item, "call_id")?;
        Some(((turn, id.into()), position))
    };
    items.iter().enumerate().filter_map(output).collect()
}

/// Returns whether the API itself gave this output.
fn is_served_output(served: &HashSet<Box<str>>, item: &Value) -> bool {
    let id = name_at(item, "call_id");
    id.is_some_and(|id| served.contains(id))
        || (name_at(item, "type") == Some("tool_search_output")
            && (name_at(item, "execution") == Some("server") || id.is_none()))
}

fn read_message(item: Value, history: &mut Listener, said: &mut ModelItems) -> Result<(), Error> {
    let of_message = texts::message_notes(&item);
    let mut item = Fields::read(item, "an item, an object")?;
    let role = item.need_text("role")?;
    match &*role {
        "user" => {
            let content = item.content("content", user_part)?;
            said.flush(history);
            history.user(content, None);
        }
        "system" | "developer" => {
            let content = item.content("content", |part| {
                refuse_item(&part)?;
                system_part(PROVIDER, part)
            })?;
            said.flush(history);
            history.system(content, None);
        }
        "assistant" => {
            let has_id = item.text("id")?.is_some();
            item.text("phase")?;
            let content = item.content("content", |part| assistant_part(part, &of_message))?;
            said.make_room(history);
            // Reasoning is refused before a message that has no id.
            if !has_id
                && said
                    .parts
                    .last()
                    .is_some_and(|last| last.kind.is_thinking())
            {
                history.mark_refused();
            }
            said.elements.push(history.element());
            said.speaks = true;
            let is_text = matches!(content, Content::Text(_));
            let mut parts = into_parts(content);
            let notes = texts::text_notes(&Value::Nil, &of_message)?;
            if let Some(text) = parts.first_mut().filter(|_| is_text && !notes.is_empty()) {
                text.provider_metadata = Some(metadata_with(PROVIDER, notes));
            }
            said.is_text |= is_text;
            said.parts.append(&mut parts);
        }
        _ => {
            // The API has more roles than we know.
            let block = own_block(PROVIDER, item.put_back("role", Value::text(&role)));
            said.make_room(history);
            said.elements.push(history.element());
            said.parts.push(block);
        }
    }
    Ok(())
}

fn user_part(value: Value) -> Result<Part, Error> {
    if name_at(&value, "type") == Some("input_text") {
        return text_block(value, "text");
    }
    match media(&value) {
        Some(kind) => Ok(part(kind, None)),
        None => {
            refuse_item(&value)?;
            provider_block(PROVIDER, value)
        }
    }
}

/// Refuses a part that is an item: calls and outputs never stand in a message.
fn refuse_item(part: &Value) -> Result<(), Error> {
    let is_item = match name_at(part, "type") {
        Some("message" | "function_call" | "function_call_output" | "reasoning") => true,
        _ => name_at(part, "call_id").is_some(),
    };
    let expected = "a part of a message, not an item";
    match is_item {
        true => Err(Error::invalid(Vec::new(), expected)),
        false => Ok(()),
    }
}

fn assistant_part(value: Value, of_message: &Notes) -> Result<Part, Error> {
    let Some(words) = texts::words_key(&value) else {
        refuse_item(&value)?;
        return provider_block(PROVIDER, value);
    };
    let notes = texts::text_notes(&value, of_message)?;
    let text = text_block(value, words)?;
    let metadata = (!notes.is_empty()).then(|| metadata_with(PROVIDER, notes));
    Ok(part(text.kind, metadata))
}
