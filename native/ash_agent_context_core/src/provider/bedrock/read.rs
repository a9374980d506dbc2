//! Reading requests to Bedrock Converse.

use std::collections::HashSet;

use super::formats::{AUDIO, DOCUMENTS, VIDEO};
use super::Room;
use crate::error::{each, Error};
use crate::log::call::ToolCall;
use crate::log::message::{Output, Status};
use crate::log::part::{is_base64, Class, Content, MediaPart, Part, PartKind, Source};
use crate::log::provider::Provider;
use crate::provider::format::Reads;
use crate::value::{Value, MAX_DEPTH};

use crate::provider::dialect::blocks::{output, ModelBlocks};
use crate::provider::foreign::{
    at, call, check_levels, given_content, has, image, inline_image, json_like, json_part,
    json_text, metadata, metadata_with, name_at, part, part_or_block, plain_content,
    provider_block, system_part, text_block, CONTENT,
};
use crate::provider::listener::{Listener, ReadResult, UserBlock};
use crate::value::fields::Fields;

const PROVIDER: Provider = Provider::Bedrock;

impl Reads for Room {
    fn read(&self, body: &mut Fields, history: &mut Listener) -> Result<(), Error> {
        history.read_prompt(body, "system", system_content)?;
        history.read_list(body, "messages", "a list of messages", read_message)
    }
}

fn system_content(content: Value) -> Result<Content, Error> {
    let Value::List(blocks) = content else {
        return Err(Error::invalid(Vec::new(), "a list of system blocks"));
    };
    let blocks = blocks.into_vec().into_iter();
    let blocks = blocks.filter(|block| !is_cache_point(block));
    let parts = each(blocks, |block| system_part(PROVIDER, block))?;
    Ok(given_content(parts))
}

/// Returns whether a block is a cache breakpoint, which is not part of a conversation.
fn is_cache_point(block: &Value) -> bool {
    has(block, "cachePoint")
}

fn read_message(message: Value, history: &mut Listener) -> Result<(), Error> {
    let mut message = Fields::read(message, "a message, an object")?;
    let role = message.need_text("role")?;
    let blocks = message.need_list("content", "content: a list of blocks")?;
    let read = match &*role {
        "assistant" => assistant(blocks, history),
        "system" if !blocks.iter().any(is_unknown_to_system) => {
            system_content(Value::List(blocks.into_boxed_slice()))
                .map(|content| history.system(content, None))
        }
        // Other roles too, which we do not know.
        _ => user(blocks, history),
    };
    read.map_err(|error| error.within(message.key("content")))
}

/// Returns whether a block of a system message is more than a text, such as the tools that there are from here on.
fn is_unknown_to_system(block: &Value) -> bool {
    has(block, "toolAddition") || has(block, "toolRemoval")
}

fn user(blocks: Vec<Value>, history: &mut Listener) -> Result<(), Error> {
    let is_other = |file: &Value| name_at(file, "format") != Some("pdf");
    let is_refused = |pair: &[Value]| matches!(pair, [block, mark] if is_cache_point(mark) && at(block, "document").is_some_and(is_other));
    if blocks.windows(2).any(is_refused) {
        history.mark_refused();
    }
    history.read_user(blocks, |block| {
        if has(&block, "toolResult") {
            let mut block = Fields::read(block, "")?;
            let answer = block.need_object("toolResult", "a tool result", result);
            return answer.map(UserBlock::Answer);
        }
        match is_cache_point(&block) {
            true => Ok(UserBlock::Mark),
            false => user_part(block).map(UserBlock::Part),
        }
    })
}

/// Returns whether the service itself answers a tool's use of this type; nothing else in the block says so.
pub(super) fn is_served(kind: Option<&str>) -> bool {
    kind == Some("server_tool_use")
}

/// Returns whether a result in a message of the model is the service's own.
fn is_served_result(block: &Value, served: &HashSet<Box<str>>) -> bool {
    at(block, "toolResult").is_some_and(|result| {
        let id = name_at(result, "toolUseId");
        has(result, "type") || id.is_some_and(|id| served.contains(id))
    })
}

fn assistant(blocks: Vec<Value>, history: &mut Listener) -> Result<(), Error> {
    let mut said = ModelBlocks::default();
    let mut served = HashSet::new();
    each(blocks, |block| {
        let used = at(&block, "toolUse");
        if used.is_some_and(|used| !is_served(name_at(used, "type"))) {
            said.call(Fields::read(block, "")?.need_object("toolUse", "a tool call", read_call)?);
            return Ok(());
        }
        served.extend(used.and_then(|used| name_at(used, "toolUseId").map(Box::from)));
        if has(&block, "toolResult") && !is_served_result(&block, &served) {
            let expected = "a block of an assistant message";
            return Err(Error::invalid(Vec::new(), expected));
        }
        if !is_cache_point(&block) {
            said.part(assistant_part(block)?);
        }
        Ok(())
    })?;
    said.join(PROVIDER, |part| !part.kind.is_thinking(), history);
    Ok(())
}

fn read_call(mut tool: Fields) -> Result<ToolCall, Error> {
    let id = tool.text("toolUseId")?;
    let name = tool.need_name("name")?;
    Ok(call(id, name, tool.arguments("input")?, None))
}

