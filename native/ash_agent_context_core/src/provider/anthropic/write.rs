//! Anthropic Messages.

use super::Room;
use crate::log::exchange::Exchange;
use crate::log::hints::Ttl;
use crate::log::media::{Class, Location, Media};
use crate::log::message::{Message, Outcome, Output, Role};
use crate::log::part::{Content, Part, PartKind};
use crate::log::provider::Provider;
use crate::provider::format::Writes;
use crate::provider::parts::Parts;
use crate::provider::writer::{thinking_first, Thought, Writer};
use crate::value::json::{AsJson, AsObject};
use crate::value::letters::trim_end;
use crate::value::Value;

const PROVIDER: Provider = Provider::Anthropic;

impl Writes for Room {
    fn system_key(&self) -> Option<&'static str> {
        Some("system")
    }

    fn prompts(&self) -> &'static [&'static str] {
        &["system"]
    }

    fn system(&self, system: &Message, out: &mut Writer<'_>) {
        if let (Content::Text(bytes), false) = (&system.content, out.options.cache) {
            if let Some(text) = out.text(bytes) {
                out.json.text(&text);
            }
            return;
        }
        out.wrapped("[", "]", |out| PARTS.content(&system.content, out));
    }

    fn message(&self, message: &Message, out: &mut Writer<'_>) {
        match (message.role, &message.content) {
            (Role::Assistant, _) => assistant(message, out),
            (_, Content::Text(bytes)) => {
                if let Some(text) = out.text(bytes) {
                    one_text(false, &text, out);
                }
            }
            (_, Content::Parts(parts)) => out.blocks(false, |out| {
                PARTS.all(&**parts, out);
            }),
            (_, Content::None) => {}
        }
    }

    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Writer<'_>) {
        out.blocks(false, |out| {
            for (call, outcome) in message.calls.iter().zip(exchange.slots()) {
                let Some(outcome) = outcome else { continue };
                let id = out.id(call);
                result(&id, outcome, out);
            }
        });
    }

    fn user_first(&self) -> bool {
        true
    }

    fn cache_mark(&self, ttl: Ttl) -> &'static str {
        match ttl {
            Ttl::FiveMinutes => ",\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"5m\"}",
            Ttl::Hour => ",\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"}",
            _ => ",\"cache_control\":{\"type\":\"ephemeral\"}",
        }
    }
}

/// A message with nothing but a text: a string, or a block where a breakpoint may have to stand.
fn one_text(is_model: bool, text: &str, out: &mut Writer<'_>) {
    if out.options.cache {
        out.blocks(is_model, |out| text_block(text, out));
        return;
    }
    out.json.raw(if is_model {
        ",{\"role\":\"assistant\",\"content\":"
    } else {
        ",{\"role\":\"user\",\"content\":"
    });
    out.json.text(text);
    out.json.raw("}");
}

fn text_block(text: &str, out: &mut Writer<'_>) {
    out.json.object(|block| {
        block.field("type", "text").text("text", text);
    });
    out.mark_inside();
}

fn cited_text(text: &str, citations: &Value, out: &mut Writer<'_>) {
    out.json.object(|block| {
        block
            .field("type", "text")
            .text("text", text)
            .field("citations", &AsJson(citations));
    });
    out.mark_inside();
}

const PARTS: Parts = Parts {
    text: text_block,
    hint: |part, out| out.hint_inside(part),
    // What it takes depends on whether it is to be cited.
    takes: |_| true,
    media,
};

fn assistant(message: &Message, out: &mut Writer<'_>) {
    if let (Content::Text(bytes), true) = (&message.content, message.calls.is_empty()) {
        if let Some(text) = out.text(bytes) {
            one_text(true, trim_end(&text), out);
        }
        return;
    }
    out.blocks(true, |out| {
        let start = out.json.0.len();
        let speaks = content(message, out);
        for call in &message.calls {
            let [id, name, input] = out.function(call);
            out.json.object(|block| {
                block
                    .field("type", "tool_use")
                    .field("id", &*id)
                    .field("name", &*name)
                    .raw("input", &input);
                if let Some(caller) = call.provider_map(PROVIDER, "caller") {
                    block.field("caller", &AsObject(caller));
                }
                if let Some(toolset) = call.provider_text(PROVIDER, "toolset_name") {
                    block.field("toolset_name", toolset);
                }
            });
            out.mark_inside();
        }
        if !speaks && message.calls.is_empty() {
            // No history may end with thinking, so thinking that leads to nothing is never sent.
            out.cut(start);
        }
    });
}

