//! OpenAI Chat Completions.

use std::borrow::Cow;

use crate::log::hints::Ttl;
use crate::log::iteration::Exchange;
use crate::log::kind::CallKind;
use crate::log::message::{Message, Role};
use crate::log::part::{Content, Part, PartKind, Provider};
use crate::provider::media::{Class, Media, Place};
use crate::provider::openai_chat::reasoning::Reasoning;
use crate::provider::out::{Out, Thought};
use crate::request::{SystemRole, Wire};
use crate::value::builder::Object;
use crate::value::json::AsObject;

pub(crate) struct OpenAiChat;

impl Wire for OpenAiChat {
    fn system(&self, system: &Message, out: &mut Out<'_>) {
        let role = match out.options.system_role {
            SystemRole::System => "system",
            SystemRole::Developer => "developer",
        };
        match &system.content {
            Content::Parts(parts) => {
                let open = format!(",{{\"role\":\"{role}\",\"content\":[");
                out.wrapped(&open, "]}", |out| {
                    for part in &**parts {
                        user_part(part, out);
                    }
                });
            }
            Content::Text(bytes) => {
                if let Some(text) = out.text(bytes) {
                    text_message(role, &text, out);
                }
            }
            Content::None => {}
        }
    }

    fn message(&self, message: &Message, out: &mut Out<'_>) {
        match message.role {
            Role::System => self.system(message, out),
            Role::User => user(message, out),
            Role::Assistant => assistant(message, out),
        }
    }

    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Out<'_>) {
        let mut behind = Vec::new();
        for (call, outcome) in message.calls.iter().zip(exchange.slots()) {
            let Some(outcome) = outcome else { continue };
            let id = out.id(call);
            let (text, media) = out.split_result(outcome, is_sent);
            behind.extend(media);
            out.json.raw(",");
            out.json.bare_object(|message| {
                message
                    .field("role", "tool")
                    .field("tool_call_id", &*id)
                    .text("content", &text);
            });
        }
        out.blocks(false, |out| {
            for part in behind {
                user_part(part, out);
            }
        });
    }

    fn cache_mark(&self, ttl: Ttl) -> &'static str {
        breakpoint(ttl)
    }
}

pub(crate) fn text_message(role: &str, text: &str, out: &mut Out<'_>) {
    out.json.raw(",");
    out.json.bare_object(|message| {
        message.field("role", role).text("content", text);
    });
}

pub(crate) fn text_part(text: &str, out: &mut Out<'_>) {
    out.json.object(|part| {
        part.field("type", "text").text("text", text);
    });
}

fn user(message: &Message, out: &mut Out<'_>) {
    match &message.content {
        Content::Text(bytes) => {
            if let Some(text) = out.text(bytes) {
                text_message("user", &text, out);
            }
        }
        Content::Parts(parts) => out.blocks(false, |out| {
            for part in &**parts {
                user_part(part, out);
            }
        }),
        Content::None => {}
    }
}

fn user_part(part: &Part, out: &mut Out<'_>) {
    match &part.kind {
        PartKind::Text(bytes) => {
            if let Some(text) = out.text(bytes) {
                text_part(&text, out);
                hint(part, out);
            }
        }
        PartKind::ProviderBlock { .. } => own_part(part, out),
        _ => media(part, out),
    }
}

fn own_part(part: &Part, out: &mut Out<'_>) {
    if let Some(data) = out.own_block(part) {
        out.json.element(&AsObject(data));
    }
}

fn assistant(message: &Message, out: &mut Out<'_>) {
    let reasoning = Reasoning::of(message, out);
    // Written apart: the message is left out when there is nothing in it.
    let content = out.apart(|out| match &message.content {
        Content::None => {}
        Content::Text(bytes) => {
            if let Some(text) = out.text(bytes) {
                out.json.text(&text);
            }
        }
        Content::Parts(parts) => match text_beside_reasoning(parts) {
            Some(bytes) => {
                for part in &**parts {
                    thinking(part, &reasoning, out);
                }
                if let Some(text) = out.text(bytes) {
                    out.json.text(&text);
                }
            }
            None => out.wrapped("[", "]", |out| {
                for part in &**parts {
                    assistant_part(part, &reasoning, out);
                }
            }),
        },
    });
    message_with_calls(message, &content, &reasoning, out);
}

/// The text of a message of reasoning and one text: servers that reason want it as it is, not in a list.
fn text_beside_reasoning(parts: &[Part]) -> Option<&[u8]> {
    let (thinking, rest): (Vec<_>, Vec<_>) = parts
        .iter()
        .partition(|part| matches!(part.kind, PartKind::Thinking(_)));
    match (thinking.is_empty(), &*rest) {
        (false, [part]) if part.hints.is_none() => match &part.kind {
            PartKind::Text(bytes) => Some(bytes),
            _ => None,
        },
        _ => None,
    }
}

