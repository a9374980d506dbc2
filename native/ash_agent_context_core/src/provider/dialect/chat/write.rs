//! Messages in the chat dialect.

use crate::log::message::Message;
use crate::provider::writer::Writer;

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
pub(crate) fn message_with_calls(message: &Message, content: &str, out: &mut Writer<'_>) {
    if content.is_empty() && message.calls.is_empty() {
        return;
    }
    let calls: Vec<_> = message
        .calls
        .iter()
        .map(|call| (out.id(call), out.name(call), out.arguments(call)))
        .collect();
    out.json.raw(",");
    out.json.bare_object(|written| {
        let content = if content.is_empty() { "null" } else { content };
        written.field("role", "assistant").raw("content", content);
        if calls.is_empty() {
            return;
        }
        written.list("tool_calls", |list| {
            for (id, name, arguments) in &calls {
                list.object(|call| {
                    call.field("id", &**id).field("type", "function").object(
                        "function",
                        |function| {
                            function.field("name", &**name).text("arguments", arguments);
                        },
                    );
                });
            }
        });
    });
}
