//! Reading messages in the chat dialect.

use crate::error::Error;
use crate::log::call::ToolCall;
use crate::log::part::{Content, Part, PartKind};
use crate::log::provider::Provider;
use crate::value::Value;

use crate::provider::foreign::{
    at, call, each, inline_file, into_parts, json_part, metadata, name_at, part, provider_block,
    text_block, url_image, Object,
};
use crate::provider::listener::{Answer, Listener};

const ROLES: &str = "\"system\", \"developer\", \"user\", \"assistant\" or \"tool\"";

/// What one provider makes of the dialect.
pub(crate) struct Dialect {
    /// Whose it is.
    pub provider: Provider,
    /// Whether it takes an empty list of calls.
    pub empty_calls: bool,
    /// How thinking is read, where it is a part.
    pub thinking: Option<fn(Value) -> Result<Part, Error>>,
}

/// OpenAI's own.
pub(crate) const OPENAI: Dialect = Dialect {
    provider: Provider::OpenAiChat,
    empty_calls: false,
    thinking: None,
};

/// Takes the conversation out of a request's body.
pub fn read(body: &mut Object, history: &mut Listener, dialect: &Dialect) -> Result<(), Error> {
    let messages = body.need_list("messages", "a list of messages")?;
    let read = |message, history: &mut Listener| read_message(message, history, dialect);
    history
        .read_each(messages, read)
        .map_err(|error| error.within(body.key("messages")))
}

/// Reads one message.
pub fn read_message(
    message: Value,
    history: &mut Listener,
    dialect: &Dialect,
) -> Result<(), Error> {
    let mut message = Object::read(message, "a message, an object")?;
    match &*message.need_text("role")? {
        "system" | "developer" => {
            let content = message.content("content", |part| text_block(part, "text"))?;
            history.system(content, None);
        }
        "user" => {
            let content = message.content("content", |part| user_part(part, dialect))?;
            history.user(content, None);
        }
        "assistant" => {
            let content = message.content("content", |part| assistant_part(part, dialect))?;
            let content = refusal(&mut message, content)?;
            let content = reasoning(&mut message, content, dialect)?;
            let calls = match message.take("tool_calls") {
                Some(Value::List(none)) if none.is_empty() && !dialect.empty_calls => {
                    history.refused();
                    Vec::new()
                }
                given => calls(&mut message, given)?,
            };
            history.assistant(content, calls, None);
        }
        "tool" => {
            let answer = result(&mut message)?;
            history.answer(answer);
        }
        _ => return Err(message.wrong("role", ROLES)),
    }
    Ok(())
}

/// A part of a user message.
pub fn user_part(value: Value, dialect: &Dialect) -> Result<Part, Error> {
    match name_at(&value, "type") {
        Some("text") => text_block(value, "text"),
        Some("image_url") => image(value),
        Some("file") => match file(&value) {
            Some(kind) => Ok(part(kind, None)),
            None => provider_block(dialect.provider, value),
        },
        _ => provider_block(dialect.provider, value),
    }
}

/// A part of an assistant message.
pub fn assistant_part(value: Value, dialect: &Dialect) -> Result<Part, Error> {
    match name_at(&value, "type") {
        Some("text") => text_block(value, "text"),
        Some("refusal") => text_block(value, "refusal"),
        Some("thinking") => match dialect.thinking {
            Some(read) => read(value),
            None => provider_block(dialect.provider, value),
        },
        _ => provider_block(dialect.provider, value),
    }
}

/// A refusal in the place of content is what the model says.
fn refusal(message: &mut Object, content: Content) -> Result<Content, Error> {
    match (content, message.text("refusal")?) {
        (Content::None, Some(text)) => Ok(Content::Text(text.into_boxed_bytes())),
        (content, _) => Ok(content),
    }
}

/// Reasoning beside the content, as DeepSeek and others have it.
fn reasoning(message: &mut Object, content: Content, dialect: &Dialect) -> Result<Content, Error> {
    let Some(text) = message.text("reasoning_content")? else {
        return Ok(content);
    };
    let thinking = PartKind::Thinking(text.into_boxed_bytes());
    let mut parts = vec![part(thinking, Some(metadata(dialect.provider, &[])))];
    parts.append(&mut into_parts(content));
    Ok(Content::Parts(parts.into_boxed_slice()))
}

fn calls(message: &mut Object, given: Option<Value>) -> Result<Vec<ToolCall>, Error> {
    if message.take("function_call").is_some() {
        let expected = "tool_calls, which took the place of function_call";
        return Err(message.wrong("function_call", expected));
    }
    match given {
        None => Ok(Vec::new()),
        Some(Value::List(calls)) => each(calls.into_vec(), read_call)
            .map_err(|error| error.within(message.key("tool_calls"))),
        Some(_) => Err(message.wrong("tool_calls", "a list of tool calls")),
    }
}

/// Reads one call.
pub fn read_call(value: Value) -> Result<ToolCall, Error> {
    let mut object = Object::read(value, "a tool call, an object")?;
    if !matches!(object.text("type")?.as_deref(), None | Some("function")) {
        return Err(object.wrong("type", "\"function\""));
    }
    let id = object.text("id")?;
    object.need_object("function", "the function that is called", |mut function| {
        let name = function.need_name("name")?;
        Ok(call(id, name, function.arguments("arguments")?, None))
    })
}

fn result(message: &mut Object) -> Result<Answer, Error> {
    let id = message.text("tool_call_id")?;
    let name = message.text("name")?;
    let content = message.content("content", |value| match name_at(&value, "type") {
        Some("text") => text_block(value, "text"),
        Some("image_url") => image(value),
        _ => json_part(&value),
    })?;
    let output = crate::provider::dialect::blocks::output(content, crate::log::message::Status::Ok);
    Ok(Answer {
        id,
        name,
        ..Answer::ok(output)
    })
}

/// An image by its URL, which stands in an object or alone.
fn image(value: Value) -> Result<Part, Error> {
    let mut object = Object::read(value, "")?;
    let key = object.key("image_url");
    let expected = "an image's url";
    let url = match object.take("image_url") {
        Some(image @ Value::Map(_)) => {
            let mut image = Object::read(image, expected)?;
            image.need_text("url").map_err(|error| error.within(key))?
        }
        Some(Value::Binary(url)) => match String::from_utf8(url.into_vec()) {
            Ok(url) => url.into_boxed_str(),
            Err(_) => return Err(object.wrong("image_url", expected)),
        },
        _ => return Err(object.wrong("image_url", expected)),
    };
    if url.trim().is_empty() {
        return Err(object.wrong("image_url", expected));
    }
    Ok(part(url_image(url), None))
}

/// A file whose bytes are there.
fn file(value: &Value) -> Option<PartKind> {
    let file = at(value, "file")?;
    let filename = name_at(file, "filename").map(Into::into);
    inline_file(name_at(file, "file_data")?, filename)
}
