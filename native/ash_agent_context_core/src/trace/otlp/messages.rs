//! Writes messages by the conventions' JSON schemas.

use crate::log::call::ToolCall;
use crate::log::media::{Location, Media};
use crate::log::message::{Message, Outcome, Output, Role};
use crate::log::part::{Content, Part, PartKind};
use crate::trace::message_texts::{content_text, part_text};
use crate::trace::otlp::attributes::finish_reason;
use crate::trace::otlp::options::Conventions;
use crate::trace::otlp::unread::Read;
use crate::trace::shown::{MaskedEntry, Trace};
use crate::value::builder::{Json, JsonObject};
use crate::value::json::{AsJson, AsObject};
use crate::value::letters;
use crate::value::{Map, Value};
use crate::view::veil::Veil;

/// Returns the messages before an answer. `veil`: the pieces that summaries must not show.
pub(super) fn input<'v>(
    trace: &Trace<'_>,
    conventions: Conventions,
    read: &[Read<'_>],
    veil: impl Fn() -> &'v Veil,
) -> String {
    list(|json| {
        for one in read {
            match one {
                Read::Summary(summary) => {
                    let shown = trace.rendering().message(summary);
                    let shown = shown.as_ref().unwrap_or(summary);
                    let veiled = veil().message(shown);
                    let shown = veiled.as_ref().unwrap_or(shown);
                    message(json, shown.role.name(), |json| match conventions {
                        Conventions::V1_41 => parts(json, shown),
                        Conventions::Next => {
                            content(json, "compaction", &content_text(&shown.content));
                        }
                    });
                }
                Read::Message(entry) => {
                    let masked = MaskedEntry::new(entry, trace.rendering());
                    let shown = masked.message();
                    message(json, shown.role.name(), |json| parts(json, shown));
                }
                Read::Results(entry) => {
                    let masked = MaskedEntry::new(entry, trace.rendering());
                    let slots = masked.exchange().into_iter().flat_map(|of| of.slots());
                    for (call, outcome) in masked.message().calls.iter().zip(slots) {
                        if let Some(outcome) = outcome {
                            message(json, "tool", |json| result(json, call, outcome));
                        }
                    }
                }
            }
        }
    })
}

/// Returns the message of an answer.
pub(super) fn output(answer: &Message) -> String {
    list(|json| {
        json.bare_object(|json| {
            json.text("role", Role::Assistant.name());
            json.list("parts", |json| parts(json, answer));
            json.text("finish_reason", finish_reason(answer));
        });
    })
}

/// Returns the parts of a system prompt.
pub(super) fn instructions(system: &Message) -> String {
    list(|json| parts(json, system))
}

/// Returns the tools of the agent.
pub(super) fn definitions(tools: &Value) -> String {
    list(|json| {
        for tool in items(tools) {
            json.separate();
            json.bare_object(|json| {
                json.text("type", "function");
                for (key, value) in tool.iter() {
                    if let Some(key) = key.as_name() {
                        json.field(key, &AsJson(value));
                    }
                }
            });
        }
    })
}

/// Returns the description of a tool.
pub(super) fn description<'a>(tools: Option<&'a Value>, name: &str) -> Option<&'a str> {
    let of = |tool: &&Map, key| tool.get_named(key).and_then(Value::as_name) == Some(name);
    let tool = items(tools?).find(|tool| of(tool, "name"))?;
    tool.get_named("description").and_then(Value::as_name)
}

fn items(list: &Value) -> impl Iterator<Item = &Map> {
    let items: &[Value] = match list {
        Value::List(items) => items,
        _ => &[],
    };
    items.iter().filter_map(Value::as_map)
}

/// Returns the arguments of a call.
pub(super) fn arguments(call: &ToolCall) -> String {
    match &call.arguments.value {
        Value::Binary(text) => letters::utf8(text).into_owned(),
        value => crate::value::json::write(value),
    }
}

/// Returns the text of a result, or a list of parts, in the form of the attribute.
pub(super) fn response(outcome: &Outcome) -> String {
    match &outcome.output {
        Output::Value(_) => outcome.words().into_owned(),
        Output::Parts(all) => list(|json| all.iter().for_each(|part| write_part(json, part))),
    }
}

