//! Reads lists of messages in OpenAI's chat format and in the neutral form, which may be mixed.

use crate::error::{each, Error};
use crate::log::call::{Name, ToolCall};
use crate::log::hints::CACHE;
use crate::log::message::{Output, Role};
use crate::log::part::{Content, Part, Place};
use crate::log::provider::Provider;
use crate::value::{Value, MAX_DEPTH};

use crate::provider::dialect::chat::read::{self as chat, ROLES, ROLES_KNOWN};
use crate::provider::foreign::{call, check_levels, has, name_at, CONTENT};
use crate::provider::listener::{split_user, Listener, ReadResult, UserBlock};
use crate::value::fields::Fields;

pub fn read(messages: Vec<Value>, history: &mut Listener) -> Result<(), Error> {
    history.read_each(messages, |message, history| {
        if is_neutral(&message) {
            neutral(message, history)
        } else if !has_known_role(&message) {
            // Nobody could get it back here.
            let key = Fields::read(message, "a message, a map")?.key("role");
            Err(Error::invalid(vec![key], ROLES))
        } else {
            chat::read_message(message, history, OPENAI)
        }
    })
}

/// Messages in no known provider's form have OpenAI's.
const OPENAI: Provider = Provider::OpenAiChat;

/// Returns whether a message is in the neutral form. A message that is the same in both forms counts as OpenAI's.
fn is_neutral(message: &Value) -> bool {
    let Value::Map(map) = message else {
        return false;
    };
    let any = |key: &str, test: fn(&Value) -> bool| match map.get_named(key) {
        Some(Value::List(items)) => items.iter().any(test),
        _ => false,
    };
    let is_neutral_call = |call: &Value| {
        !has(call, "function") && !has(call, "custom") && (has(call, "name") || has(call, "kind"))
    };
    matches!(map.get_named("metadata"), Some(Value::Map(_)))
        || any("tool_calls", is_neutral_call)
        || any("content", is_neutral_part)
}

fn is_neutral_part(part: &Value) -> bool {
    match name_at(part, "type") {
        Some("text") => has(part, "provider_metadata") || has(part, CACHE),
        Some("file") => !has(part, "file"),
        Some(
            "image" | "audio" | "video" | "thinking" | "redacted_thinking" | "provider_block"
            | "tool_result",
        ) => true,
        _ => false,
    }
}

fn neutral(message: Value, history: &mut Listener) -> Result<(), Error> {
    let mut message = Fields::read(message, "a message, a map")?;
    let role = message.text("role")?;
    let role = role.as_deref().and_then(Role::from_name);
    let roles = "\"system\", \"user\" or \"assistant\"";
    let role = role.ok_or_else(|| message.wrong("role", roles))?;
    let mut metadata = message.map("metadata")?;
    match role {
        Role::System => {
            let content = message.content("content", |part| read_part(part, Place::System))?;
            history.system(content, metadata);
        }
        Role::Assistant => {
            let content = message.content("content", |part| read_part(part, Place::Assistant))?;
            let calls = message.read_list("tool_calls", "a list of tool calls", read_call)?;
            history.assistant(content, calls, metadata);
        }
        Role::User => {
            let (mut answers, content) = user_content(&mut message)?;
            if let Some(answer) = answers.first_mut() {
                answer.metadata = metadata.take();
            }
            let says_nothing = !answers.is_empty() && content == Content::Parts(Box::default());
            for answer in answers {
                history.answer(answer);
            }
            if !says_nothing {
                history.user(content, metadata);
            }
        }
    }
    Ok(())
}

/// Returns the results, and apart from them the other content.
fn user_content(message: &mut Fields) -> Result<(Vec<ReadResult>, Content), Error> {
    let items = match message.take_given("content") {
        None => return Ok((Vec::new(), Content::None)),
        Some(Value::Binary(text)) => return Ok((Vec::new(), Content::Text(text))),
        Some(Value::List(items)) => items.into_vec(),
        Some(_) => return Err(message.wrong("content", CONTENT)),
    };
    let (answers, parts) = split_user(items, |item| match name_at(&item, "type") {
        Some("tool_result") => read_result(item).map(UserBlock::Answer),
        _ => read_part(item, Place::User).map(UserBlock::Part),
    })
    .map_err(|error| error.within(message.key("content")))?;
    Ok((answers, Content::Parts(parts.into_boxed_slice())))
}

fn read_part(item: Value, place: Place) -> Result<Part, Error> {
    match (name_at(&item, "type"), place) {
        _ if is_neutral_part(&item) => {}
        (Some("image_url" | "input_audio" | "file"), Place::User) => {
            return chat::user_part(item, OPENAI);
        }
        (Some("refusal"), Place::Assistant) => return chat::assistant_part(item, OPENAI),
        _ => {}
    }
    check_levels(&item, MAX_DEPTH)?;
    Part::from_value(item, place, 0).map_err(|error| match error {
        Error::InvalidPart { key, .. } => {
            Error::invalid(vec![key], "another value in a content part")
        }
        other => other,
    })
}

fn has_known_role(message: &Value) -> bool {
    name_at(message, "role").is_none_or(|role| ROLES_KNOWN.contains(&role))
}

fn read_call(value: Value) -> Result<ToolCall, Error> {
    if has(&value, "function") || has(&value, "custom") {
        return chat::read_call(value, OPENAI);
    }
    check_levels(&value, MAX_DEPTH + 1)?;
    let mut object = Fields::read(value, "a tool call, a map")?;
    let id = object.text("id")?;
    let kind = object.kind();
    let name = match kind.tool() {
        Some(tool) if !object.has("name") => Name::Text(tool.into()),
        _ => object.need_name("name")?,
    };
    // LangChain's form, which also says that it is a call.
    let is_langchain = object.has("args") && !object.has("arguments");
    let given = if is_langchain { "args" } else { "arguments" };
    let arguments = object.arguments_of(kind, given)?;
    object.take_known("type", |kind| {
        (kind.as_name()? == "tool_call" && is_langchain).then_some(())
    });
    let provider_metadata = object.map("provider_metadata")?;
    let extra = object.rest();
    let call = call(id, name, arguments, provider_metadata).of_kind(kind);
    Ok(ToolCall { extra, ..call })
}

fn read_result(value: Value) -> Result<ReadResult, Error> {
    let mut object = Fields::read(value, "a tool result, a map")?;
    let id = object.need_text("tool_use_id")?;
    let status = object.status();
    let output = match object.take_given("content") {
        Some(Value::List(items)) if !items.is_empty() => {
            let parts = each(items.into_vec(), |item| read_part(item, Place::Result))
                .map_err(|error| error.within(object.key("content")))?;
            Output::Parts(parts.into_boxed_slice())
        }
        content => {
            let value = content.unwrap_or(Value::Nil);
            check_levels(&value, MAX_DEPTH)?;
            Output::Value(value)
        }
    };
    Ok(ReadResult::new(Some(id), None, status, output))
}
