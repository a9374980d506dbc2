//! Writes messages in the chat dialect.

use crate::log::call::ToolCall;
use crate::log::exchange::Exchange;
use crate::log::kind::CallKind;
use crate::log::message::Message;
use crate::log::part::{Content, Part};
use crate::log::provider::Provider;
use crate::provider::dialect::chat::read::EXTRA;
use crate::provider::options::SystemRole;
use crate::provider::writer::{self, Parts, Writer};
use crate::value::builder::JsonObject;
use crate::value::json::AsObject;

/// Writes a message that is one text.
pub(crate) fn text_message(role: &str, text: &str, out: &mut Writer<'_>) {
    out.json.raw(",");
    out.json.bare_object(|message| {
        message.field("role", role).text("content", text);
    });
}

/// Writes a text as a part of a message.
pub(crate) fn text_part(text: &str, out: &mut Writer<'_>) {
    out.json.strings(&[("type", "text"), ("text", text)]);
}

/// Writes a message of one text or of a list of parts, or nothing if it would be empty.
pub(crate) fn role_message(role: &str, content: &Content, parts: &Parts, out: &mut Writer<'_>) {
    out.say(content, |text, out| text_message(role, text, out));
    let open = format!(",{{\"role\":\"{role}\",\"content\":[");
    out.wrap(&open, writer::CLOSE, |out| parts.all(content.parts(), out));
}

/// Returns the word for the role of a system message.
pub(crate) const fn system_role(role: SystemRole) -> &'static str {
    match role {
        SystemRole::System => "system",
        SystemRole::Developer => "developer",
    }
}

/// Writes a message for each result, with the tool's name if `is_named`, and then a message with the media in them.
pub(crate) fn result_messages(
    message: &Message,
    exchange: &Exchange,
    parts: &Parts,
    is_named: bool,
    out: &mut Writer<'_>,
) {
    let mut after = Vec::new();
    for (call, outcome) in exchange.answered_calls(&message.calls) {
        let id = out.id(call);
        let name = is_named.then(|| out.name(call));
        let (text, media) = out.split_result(outcome, true, parts.takes);
        after.extend(media);
        out.json.raw(",");
        out.json.bare_object(|written| {
            written.field("role", "tool").field("tool_call_id", &*id);
            written.given("name", name).text("content", &text);
        });
    }
    out.blocks(false, |out| parts.all(after, out));
}

/// Writes an assistant message of ready-made content, of the fields beside it, and of its calls.
pub(crate) fn message_with_calls(
    message: &Message,
    content: &str,
    beside: impl FnOnce(&mut JsonObject<'_>),
    out: &mut Writer<'_>,
) {
    let is_openai = out.options.provider == Provider::OpenAiChat;
    out.list_calls(message);
    let calls = out.apart(|out| {
        let calls = message.calls.iter();
        calls.for_each(|call| write_call(call, is_openai, out));
    });
    out.json.raw(",");
    out.json.bare_object(|written| {
        let content = if content.is_empty() { "null" } else { content };
        written.field("role", "assistant").raw("content", content);
        beside(written);
        if !calls.is_empty() {
            written.raw("tool_calls", &format!("[{calls}]"));
        }
    });
}

fn write_call(call: &ToolCall, is_openai: bool, out: &mut Writer<'_>) {
    // The arguments of a custom tool are text.
    let (kind, key, [id, name, arguments]) = match is_openai && call.kind == CallKind::Custom {
        true => (
            "custom",
            "input",
            [out.id(call), out.name(call), out.input(call)],
        ),
        false => ("function", "arguments", out.function(call)),
    };
    // Fields that the server wants back with the call.
    let extra = call.provider_map(Provider::OpenAiChat, EXTRA);
    let extra = extra.filter(|_| is_openai && call.is_of(out.options));
    out.json.object(|written| {
        let written = written.field("id", &*id).field("type", kind);
        let written = written.strings(kind, &[("name", &*name), (key, &arguments)]);
        written.given(EXTRA, extra.map(AsObject));
    });
}

/// Writes a cache breakpoint that was set by hand, if the model takes them.
pub(crate) fn hint(part: &Part, out: &mut Writer<'_>) {
    if knows_breakpoints(out.options.model) {
        out.hint_inside(part);
    }
}

/// Returns whether a model takes breakpoints, as all from GPT-5.6 on do.
fn knows_breakpoints(model: Option<&str>) -> bool {
    let version = model
        .and_then(|model| model.rsplit('/').next()?.strip_prefix("gpt-"))
        .and_then(|rest| rest.split('-').next());
    let mut numbers = version.into_iter().flat_map(|version| version.split('.'));
    let mut next = || numbers.next().map_or(Some(0), |number| number.parse().ok());
    let version: Option<(u32, u32)> = next().zip(next());
    version.is_some_and(|version| version >= (5, 6))
}