/// Writes what a model says and tells whether that is more than thinking.
fn content(message: &Message, out: &mut Writer<'_>) -> bool {
    let parts = match &message.content {
        Content::None => return false,
        Content::Text(bytes) => {
            let Some(text) = out.text(bytes) else {
                return false;
            };
            text_block(&text, out);
            return true;
        }
        Content::Parts(parts) => thinking_first(parts, out, |part| is_thinking(part, out)),
    };
    let mut texts = Vec::new();
    for part in &parts {
        if let PartKind::Text(bytes) = &part.kind {
            texts.push(out.text(bytes));
        }
    }
    let last_text = texts.iter().rposition(Option::is_some);
    let mut texts = texts.into_iter().enumerate();
    let mut speaks = false;
    for part in parts {
        let before = out.json.0.len();
        match &part.kind {
            PartKind::Text(_) => {
                let Some((index, Some(text))) = texts.next() else {
                    continue;
                };
                // A history must not end in white space; one that goes on keeps its bytes.
                let is_end = message.calls.is_empty() && Some(index) == last_text;
                let text = if is_end { trim_end(&text) } else { &text };
                match part.provider_list(out.options, "citations") {
                    Some(citations) => cited_text(text, citations, out),
                    None => text_block(text, out),
                }
                out.hint_inside(part);
            }
            PartKind::ProviderBlock { .. } => PARTS.one(part, out),
            PartKind::Thinking(_) | PartKind::RedactedThinking(_) => {
                speaks |= thinking(part, out);
                continue;
            }
            PartKind::Image { .. }
            | PartKind::Audio { .. }
            | PartKind::Video { .. }
            | PartKind::File { .. } => {
                let words = out.media_words(part);
                text_block(trim_end(&words), out);
            }
        }
        speaks |= out.json.0.len() > before;
    }
    speaks
}

/// Whether a part will be sent as thinking.
fn is_thinking(part: &Part, out: &Writer<'_>) -> bool {
    match &part.kind {
        PartKind::Thinking(_) => {
            part.is_of(out.options) && part.provider_text("signature").is_some()
        }
        PartKind::RedactedThinking(_) => part.is_of(out.options),
        _ => false,
    }
}

/// Writes a thinking part and tells whether it has become text.
fn thinking(part: &Part, out: &mut Writer<'_>) -> bool {
    if let PartKind::RedactedThinking(data) = &part.kind {
        if is_thinking(part, out) {
            out.json.object(|block| {
                block.field("type", "redacted_thinking").text("data", data);
            });
        } else {
            out.dropped(part);
        }
        return false;
    }
    match out.thinking(part, true) {
        Thought::Own { text, signature } => {
            out.json.object(|block| {
                block
                    .field("type", "thinking")
                    .text("thinking", &text)
                    .field("signature", signature.unwrap_or_default());
            });
            false
        }
        Thought::Text(text) => {
            text_block(trim_end(&text), out);
            true
        }
        Thought::Nothing => false,
    }
}

fn result(id: &str, outcome: &Outcome, out: &mut Writer<'_>) {
    let mut content = out.apart(|out| match &outcome.output {
        Output::Value(_) => {
            let text = out.result_text(outcome);
            out.json.text(&text);
        }
        Output::Parts(parts) => out.wrapped("[", "]", |out| {
            PARTS.all(&**parts, out);
        }),
    });
    if content.is_empty() {
        content = out.apart(|out| out.json.text(crate::value::wording::NO_OUTPUT));
    }
    out.json.object(|block| {
        block
            .field("type", "tool_result")
            .field("tool_use_id", id)
            .raw("content", &content);
        if outcome.is_error() {
            block.field("is_error", &true);
        }
    });
    out.mark_inside();
    if let Some(part) = out.marked(outcome) {
        out.hint_inside(part);
    }
}

fn media(part: &Part, media: &Media<'_>, out: &mut Writer<'_>) {
    let cited = media.text().filter(|_| part.citations() == Some(true));
    let kind = match media.class {
        Class::Image if media.is_common_image() => "image",
        Class::Image if !matches!(media.source, Location::Inline(_)) => "image",
        Class::File if media.is_pdf() || cited.is_some() => "document",
        Class::File if media.id_for(PROVIDER).is_some() => "document",
        _ => "",
    };
    let of = match media.source {
        Location::Stored(PROVIDER, _) => "file",
        Location::Web(_) => "url",
        Location::Inline(_) if cited.is_some() => "text",
        Location::Inline(_) => "base64",
        _ => "",
    };
    if kind.is_empty() || of.is_empty() {
        let words = out.media_words(part);
        text_block(&words, out);
        return;
    }
    out.json.object(|block| {
        block.field("type", kind).object("source", |source| {
            source.field("type", of);
            match (media.source, &cited) {
                (Location::Stored(_, id), _) => source.field("file_id", id),
                (Location::Inline(_), Some(text)) => {
                    source.field("media_type", "text/plain").text("data", text)
                }
                (Location::Inline(data), None) => {
                    let media_type = media.media_type.as_deref().unwrap_or_default();
                    source.field("media_type", media_type).text("data", data)
                }
                _ => source.text("url", &media.url()),
            };
        });
        if let (false, Some(title)) = (media.is_image(), media.filename) {
            block.field("title", title);
        }
        if let Some(enabled) = part.citations().filter(|_| !media.is_image()) {
            block.object("citations", |citations| {
                citations.field("enabled", &enabled);
            });
        }
    });
    out.mark_inside();
}