fn list(fill: impl FnOnce(&mut Json)) -> String {
    let mut json = Json::default();
    json.raw("[");
    fill(&mut json);
    json.raw("]");
    // Both our text and the pieces are UTF-8.
    String::from_utf8(json.into_bytes()).unwrap_or_default()
}

fn message(json: &mut Json, role: &str, fill: impl FnOnce(&mut Json)) {
    json.separate();
    json.bare_object(|json| {
        json.text("role", role).list("parts", fill);
    });
}

fn element(json: &mut Json, kind: &str, fill: impl FnOnce(&mut JsonObject<'_>)) {
    json.separate();
    json.bare_object(|json| {
        json.text("type", kind);
        fill(json);
    });
}

fn content(json: &mut Json, kind: &str, text: &str) {
    element(json, kind, |json| {
        json.text("content", text);
    });
}

/// Writes the parts of a message and its calls, in the order in which the model made them.
fn parts(json: &mut Json, message: &Message) {
    let mut calls = message.calls.iter().peekable();
    for position in 0..message.content.count_parts() {
        while let Some(call) = calls.next_if(|call| call.parts_before() <= position) {
            write_call(json, call);
        }
        match &message.content {
            Content::Text(text) => content(json, "text", &letters::utf8(text)),
            Content::Parts(parts) => {
                if let Some(part) = parts.get(position) {
                    write_part(json, part);
                }
            }
            Content::None => {}
        }
    }
    for call in calls {
        write_call(json, call);
    }
}

fn write_call(json: &mut Json, call: &ToolCall) {
    element(json, "tool_call", |json| {
        json.text("id", &call.id).text("name", call.name.as_str());
        match &call.arguments.value {
            Value::Binary(text) => json.text("arguments", &letters::utf8(text)),
            value => json.field("arguments", &AsJson(value)),
        };
    });
}

fn result(json: &mut Json, call: &ToolCall, outcome: &Outcome) {
    element(json, "tool_call_response", |json| {
        json.text("id", &call.id);
        match &outcome.output {
            Output::Value(_) => {
                json.text("response", &outcome.words());
            }
            Output::Parts(all) => {
                json.list("response", |json| {
                    all.iter().for_each(|part| write_part(json, part));
                });
            }
        }
    });
}

fn write_part(json: &mut Json, part: &Part) {
    match &part.kind {
        PartKind::Text(text) => content(json, "text", &letters::utf8(text)),
        PartKind::Thinking(text) => content(json, "reasoning", &letters::utf8(text)),
        // Only its provider can read it.
        PartKind::RedactedThinking(_) => {}
        PartKind::ProviderBlock { data, .. } => block(json, part, data),
        kind => {
            if let Some(media) = Media::of(kind) {
                write_media(json, &media, kind);
            }
        }
    }
}

fn write_media(json: &mut Json, media: &Media<'_>, kind: &PartKind) {
    let fill = |json: &mut JsonObject<'_>| {
        // In the next version, anything but an image, film or recording is a document.
        let modality = match kind.name() {
            "file" => "document",
            name => name,
        };
        json.text("modality", modality);
        json.given("mime_type", media.guessed_type());
    };
    match media.source {
        Location::Inline(data) => element(json, "blob", |json| {
            fill(json);
            json.text("content", data);
        }),
        Location::Web(uri) | Location::Store(uri) | Location::Refused(uri) => {
            element(json, "uri", |json| {
                fill(json);
                json.text("uri", uri);
            })
        }
        Location::Stored(_, id) => element(json, "file", |json| {
            fill(json);
            json.text("file_id", id);
        }),
    }
}

/// Writes a provider's block: the use or the result of one of its tools, or anything else.
fn block(json: &mut Json, part: &Part, data: &Map) {
    let text = |key| data.get_named(key).and_then(Value::as_name);
    let kind = text("type").unwrap_or("block");
    let Some(half) = part.half() else {
        return element(json, "provider_block", |json| {
            json.text("block", &part_text(part));
        });
    };
    let id = ["tool_use_id", "call_id", "id"].into_iter().find_map(text);
    let field = match half.is_result {
        true => "server_tool_call_response",
        false => "server_tool_call",
    };
    element(json, field, |json| {
        json.given("id", id);
        if !half.is_result {
            json.text("name", text("name").unwrap_or(kind));
        }
        json.object(field, |json| {
            json.text("type", kind).field("block", &AsObject(data));
        });
    });
}