fn user_part(block: Value) -> Result<Part, Error> {
    if has(&block, "text") {
        return text_block(block, "text");
    }
    if has(&block, "toolUse") || has(&block, "reasoningContent") {
        return Err(Error::invalid(Vec::new(), "a block of a user message"));
    }
    part_or_block(media(&block), PROVIDER, block)
}

/// Reads a part of the model's, in a request or an answer.
pub(super) fn assistant_part(block: Value) -> Result<Part, Error> {
    if has(&block, "text") {
        return text_block(block, "text");
    }
    if let Some(part) = read_cited(&block) {
        return Ok(part);
    }
    let Some(reasoning) = at(&block, "reasoningContent") else {
        return provider_block(PROVIDER, block);
    };
    if let Some(data) = name_at(reasoning, "redactedContent") {
        let kind = PartKind::RedactedThinking(data.into());
        return Ok(part(kind, Some(metadata(PROVIDER, &[]))));
    }
    let thought = at(reasoning, "reasoningText");
    match thought.and_then(|thought| at(thought, "text").map(|text| (thought, text))) {
        Some((thought, Value::Binary(text))) => {
            let signature = name_at(thought, "signature");
            let metadata = metadata(PROVIDER, &[("signature", signature)]);
            Ok(part(PartKind::Thinking(text.clone()), Some(metadata)))
        }
        _ => provider_block(PROVIDER, block),
    }
}

/// Reads a text with its citations. Nova cites for the text before, in a block that has none.
fn read_cited(block: &Value) -> Option<Part> {
    let cited = at(block, "citationsContent")?;
    let text = match at(cited, "content").map(Value::as_list) {
        None => Box::default(),
        Some(Some([Value::Map(one)])) if one.len() == 1 => match one.get_named("text")? {
            Value::Binary(text) => text.clone(),
            _ => return None,
        },
        Some(_) => return None,
    };
    let known = 1 + usize::from(has(cited, "content"));
    let citations = at(cited, "citations").filter(|of| matches!(of, Value::List(_)))?;
    if !matches!(cited, Value::Map(map) if map.len() == known) {
        return None;
    }
    let citations = json_like(citations.clone(), MAX_DEPTH - 1).ok()?;
    let metadata = metadata_with(PROVIDER, [("citations", citations)]);
    Some(part(PartKind::Text(text), Some(metadata)))
}

fn media(block: &Value) -> Option<PartKind> {
    if let Some(picture) = at(block, "image") {
        let format = name_at(picture, "format")?;
        let media_type: Box<str> = format!("image/{format}").into();
        return match source(picture)? {
            Source::Data(data) => inline_image(media_type, data),
            source => Some(image(Some(media_type), source)),
        };
    }
    let mut kinds = [
        ("audio", Class::Audio, &AUDIO[..]),
        ("video", Class::Video, &VIDEO[..]),
        ("document", Class::File, &DOCUMENTS[..]),
    ]
    .into_iter();
    let (of, class, table) =
        kinds.find_map(|(key, class, table)| Some((at(block, key)?, class, table)))?;
    let format = name_at(of, "format")?;
    let (_, media_type) = table.iter().find(|(name, _)| *name == format)?;
    let filename = name_at(of, "name").filter(|_| class == Class::File);
    Some(PartKind::Media(MediaPart {
        class,
        media_type: Some((*media_type).into()),
        source: source(of)?,
        filename: filename.map(Into::into),
    }))
}

/// Returns the bytes, or the place in S3; a document's text is neither.
fn source(of: &Value) -> Option<Source> {
    let source = at(of, "source")?;
    if let Some(location) = at(source, "s3Location") {
        let uri = name_at(location, "uri").filter(|_| !has(location, "bucketOwner"))?;
        return Some(Source::Url(uri.into()));
    }
    let data = name_at(source, "bytes")?;
    is_base64(data).then(|| Source::Data(data.into()))
}

fn result(mut result: Fields) -> Result<ReadResult, Error> {
    let id = result.need_text("toolUseId")?;
    let status = match result.text("status")?.as_deref() {
        Some("error") => Status::Error,
        _ => Status::Ok,
    };
    let key = result.key("content");
    let output = match result.take_given("content") {
        None => Output::Value(Value::Nil),
        Some(Value::List(blocks)) => {
            result_output(blocks.into_vec(), status).map_err(|error: Error| error.within(key))?
        }
        Some(_) => return Err(result.wrong("content", CONTENT)),
    };
    Ok(ReadResult::new(Some(id), None, status, output))
}

/// Reads one text as text and one object as a map; all else as parts.
fn result_output(blocks: Vec<Value>, status: Status) -> Result<Output, Error> {
    if let ([block], Status::Ok) = (&*blocks, status) {
        if let Some(json @ Value::Map(_)) = at(block, "json") {
            check_levels(json, MAX_DEPTH)?;
            return Ok(Output::Value(json.clone()));
        }
    }
    let parts = each(blocks, |block| {
        if has(&block, "text") {
            return text_block(block, "text");
        }
        match (media(&block), at(&block, "json")) {
            (Some(kind), _) => Ok(part(kind, None)),
            (None, Some(json)) => Ok(json_text(json)),
            (None, None) => json_part(&block),
        }
    })?;
    Ok(output(plain_content(parts), status))
}
