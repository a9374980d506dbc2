//! Bedrock Converse.

use super::formats::DOCUMENTS;
use super::Room;
use crate::error::Error;
use crate::log::call::ToolCall;
use crate::log::message::{Output, Status};
use crate::log::part::{is_base64, Content, Part, PartKind, Source};
use crate::log::provider::Provider;
use crate::provider::format::Reads;
use crate::value::{Value, MAX_DEPTH};

use crate::provider::dialect::blocks::{output, Said};
use crate::provider::foreign::{
    at, bounded, call, each, has, inline_image, json_part, metadata, name_at, part, plain_content,
    provider_block, text_block, text_part, Object, CONTENT,
};
use crate::provider::listener::{Answer, Listener};

const PROVIDER: Provider = Provider::Bedrock;

impl Reads for Room {
    fn read(&self, body: &mut Object, history: &mut Listener) -> Result<(), Error> {
        if let Some(system) = body.take("system") {
            let key = body.key("system");
            history
                .read_prompt(system, system_content)
                .map_err(|error| error.within(key))?;
        }
        let messages = body.need_list("messages", "a list of messages")?;
        history
            .read_each(messages, read_message)
            .map_err(|error| error.within(body.key("messages")))
    }
}

fn system_content(content: Value) -> Result<Content, Error> {
    let Value::List(blocks) = content else {
        return Err(Error::invalid(Vec::new(), "a list of system blocks"));
    };
    let blocks = each(blocks.into_vec(), |block| {
        match at(&block, "guardContent") {
            _ if is_cache_point(&block) => Ok(None),
            Some(guarded) => Ok(at(guarded, "text")
                .and_then(|text| name_at(text, "text"))
                .map(|text| text_part(text.as_bytes().into()))),
            None => text_block(block, "text").map(Some),
        }
    })?;
    let parts: Vec<Part> = blocks.into_iter().flatten().collect();
    Ok(match plain_content(parts) {
        Content::None => Content::Parts(Box::default()),
        content => content,
    })
}

/// Where a cache breakpoint stands is no part of a conversation.
fn is_cache_point(block: &Value) -> bool {
    has(block, "cachePoint")
}

fn read_message(message: Value, history: &mut Listener) -> Result<(), Error> {
    let mut message = Object::read(message, "a message, an object")?;
    let role = message.need_text("role")?;
    let blocks = message.need_list("content", "content: a list of blocks")?;
    let read = match &*role {
        "user" => user(blocks, history),
        "assistant" => assistant(blocks, history),
        "system" => system_content(Value::List(blocks.into_boxed_slice()))
            .map(|content| history.system(content, None)),
        _ => return Err(message.wrong("role", "\"user\" or \"assistant\"")),
    };
    read.map_err(|error| error.within(message.key("content")))
}

fn user(blocks: Vec<Value>, history: &mut Listener) -> Result<(), Error> {
    let mut parts = Vec::new();
    let mut answers: Vec<Answer> = Vec::new();
    each(blocks, |block| {
        if has(&block, "toolResult") {
            let mut answer =
                Object::read(block, "")?.need_object("toolResult", "a tool result", result)?;
            answer.moved = !parts.is_empty();
            answers.push(answer);
        } else if !is_cache_point(&block) {
            parts.push(user_part(block)?);
        }
        Ok(())
    })?;
    history.user_turn(answers, parts);
    Ok(())
}

fn assistant(blocks: Vec<Value>, history: &mut Listener) -> Result<(), Error> {
    let mut said = Said::default();
    each(blocks, |block| {
        if has(&block, "toolUse") {
            said.call(Object::read(block, "")?.need_object("toolUse", "a tool call", read_call)?);
        } else if !is_cache_point(&block) {
            said.part(assistant_part(block)?);
        }
        Ok(())
    })?;
    said.join(history);
    Ok(())
}

fn read_call(mut tool: Object) -> Result<ToolCall, Error> {
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
    match media(&block) {
        Some(kind) => Ok(part(kind, None)),
        None => provider_block(PROVIDER, block),
    }
}

fn assistant_part(block: Value) -> Result<Part, Error> {
    if has(&block, "text") {
        return text_block(block, "text");
    }
    if has(&block, "toolResult") {
        return Err(Error::invalid(
            Vec::new(),
            "a block of an assistant message",
        ));
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

fn media(block: &Value) -> Option<PartKind> {
    if let Some(image) = at(block, "image") {
        let format = name_at(image, "format")?;
        let data = name_at(at(image, "source")?, "bytes")?;
        return inline_image(format!("image/{format}").into(), data.into());
    }
    let document = at(block, "document")?;
    let format = name_at(document, "format")?;
    let data = name_at(at(document, "source")?, "bytes")?;
    let (_, media_type) = DOCUMENTS.iter().find(|(name, _)| *name == format)?;
    is_base64(data).then(|| PartKind::File {
        media_type: Some((*media_type).into()),
        source: Source::Data(data.into()),
        filename: name_at(document, "name").map(Into::into),
    })
}

fn result(mut result: Object) -> Result<Answer, Error> {
    let id = result.need_text("toolUseId")?;
    let status = match result.text("status")?.as_deref() {
        Some("error") => Status::Error,
        _ => Status::Ok,
    };
    let key = result.key("content");
    let output = match result.take("content") {
        None => Output::Value(Value::Nil),
        Some(Value::List(blocks)) => {
            result_output(blocks.into_vec(), status).map_err(|error: Error| error.within(key))?
        }
        Some(_) => return Err(result.wrong("content", CONTENT)),
    };
    Ok(Answer {
        id: Some(id),
        status,
        ..Answer::ok(output)
    })
}

/// One text is text, one object a map; else there are parts.
fn result_output(blocks: Vec<Value>, status: Status) -> Result<Output, Error> {
    if let ([block], Status::Ok) = (&*blocks, status) {
        if let Some(json @ Value::Map(_)) = at(block, "json") {
            bounded(json, MAX_DEPTH)?;
            return Ok(Output::Value(json.clone()));
        }
    }
    let parts = each(blocks, |block| {
        if has(&block, "text") {
            return text_block(block, "text");
        }
        match (media(&block), at(&block, "json")) {
            (Some(kind), _) => Ok(part(kind, None)),
            (None, Some(json)) => {
                let text = crate::value::json::write(json).into_bytes();
                Ok(text_part(text.into_boxed_slice()))
            }
            (None, None) => json_part(&block),
        }
    })?;
    Ok(output(plain_content(parts), status))
}
