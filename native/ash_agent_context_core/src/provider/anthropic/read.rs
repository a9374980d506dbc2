//! Reading requests to Anthropic Messages.

use super::{Room, CALLED};
use crate::error::{each, Error};
use crate::log::call::ToolCall;
use crate::log::declined::has_declined;
use crate::log::part::{is_base64, Content, Part, PartKind, Source};
use crate::log::provider::Provider;
use crate::provider::format::Reads;
use crate::value::{Map, Value, MAX_DEPTH};

use crate::provider::dialect::blocks::{output, ModelBlocks};
use crate::provider::foreign::{
    assumed_call, at, call, filled_name_at, image_or_file, inline_image, json_like, json_part,
    metadata, metadata_with, name_at, part, part_or_block, provider_block, refuse_misplaced,
    stored, system_part, text_block, text_part, CONTENT,
};
use crate::provider::listener::{Listener, ReadResult, UserBlock};
use crate::value::fields::Fields;

const PROVIDER: Provider = Provider::Anthropic;

impl Reads for Room {
    fn read(&self, body: &mut Fields, history: &mut Listener) -> Result<(), Error> {
        history.read_prompt(body, "system", system_content)?;
        if body
            .get("thread")
            .and_then(|thread| name_at(thread, "type"))
            == Some("continue")
        {
            let calls = assume_calls(body.get("messages"));
            if !calls.is_empty() {
                history.assistant_of(&[], Content::None, calls, None);
            }
        }
        history.read_list(body, "messages", "a list of messages", read_message)
    }

    /// Returns whether a message has no neutral form: its role is unknown, or it is a system message with more than texts, such as
    /// the tools that there are from here on.
    fn is_row(&self, message: &Map) -> bool {
        match message.get_named("role").and_then(Value::as_name) {
            None | Some("user" | "assistant") => false,
            Some("system") => match message.get_named("content") {
                Some(Value::List(blocks)) => blocks.iter().any(is_unknown_to_system),
                _ => false,
            },
            Some(_) => true,
        }
    }
}

/// Returns the calls of the results at the beginning: the API keeps the messages before them.
fn assume_calls(messages: Option<&Value>) -> Vec<ToolCall> {
    let first = messages.and_then(Value::as_list).and_then(<[Value]>::first);
    let blocks = first.and_then(|first| at(first, "content")?.as_list());
    let results = blocks.into_iter().flatten();
    let results = results.filter(|block| name_at(block, "type") == Some("tool_result"));
    let ids = results.filter_map(|result| name_at(result, "tool_use_id"));
    ids.map(|id| assumed_call(PROVIDER, id, None)).collect()
}

fn read_message(message: Value, history: &mut Listener) -> Result<(), Error> {
    if matches!(&message, Value::Map(map) if Room.is_row(map)) {
        history.whole(provider_block(PROVIDER, message)?);
        return Ok(());
    }
    let mut message = Fields::read(message, "a message, an object")?;
    let role = message.need_text("role")?;
    let content = message.take_given("content").unwrap_or(Value::Nil);
    let read = match &*role {
        "user" => user(content, history),
        "assistant" => assistant(content, history),
        _ => system_content(content).map(|content| history.system(content, None)),
    };
    read.map_err(|error| error.within(message.key("content")))
}

fn is_unknown_to_system(block: &Value) -> bool {
    name_at(block, "type").is_some_and(|kind| kind != "text")
}

fn system_content(content: Value) -> Result<Content, Error> {
    match content {
        Value::Binary(text) => Ok(Content::Text(text)),
        Value::List(blocks) => {
            let blocks = each(blocks.into_vec(), |block| system_part(PROVIDER, block))?;
            Ok(Content::Parts(blocks.into_boxed_slice()))
        }
        _ => Err(Error::invalid(Vec::new(), CONTENT)),
    }
}

fn blocks(content: Value) -> Result<Vec<Value>, Error> {
    match content {
        Value::Nil => Ok(Vec::new()),
        Value::List(blocks) => Ok(blocks.into_vec()),
        _ => Err(Error::invalid(Vec::new(), CONTENT)),
    }
}

/// Reads the results of the message, then its other parts.
fn user(content: Value, history: &mut Listener) -> Result<(), Error> {
    if let Value::Binary(text) = content {
        history.user(Content::Text(text), None);
        return Ok(());
    }
    history.read_user(blocks(content)?, |block| match name_at(&block, "type") {
        Some("tool_result") => result(block).map(UserBlock::Answer),
        _ => user_part(block).map(UserBlock::Part),
    })
}

