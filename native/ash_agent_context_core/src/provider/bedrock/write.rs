//! Bedrock Converse.

use crate::log::exchange::Exchange;
use crate::log::message::{Message, Outcome, Output, Role};
use crate::log::part::{Content, Part, PartKind};
use crate::value::json::AsObject;
use crate::value::Value;

use super::Room;
use crate::log::media::{Location, Media};
use crate::provider::format::Writes;
use crate::provider::writer::{texts, thinking_first, Thought, Writer};

impl Writes for Room {
    fn system_key(&self) -> Option<&'static str> {
        Some("system")
    }

    fn system(&self, system: &Message, out: &mut Writer<'_>) {
        let texts = texts(&system.content, out);
        if texts.is_empty() {
            return;
        }
        out.json.raw("[");
        for text in texts {
            text_block(&text, out);
        }
        out.mark_behind();
        out.json.raw("]");
    }

    fn message(&self, message: &Message, out: &mut Writer<'_>) {
        if message.role == Role::Assistant {
            assistant(message, out);
            return;
        }
        out.blocks(false, |out| match &message.content {
            Content::Parts(parts) => {
                user_parts(parts, out);
            }
            Content::Text(bytes) => {
                if let Some(text) = out.text(bytes) {
                    text_block(&text, out);
                }
            }
            Content::None => {}
        });
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

    fn alternates(&self) -> bool {
        true
    }

    fn cache_mark(&self) -> &'static str {
        ",{\"cachePoint\":{\"type\":\"default\"}}"
    }

    fn stand_in(&self) -> &'static str {
        ",{\"role\":\"user\",\"content\":[{\"text\":\"Continue.\"}]}"
    }
}

fn text_block(text: &str, out: &mut Writer<'_>) {
    out.json.object(|block| {
        block.text("text", text);
    });
    out.mark_behind();
}

fn user_parts(parts: &[Part], out: &mut Writer<'_>) {
    let (mut has_text, mut has_document) = (false, false);
    for part in parts {
        match &part.kind {
            PartKind::Text(bytes) => {
                if let Some(text) = out.text(bytes) {
                    text_block(&text, out);
                    has_text = true;
                }
            }
            PartKind::ProviderBlock { .. } => own_block(part, out),
            _ => match media(part, out) {
                Sent::Document => has_document = true,
                Sent::Text => has_text = true,
                Sent::Other => {}
            },
        }
    }
    if has_document && !has_text {
        // A document needs a text beside it.
        text_block("See the attached document.", out);
    }
}

fn own_block(part: &Part, out: &mut Writer<'_>) {
    if let Some(data) = out.own_block(part) {
        out.json.element(&AsObject(data));
        out.mark_behind();
    }
}

fn assistant(message: &Message, out: &mut Writer<'_>) {
    out.blocks(true, |out| {
        let start = out.json.0.len();
        let speaks = content(message, out);
        for call in &message.calls {
            let (id, name) = (out.id(call), out.name(call));
            let input = out.arguments(call);
            out.json.object(|block| {
                block.object("toolUse", |tool| {
                    tool.field("toolUseId", &*id)
                        .field("name", &*name)
                        .raw("input", &input);
                });
            });
            out.mark_behind();
        }
        if !speaks && message.calls.is_empty() {
            out.json.0.truncate(start);
        }
    });
}

/// Writes what a model says and tells whether that is more than thinking.
fn content(message: &Message, out: &mut Writer<'_>) -> bool {
    let parts = match &message.content {
        Content::None => return false,
        Content::Text(bytes) => {
            let text = out.text(bytes);
            if let Some(text) = &text {
                text_block(text, out);
            }
            return text.is_some();
        }
        Content::Parts(parts) => thinking_first(parts, out, |part| is_thinking(part, out)),
    };
    let mut speaks = false;
    for part in parts {
        let before = out.json.0.len();
        match &part.kind {
            PartKind::Text(bytes) => {
                if let Some(text) = out.text(bytes) {
                    text_block(&text, out);
                }
            }
            PartKind::ProviderBlock { .. } => own_block(part, out),
            PartKind::Thinking(_) | PartKind::RedactedThinking(_) => {
                speaks |= thinking(part, out);
                continue;
            }
            PartKind::Image { .. } | PartKind::File { .. } => {
                let words = out.media_words(part);
                text_block(&words, out);
            }
        }
        speaks |= out.json.0.len() > before;
    }
    speaks
}