fn assistant_part(part: &Part, reasoning: &Reasoning<'_>, out: &mut Out<'_>) {
    match &part.kind {
        PartKind::Thinking(_) => {
            if let Thought::Text(text) = thinking(part, reasoning, out) {
                text_part(&text, out);
            }
        }
        PartKind::Image { .. }
        | PartKind::Audio { .. }
        | PartKind::Video { .. }
        | PartKind::File { .. } => {
            let words = out.media_words(part);
            text_part(&words, out);
        }
        PartKind::RedactedThinking(_) => out.dropped(part),
        PartKind::Text(_) | PartKind::ProviderBlock { .. } => user_part(part, out),
    }
}

/// What becomes of thinking that does not stand beside the content.
fn thinking<'a>(part: &'a Part, reasoning: &Reasoning<'_>, out: &mut Out<'_>) -> Thought<'a> {
    if reasoning.has(part) {
        return Thought::Nothing;
    }
    out.thinking_as_text(part)
}

/// An assistant message of content that is written already and of its calls.
pub(crate) fn message_with_calls(
    message: &Message,
    content: &str,
    reasoning: &Reasoning<'_>,
    out: &mut Out<'_>,
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

/// Whether a part can stand in a user message; what cannot becomes words.
fn is_sent(media: &Media<'_>) -> bool {
    match (media.class, media.source) {
        (Class::Image, Place::Inline(_)) => media.is_common_image(),
        (Class::Image, Place::Web(_)) => true,
        (Class::Audio, Place::Inline(_)) => audio_format(media).is_some(),
        (Class::File, Place::Inline(_)) => media.is_pdf(),
        (Class::File, Place::Stored(owner, _)) => owner == Provider::OpenAiChat,
        _ => false,
    }
}

/// `wav` or `mp3`.
fn audio_format(media: &Media<'_>) -> Option<&'static str> {
    match media.media_type.as_deref()? {
        "audio/wav" => Some("wav"),
        "audio/mpeg" => Some("mp3"),
        _ => None,
    }
}

fn media(part: &Part, out: &mut Out<'_>) {
    let Some(media) = Media::of(&part.kind) else {
        out.dropped(part);
        return;
    };
    if !is_sent(&media) {
        let words = out.media_words(part);
        text_part(&words, out);
        hint(part, out);
        return;
    }
    let url = media.url();
    out.json
        .object(|written| match (media.class, media.source) {
            (Class::Image, _) => {
                written
                    .field("type", "image_url")
                    .object("image_url", |image| {
                        image.text("url", &url);
                        if let Some(detail) = part.detail() {
                            image.field("detail", detail);
                        }
                    });
            }
            (Class::Audio, Place::Inline(data)) => {
                written
                    .field("type", "input_audio")
                    .object("input_audio", |audio| {
                        audio.text("data", data);
                        audio.field("format", audio_format(&media).unwrap_or_default());
                    });
            }
            (_, Place::Stored(_, id)) => {
                written.field("type", "file").object("file", |file| {
                    file.field("file_id", id);
                });
            }
            _ => {
                let name = media.filename.unwrap_or("file.pdf");
                written.field("type", "file").object("file", |file| {
                    file.field("filename", name).text("file_data", &url);
                });
            }
        });
    hint(part, out);
}

/// A cache breakpoint set by hand, where the model knows them.
pub(crate) fn hint(part: &Part, out: &mut Out<'_>) {
    if knows_breakpoints(out.options.model) {
        out.hint_inside(part);
    }
}

/// Breakpoints exist from GPT-5.6 on.
fn knows_breakpoints(model: Option<&str>) -> bool {
    let version = model
        .and_then(|model| model.rsplit('/').next()?.strip_prefix("gpt-"))
        .and_then(|rest| rest.split('-').next());
    let mut numbers = version.into_iter().flat_map(|version| version.split('.'));
    let mut next = || numbers.next().map_or(Some(0), |number| number.parse().ok());
    let version: Option<(u32, u32)> = next().zip(next());
    version.is_some_and(|version| version >= (5, 6))
}

pub(crate) const fn breakpoint(ttl: Ttl) -> &'static str {
    match ttl {
        Ttl::HalfHour => ",\"prompt_cache_breakpoint\":{\"mode\":\"explicit\",\"ttl\":\"30m\"}",
        Ttl::HalfDay => ",\"prompt_cache_breakpoint\":{\"mode\":\"explicit\",\"ttl\":\"12h\"}",
        _ => ",\"prompt_cache_breakpoint\":{\"mode\":\"explicit\"}",
    }
}
