//! Writes messages for Bedrock Converse.

use super::formats::{AUDIO, DOCUMENTS, VIDEO};
use super::Room;
use crate::log::call::ToolCall;
use crate::log::exchange::Exchange;
use crate::log::hints::Ttl;
use crate::log::media::{Location, Media};
use crate::log::message::{Message, Outcome, Output, Role};
use crate::log::part::{Class, Content, Part, PartKind};
use crate::provider::format::Writes;
use crate::provider::order::PartOrCall;
use crate::provider::writer::{is_own_thinking, BlockForm, Thought, Writer};
use crate::value::json::{AsJson, AsObject};
use crate::value::letters::{is_blank, utf8};
use crate::value::Value;

impl Writes for Room {
    fn system_key(&self) -> Option<&'static str> {
        Some("system")
    }

    fn prompts(&self) -> &'static [&'static str] {
        &["system"]
    }

    fn system(&self, system: &Message, out: &mut Writer<'_>) {
        out.wrap("[", "]", |out| user_content(&system.content, out));
    }

    fn message(&self, message: &Message, out: &mut Writer<'_>) {
        if message.role == Role::Assistant {
            assistant(message, out);
            return;
        }
        out.blocks(false, |out| user_content(&message.content, out));
    }

    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Writer<'_>) {
        out.blocks(false, |out| {
            for (call, outcome) in exchange.answered_calls(&message.calls) {
                let id = out.id(call);
                result(&id, outcome, out);
            }
            // Nothing stands between results.
            let outcomes = exchange.slots().flatten();
            if let Some(part) = outcomes
                .filter_map(|outcome| out.find_marked(outcome))
                .last()
            {
                out.hint_behind(part);
            }
        });
    }

    fn user_first(&self) -> bool {
        true
    }

    fn alternates(&self) -> bool {
        true
    }

    fn cache_mark(&self, ttl: Ttl) -> &'static str {
        match ttl {
            Ttl::FiveMinutes => ",{\"cachePoint\":{\"type\":\"default\",\"ttl\":\"5m\"}}",
            Ttl::Hour => ",{\"cachePoint\":{\"type\":\"default\",\"ttl\":\"1h\"}}",
            _ => ",{\"cachePoint\":{\"type\":\"default\"}}",
        }
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

/// A text with what it cites, or what is cited alone.
fn write_cited_block(text: &str, citations: &Value, out: &mut Writer<'_>) {
    out.json.object(|block| {
        block.object("citationsContent", |cited| {
            if !is_blank(text) {
                cited.list("content", |list| {
                    list.object(|content| {
                        content.text("text", text);
                    });
                });
            }
            cited.field("citations", &AsJson(citations));
        });
    });
    out.mark_behind();
}

fn user_content(content: &Content, out: &mut Writer<'_>) {
    match content {
        Content::None => {}
        Content::Text(bytes) => {
            if let Some(text) = out.text(bytes) {
                text_block(&text, out);
            }
        }
        Content::Parts(parts) => user_parts(parts, false, out),
    }
}

fn user_parts(parts: &[Part], in_result: bool, out: &mut Writer<'_>) {
    let (mut has_text, mut has_document) = (false, false);
    for part in parts {
        match &part.kind {
            PartKind::Text(bytes) => {
                if let Some(text) = out.text(bytes) {
                    text_block(&text, out);
                    out.hint_behind(part);
                    has_text = true;
                }
            }
            PartKind::ProviderBlock { .. } => own_block(part, out),
            _ => match media(part, in_result, out) {
                WrittenAs::Document => has_document = true,
                WrittenAs::Text => has_text = true,
                WrittenAs::Other => {}
            },
        }
    }
    if has_document && !has_text {
        // A document needs a text beside it.
        text_block("See the attached document.", out);
    }
}

fn own_block(part: &Part, out: &mut Writer<'_>) {
    match out.block(part) {
        BlockForm::Own(data) => {
            out.json.element(&AsObject(data));
            out.mark_behind();
        }
        BlockForm::Words(words) => text_block(&words, out),
        BlockForm::Nothing => {}
    }
}

fn assistant(message: &Message, out: &mut Writer<'_>) {
    out.blocks(true, |out| {
        if let Content::Text(bytes) = &message.content {
            if let Some(text) = out.text(bytes) {
                text_block(&text, out);
            }
        }
        // With anything after it, a call counts as unanswered, or the message as the beginning of the answer.
        let said = out.arrange(message, is_thinking, |part, out| out.says(part));
        let spoken = out.find_spoken_end(&said, is_thinking);
        for (index, one) in said.into_iter().enumerate() {
            match one {
                PartOrCall::Part(part) if part.kind.is_thinking() => {
                    thinking(part, index < spoken, out)
                }
                PartOrCall::Part(part) => model_part(part, out),
                PartOrCall::Call(call) => write_call(call, out),
            }
        }
    });
}