fn is_thinking(part: &Part, out: &Writer<'_>) -> bool {
    match &part.kind {
        PartKind::Thinking(_) => {
            part.is_of(out.options) && part.provider_text("signature").is_some()
        }
        PartKind::RedactedThinking(data) => {
            part.is_of(out.options) && crate::log::part::is_base64(data)
        }
        _ => false,
    }
}

/// Writes a thinking part and tells whether it has become text.
fn thinking(part: &Part, out: &mut Writer<'_>) -> bool {
    if let PartKind::RedactedThinking(data) = &part.kind {
        if is_thinking(part, out) {
            out.json.object(|block| {
                block.object("reasoningContent", |content| {
                    content.text("redactedContent", data);
                });
            });
        } else {
            out.dropped(part);
        }
        return false;
    }
    match out.thinking(part, true) {
        Thought::Own { text, signature } => {
            out.json.object(|block| {
                block.object("reasoningContent", |content| {
                    content.object("reasoningText", |reasoning| {
                        reasoning
                            .text("text", &text)
                            .field("signature", signature.unwrap_or_default());
                    });
                });
            });
            false
        }
        Thought::Text(text) => {
            text_block(&text, out);
            true
        }
        Thought::Nothing => false,
    }
}

fn result(id: &str, outcome: &Outcome, out: &mut Writer<'_>) {
    // Only Claude and Nova know a status; for others the text says it.
    let knows_status = out
        .options
        .model
        .is_none_or(|model| model.contains("claude") || model.contains("nova"));
    let mut blocks = out.apart(|out| match &outcome.output {
        Output::Parts(parts) => user_parts(parts, out),
        Output::Value(Value::Map(map))
            if !outcome.is_error() && crate::value::structs::struct_text(map).is_none() =>
        {
            out.json.object(|block| {
                block.field("json", &AsObject(map));
            });
        }
        Output::Value(_) if knows_status => {
            let text = out.result_text(outcome);
            text_block(&text, out);
        }
        Output::Value(_) => {
            let text = out.worded_result(outcome);
            text_block(&text, out);
        }
    });
    if blocks.is_empty() {
        blocks = out.apart(|out| text_block(crate::value::words::NO_OUTPUT, out));
    }
    out.json.object(|block| {
        block.object("toolResult", |result| {
            result
                .field("toolUseId", id)
                .raw("content", &format!("[{blocks}]"));
            if outcome.is_error() && knows_status {
                result.field("status", "error");
            }
        });
    });
    out.mark_behind();
}

/// What a part has become.
enum Sent {
    Document,
    Text,
    Other,
}

fn media(part: &Part, out: &mut Writer<'_>) -> Sent {
    let Some(media) = Media::of(&part.kind) else {
        out.dropped(part);
        return Sent::Other;
    };
    let format = if media.is_image {
        media.image_format()
    } else {
        document_format(media.media_type)
    };
    let source = match media.source {
        Location::Inline(data) => Some(data),
        Location::Web(_) | Location::Store(_) => None,
    };
    let (Some(format), Some(data)) = (format, source) else {
        let words = out.media_words(part);
        text_block(&words, out);
        return Sent::Text;
    };
    out.json.object(|block| {
        let kind = if media.is_image { "image" } else { "document" };
        block.object(kind, |block| {
            block.field("format", format);
            if !media.is_image {
                block.field("name", &document_name(media.filename));
            }
            block.object("source", |source| {
                source.text("bytes", data);
            });
        });
    });
    out.mark_behind();
    if media.is_image {
        Sent::Other
    } else {
        Sent::Document
    }
}

fn document_format(media_type: Option<&str>) -> Option<&'static str> {
    Some(match media_type? {
        "application/pdf" => "pdf",
        "text/csv" => "csv",
        "application/msword" => "doc",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document" => "docx",
        "application/vnd.ms-excel" => "xls",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" => "xlsx",
        "text/html" => "html",
        "text/plain" => "txt",
        "text/markdown" => "md",
        _ => return None,
    })
}

/// Letters, digits, single spaces, hyphens, parentheses and brackets; no file name is a "document".
fn document_name(filename: Option<&str>) -> String {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-()[]".contains(letter);
    let spaced: String = filename
        .unwrap_or("document")
        .chars()
        .map(|letter| if allowed(letter) { letter } else { ' ' })
        .collect();
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let name: String = words.join(" ").chars().take(200).collect();
    if name.is_empty() {
        "document".to_owned()
    } else {
        name.trim_end().to_owned()
    }
}
