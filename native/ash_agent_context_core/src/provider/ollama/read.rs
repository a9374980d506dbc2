//! Reads requests to Ollama chat.

use super::Room;
use crate::error::Error;
use crate::log::message::{Output, Status};
use crate::log::part::{Content, Part, PartKind};
use crate::log::provider::Provider;
use crate::provider::format::Reads;
use crate::value::{Map, Value};

use crate::provider::foreign::{call, inline_image, metadata, part, provider_block, text_part};
use crate::provider::listener::{Listener, ReadResult};
use crate::value::fields::Fields;

const PROVIDER: Provider = Provider::Ollama;
const ROLES: &str = "\"system\", \"user\", \"assistant\" or \"tool\"";

impl Reads for Room {
    fn read(&self, body: &mut Fields, history: &mut Listener) -> Result<(), Error> {
        history.read_list(body, "messages", "a list of messages", read_message)
    }

    fn is_row(&self, element: &Map) -> bool {
        let role = element.get_named("role").and_then(Value::as_name);
        role.is_some_and(|role| !["system", "user", "assistant", "tool"].contains(&role))
    }
}

fn read_message(message: Value, history: &mut Listener) -> Result<(), Error> {
    if matches!(&message, Value::Map(map) if Room.is_row(map)) {
        history.whole(provider_block(PROVIDER, message)?);
        return Ok(());
    }
    let mut message = Fields::read(message, "a message, an object")?;
    let role = message.need_text("role")?;
    let text = match message.take_given("content") {
        None => None,
        Some(Value::Binary(text)) => Some(text),
        Some(_) => return Err(message.wrong("content", "text")),
    };
    let images = message.read_list("images", "a list of images", image)?;
    match &*role {
        "system" => history.system(text.map_or(Content::None, Content::Text), None),
        "user" => history.user(content(Vec::new(), text, images), None),
        "assistant" => {
            let mut parts = Vec::new();
            if let Some(thinking) = message.text("thinking")?.filter(|text| !text.is_empty()) {
                let thinking = PartKind::Thinking(thinking.into_boxed_bytes());
                parts.push(part(thinking, Some(metadata(PROVIDER, &[]))));
            }
            let gives_calls = message.has("tool_calls");
            let calls = message.read_list("tool_calls", "a list of tool calls", read_call)?;
            if gives_calls && calls.is_empty() {
                history.mark_refused();
            }
            // The server wants an empty text if there is nothing else.
            let text = text.filter(|text| !text.is_empty() || calls.is_empty());
            history.assistant(content(parts, text, images), calls, None);
        }
        "tool" => {
            let name = match message.text("tool_name")? {
                Some(name) => Some(name),
                None => message.text("name")?,
            };
            let output = Output::Value(text.map_or(Value::Nil, Value::Binary));
            let id = message.text("tool_call_id")?;
            history.answer(ReadResult::new(id, name, Status::Ok, output));
        }
        _ => return Err(message.wrong("role", ROLES)),
    }
    Ok(())
}

/// Returns a text alone as text. Beside thinking or images it is a part, unless it is empty.
fn content(mut parts: Vec<Part>, text: Option<Box<[u8]>>, mut images: Vec<Part>) -> Content {
    if parts.is_empty() && images.is_empty() {
        return text.map_or(Content::None, Content::Text);
    }
    parts.extend(text.filter(|text| !text.is_empty()).map(text_part));
    parts.append(&mut images);
    Content::Parts(parts.into_boxed_slice())
}

fn read_call(value: Value) -> Result<crate::log::call::ToolCall, Error> {
    let mut object = Fields::read(value, "a tool call, an object")?;
    let id = object.text("id")?;
    object.need_object("function", "the function that is called", |mut function| {
        let name = function.need_name("name")?;
        Ok(call(id, name, function.arguments("arguments")?, None))
    })
}

/// Reads bare base64, whose first bytes tell the media type.
pub(super) fn image(value: Value) -> Result<Part, Error> {
    let data = value.as_str().unwrap_or_default();
    let media_type = match data {
        _ if data.starts_with("/9j/") => "image/jpeg",
        _ if data.starts_with("R0lGOD") => "image/gif",
        _ if data.starts_with("UklGR") => "image/webp",
        _ => "image/png",
    };
    match inline_image(media_type.into(), data.into()) {
        Some(kind) => Ok(part(kind, None)),
        None => Err(Error::invalid(Vec::new(), "base64")),
    }
}