fn write_call(call: &ToolCall, out: &mut Writer<'_>) {
    let [id, name, input] = out.function(call);
    out.json.object(|block| {
        block.object("toolUse", |tool| {
            tool.field("toolUseId", &*id)
                .field("name", &*name)
                .raw("input", &input);
        });
    });
    out.mark_behind();
}

fn model_part(part: &Part, out: &mut Writer<'_>) {
    match &part.kind {
        PartKind::Text(bytes) => {
            if let Some(citations) = part.provider_list(out.options, "citations") {
                write_cited_block(&utf8(bytes), citations, out);
                out.hint_behind(part);
            } else if let Some(text) = out.text(bytes) {
                text_block(&text, out);
                out.hint_behind(part);
            }
        }
        PartKind::ProviderBlock { .. } => own_block(part, out),
        _ => {
            let words = out.media_words(part);
            text_block(&words, out);
        }
    }
}

fn is_thinking(part: &Part, out: &Writer<'_>) -> bool {
    let is_refused = |data: &str| !crate::log::part::is_base64(data);
    is_own_thinking(part, out)
        && !matches!(&part.kind, PartKind::RedactedThinking(data) if is_refused(data))
}

/// Writes reasoning, which is sent as such where it leads to something: no message may end with it.
fn thinking(part: &Part, leads: bool, out: &mut Writer<'_>) {
    let is_own = leads && is_thinking(part, out);
    if let (PartKind::RedactedThinking(data), true) = (&part.kind, is_own) {
        out.json.object(|block| {
            block.object("reasoningContent", |content| {
                content.text("redactedContent", data);
            });
        });
        return;
    }
    match out.place_thinking(is_own, part) {
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
        }
        Thought::Text(text) => text_block(&text, out),
        Thought::Nothing => {}
    }
}

fn result(id: &str, outcome: &Outcome, out: &mut Writer<'_>) {
    // Only Claude and Nova know a status; for others the text says it.
    let knows_status = out
        .options
        .model
        .is_none_or(|model| model.contains("claude") || model.contains("nova"));
    let mut blocks = out.apart(|out| match &outcome.output {
        Output::Parts(parts) => user_parts(parts, true, out),
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
            let text = out.word_result(outcome);
            text_block(&text, out);
        }
    });
    if blocks.is_empty() {
        blocks = out.apart(|out| text_block(crate::value::wording::NO_OUTPUT, out));
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

/// Says what a part has become.
enum WrittenAs {
    Document,
    Text,
    Other,
}

fn media(part: &Part, in_result: bool, out: &mut Writer<'_>) -> WrittenAs {
    let Some(media) = Media::of(&part.kind) else {
        out.drop_part(part);
        return WrittenAs::Other;
    };
    // A result has no place for a recording.
    let (kind, format) = match format(&media) {
        ("audio", _) if in_result => ("audio", None),
        known => known,
    };
    let source = match media.source {
        Location::Inline(data) => Some(("bytes", data)),
        Location::Store(uri) if is_s3(uri) => Some(("s3Location", uri)),
        _ => None,
    };
    let (Some(format), Some((place, source))) = (format, source) else {
        let words = out.media_words(part);
        text_block(&words, out);
        out.hint_behind(part);
        return WrittenAs::Text;
    };
    out.json.object(|block| {
        block.object(kind, |block| {
            block.field("format", format);
            if kind == "document" {
                block.field("name", &document_name(media.filename));
            }
            block.object("source", |written| {
                if place == "bytes" {
                    written.text(place, source);
                } else {
                    written.object(place, |location| {
                        location.field("uri", source);
                    });
                }
            });
            if let Some(enabled) = part.citations().filter(|_| kind == "document") {
                block.object("citations", |citations| {
                    citations.field("enabled", &enabled);
                });
            }
        });
    });
    out.mark_behind();
    out.hint_behind(part);
    if kind == "document" {
        WrittenAs::Document
    } else {
        WrittenAs::Other
    }
}

/// The block for it and the format there.
fn format(media: &Media<'_>) -> (&'static str, Option<&'static str>) {
    let of = media.guessed_type().unwrap_or_default();
    let known = |table: &[(&'static str, &'static str)]| {
        let found = table.iter().find(|(_, media_type)| *media_type == of);
        found.map(|(format, _)| *format)
    };
    match media.class {
        Class::Image => ("image", media.image_format()),
        Class::Audio => ("audio", known(&AUDIO)),
        Class::Video => ("video", known(&VIDEO)),
        Class::File => ("document", known(&DOCUMENTS)),
    }
}

/// The service's own pattern.
fn is_s3(uri: &str) -> bool {
    let Some(rest) = uri.strip_prefix("s3://") else {
        return false;
    };
    let bucket = rest.split('/').next().unwrap_or(rest);
    let is_end = |byte: Option<u8>| {
        byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let is_inside = |byte: u8| is_end(Some(byte)) || byte == b'.' || byte == b'-';
    (3..=63).contains(&bucket.len())
        && bucket.bytes().all(is_inside)
        && is_end(bucket.bytes().next())
        && is_end(bucket.bytes().next_back())
        && uri.chars().count() <= 1024
        && !uri.contains('\n')
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