fn assistant(content: Value, history: &mut Listener) -> Result<(), Error> {
    if let Value::Binary(text) = content {
        history.assistant(Content::Text(text), Vec::new(), None);
        return Ok(());
    }
    let mut said = ModelBlocks::default();
    each(blocks(content)?, |block| {
        if name_at(&block, "type") == Some("tool_use") {
            let mut block = Fields::read(block, "")?;
            let id = block.text("id")?;
            let name = block.need_name("name")?;
            let metadata = read_call_notes(&block)?;
            said.call(call(id, name, block.arguments("input")?, metadata));
        } else {
            said.part(assistant_part(block)?);
        }
        Ok(())
    })?;
    // Anthropic refuses thinking without a signature; a dialect sends it all the same.
    let mut thoughts = said
        .parts()
        .iter()
        .filter(|part| part.kind.thoughts().is_some());
    let is_unsigned = thoughts.any(|part| part.provider_text("signature").is_none());
    if is_unsigned || has_declined(said.parts()) {
        history.mark_refused();
    }
    said.join(PROVIDER, |part| part.half().is_some(), history);
    Ok(())
}

/// Returns the fields of a call beside its arguments.
fn read_call_notes(block: &Fields) -> Result<Option<Map>, Error> {
    let mut metadata = metadata(PROVIDER, &[]);
    for key in CALLED {
        if let Some(value) = block.get(key) {
            let value = json_like(value.clone(), MAX_DEPTH - 1)?;
            metadata = metadata.put(Value::atom(key), value);
        }
    }
    Ok((metadata.len() > 1).then_some(metadata))
}

fn user_part(block: Value) -> Result<Part, Error> {
    match name_at(&block, "type") {
        Some("text") => text_block(block, "text"),
        Some("image" | "document") => part_or_block(media(&block), PROVIDER, block),
        Some("tool_use" | "thinking" | "redacted_thinking") => Err(refuse_misplaced(&block)),
        _ => provider_block(PROVIDER, block),
    }
}

fn assistant_part(block: Value) -> Result<Part, Error> {
    match name_at(&block, "type") {
        Some("text") => {
            let citations = at(&block, "citations")
                .filter(|of| matches!(of, Value::List(items) if !items.is_empty()));
            let citations = citations.map(|of| json_like(of.clone(), MAX_DEPTH - 1));
            let mut part = text_block(block, "text")?;
            if let Some(citations) = citations {
                part.provider_metadata = Some(metadata_with(PROVIDER, [("citations", citations?)]));
            }
            Ok(part)
        }
        Some("thinking") => {
            let mut block = Fields::read(block, "")?;
            let text = block.need_bytes("thinking")?;
            let signature = block.text("signature")?.filter(|text| !text.is_empty());
            let metadata = metadata(PROVIDER, &[("signature", signature.as_deref())]);
            Ok(part(PartKind::Thinking(text), Some(metadata)))
        }
        Some("redacted_thinking") => {
            let data = Fields::read(block, "")?.need_text("data")?;
            let metadata = metadata(PROVIDER, &[]);
            Ok(part(PartKind::RedactedThinking(data), Some(metadata)))
        }
        Some("tool_result") => Err(refuse_misplaced(&block)),
        _ => provider_block(PROVIDER, block),
    }
}

/// Returns an image or a document whose bytes or address are there.
fn media(block: &Value) -> Option<PartKind> {
    let source = at(block, "source")?;
    let is_image = name_at(block, "type") == Some("image");
    let (media_type, source) = match name_at(source, "type")? {
        "base64" => {
            let (media_type, data) = (name_at(source, "media_type")?, name_at(source, "data")?);
            if is_image {
                return inline_image(media_type.into(), data.into());
            }
            let data = is_base64(data).then(|| Source::Data(data.into()))?;
            (Some(media_type.into()), data)
        }
        "file" => {
            let id = filled_name_at(source, "file_id")?;
            (None, stored(PROVIDER, id))
        }
        "url" => (None, Source::Url(filled_name_at(source, "url")?.into())),
        _ => return None,
    };
    let title = name_at(block, "title").map(Into::into);
    Some(image_or_file(is_image, media_type, source, title))
}

fn result(block: Value) -> Result<ReadResult, Error> {
    let mut block = Fields::read(block, "")?;
    let id = block.need_text("tool_use_id")?;
    let status = block.status();
    let content = block.content("content", result_part)?;
    Ok(ReadResult::new(
        Some(id),
        None,
        status,
        output(content, status),
    ))
}

fn result_part(block: Value) -> Result<Part, Error> {
    match name_at(&block, "type") {
        Some("text") => text_block(block, "text"),
        Some("image" | "document") => match (media(&block), text_of_document(&block)) {
            (Some(kind), _) => Ok(part(kind, None)),
            (None, Some(text)) => Ok(text_part(text.as_bytes().into())),
            (None, None) => json_part(&block),
        },
        Some("tool_use" | "tool_result" | "thinking" | "redacted_thinking") => {
            Err(refuse_misplaced(&block))
        }
        Some("tool_reference") => provider_block(PROVIDER, block),
        _ => json_part(&block),
    }
}

fn text_of_document(block: &Value) -> Option<&str> {
    let source = at(block, "source")?;
    name_at(source, "data").filter(|_| name_at(source, "type") == Some("text"))
}
