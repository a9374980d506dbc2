//! Messages in the chat dialect.

use std::borrow::Cow;

use crate::log::kind::CallKind;
use crate::log::message::Message;
use crate::log::provider::Provider;
use crate::provider::dialect::chat::reasoning::Reasoning;
use crate::provider::writer::Writer;
use crate::value::builder::Object;

/// A message that is one text.
pub(crate) fn text_message(role: &str, text: &str, out: &mut Writer<'_>) {
    out.json.raw(",");
    out.json.bare_object(|message| {
        message.field("role", role).text("content", text);
    });
}

/// A text as a part of a message.
pub(crate) fn text_part(text: &str, out: &mut Writer<'_>) {
    out.json.object(|part| {
        part.field("type", "text").text("text", text);
    });
}

/// An assistant message of content that is written already and of its calls.
pub(crate) fn message_with_calls(
    message: &Message,
    content: &str,
    reasoning: &Reasoning<'_>,
    out: &mut Writer<'_>,
) {
    if content.is_empty() && message.calls.is_empty() {
        return;
    }
    let knows_custom = out.options.provider == Provider::OpenAiChat;
    let mut calls: Vec<Called<'_>> = Vec::new();
    for call in &message.calls {
        if knows_custom && call.kind == CallKind::Custom {
            calls.push((out.id(call), out.name(call), out.input(call), true));
        } else {
            let [id, name, arguments] = out.function(call);
            calls.push((id, name, arguments, false));
        }
    }
    out.json.raw(",");
    out.json.bare_object(|written| {
        let content = if content.is_empty() { "null" } else { content };
        written.field("role", "assistant").raw("content", content);
        reasoning.write(written);
        if calls.is_empty() {
            return;
        }
        written.list("tool_calls", |list| {
            for called in &calls {
                list.object(|call| write_call(called, call));
            }
        });
    });
}

/// An id, a name, arguments, and whether these are a custom tool's text.
type Called<'a> = (Cow<'a, str>, Cow<'a, str>, Cow<'a, str>, bool);

fn write_call((id, name, arguments, is_custom): &Called<'_>, call: &mut Object<'_>) {
    let (kind, key) = match is_custom {
        true => ("custom", "input"),
        false => ("function", "arguments"),
    };
    call.field("id", &**id)
        .field("type", kind)
        .object(kind, |called| {
            called.field("name", &**name).text(key, arguments);
        });
}
