//! Writes messages for Bedrock Converse.

use std::sync::LazyLock;

use regex::Regex;

use super::facts::{document_name, LONGEST_NAME};
use super::formats::{AUDIO, DOCUMENTS, VIDEO};
use super::Room;
use crate::log::call::ToolCall;
use crate::log::exchange::Exchange;
use crate::log::media::{Location, Media};
use crate::log::message::{Message, Outcome, Output};
use crate::log::part::{Class, Content, Part, PartKind};
use crate::provider::format::Writes;
use crate::provider::order::PartOrCall;
use crate::provider::writer::{is_own_thinking, Parts, Thought, Writer};
use crate::value::json::{AsJson, AsObject};
use crate::value::letters::{is_blank, utf8};
use crate::value::Value;

impl Writes for Room {
    fn system(&self, system: &Message, out: &mut Writer<'_>) {
        out.wrap("[", "]", |out| user_content(&system.content, out));
    }

    fn user(&self, message: &Message, out: &mut Writer<'_>) {
        out.blocks(false, |out| user_content(&message.content, out));
    }

    fn assistant(&self, message: &Message, out: &mut Writer<'_>) {
        out.blocks(true, |out| {
            out.say(&message.content, text_block);
            // If anything follows a call, the call counts as unanswered, or the message as the beginning of the answer.
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

    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Writer<'_>) {
        out.blocks(false, |out| {
            for (call, outcome) in exchange.answered_calls(&message.calls) {
                let id = out.id(call);
                out.result = Some((call.aliases.short.text(), 0));
                result(&id, outcome, out);
            }
            out.result = None;
            // Nothing stands between results.
            let outcomes = exchange.slots().flatten();
            let marked = outcomes.filter_map(|outcome| out.find_marked(outcome));
            if let Some(part) = marked.last() {
                out.hint_behind(part);
            }
        });
    }
}

fn text_block(text: &str, out: &mut Writer<'_>) {
    out.json.strings(&[("text", text)]);
    out.mark_behind();
}

/// Writes a text with its citations, or the citations alone.
fn write_cited_block(text: &str, citations: &Value, out: &mut Writer<'_>) {
    out.json.object(|block| {
        block.object("citationsContent", |cited| {
            if !is_blank(text) {
                cited.list("content", |list| {
                    list.strings(&[("text", text)]);
                });
            }
            cited.field("citations", &AsJson(citations));
        });
    });
    out.mark_behind();
}

const PARTS: Parts = Parts {
    text: text_block,
    hint: |part, out| match Media::of(&part.kind).is_none_or(|media| takes_mark(&media)) {
        true => out.hint_behind(part),
        false => out.hint_before(part),
    },
    own: |data, out| {
        out.json.element(&AsObject(data));
        out.mark_behind();
    },
    takes: |media| form(media).is_some(),
    media,
};

/// The parts of a result, which cannot have a recording.
const IN_RESULT: Parts = Parts {
    takes: |media| media.class != Class::Audio && (PARTS.takes)(media),
    ..PARTS
};

fn user_content(content: &Content, out: &mut Writer<'_>) {
    out.say(content, text_block);
    user_parts(content.parts(), &PARTS, out);
}

fn user_parts(parts: &[Part], by: &Parts, out: &mut Writer<'_>) {
    let (mut has_text, mut has_document) = (false, false);
    for part in parts {
        by.one(part, out);
        match Media::of(&part.kind) {
            Some(media) if (by.takes)(&media) => has_document |= media.class == Class::File,
            Some(_) => has_text = true,
            None => has_text |= matches!(part.kind, PartKind::Text(_)) && out.says(part),
        }
    }
    if has_document && !has_text {
        // The service refuses a document without a text beside it.
        text_block("See the attached document.", out);
    }
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
        _ => PARTS.one_in_words(part, out),
    }
}

fn is_thinking(part: &Part, out: &Writer<'_>) -> bool {
    let is_refused = |data: &str| !crate::log::part::is_base64(data);
    is_own_thinking(part, out)
        && !matches!(&part.kind, PartKind::RedactedThinking(data) if is_refused(data))
}

/// Writes reasoning, as such if something follows it: no message may end with it.
fn thinking(part: &Part, leads: bool, out: &mut Writer<'_>) {
    let is_own = leads && is_thinking(part, out);
    match out.place_thinking(is_own, part) {
        Thought::Redacted(data) => out.json.object(|block| {
            block.strings("reasoningContent", &[("redactedContent", data)]);
        }),
        Thought::Own { text, signature } => {
            out.json.object(|block| {
                block.object("reasoningContent", |content| {
                    content.strings(
                        "reasoningText",
                        &[
                            ("text", &text),
                            ("signature", signature.unwrap_or_default()),
                        ],
                    );
                });
            });
        }
        Thought::Text(text) => text_block(&text, out),
        Thought::Nothing => {}
    }
}

fn result(id: &str, outcome: &Outcome, out: &mut Writer<'_>) {
    // Only Claude and Nova take a status; for others the text says it.
    let model = out.options.model;
    let knows_status = model.is_none_or(|of| of.contains("claude") || of.contains("nova"));
    let object = outcome.as_object();
    let object = object.filter(|map| crate::value::structs::struct_text(map).is_none());
    let mut blocks = out.apart(|out| match (&outcome.output, object) {
        (Output::Parts(_), _) if outcome.is_error() => {
            IN_RESULT.result(outcome, !knows_status, out);
        }
        (Output::Parts(parts), _) => user_parts(parts, &IN_RESULT, out),
        (Output::Value(_), Some(map)) => {
            out.json.object(|block| {
                block.field("json", &AsObject(map));
            });
        }
        (Output::Value(_), None) => {
            let text = match knows_status {
                true => out.result_text(outcome),
                false => out.word_result(outcome),
            };
            text_block(&text, out);
        }
    });
    if blocks.is_empty() {
        blocks = out.apart(|out| text_block(crate::value::wording::NO_OUTPUT, out));
    }
    out.json.object(|block| {
        block.object("toolResult", |result| {
            let status = (outcome.is_error() && knows_status).then_some("error");
            result
                .field("toolUseId", id)
                .raw("content", &format!("[{blocks}]"))
                .given("status", status);
        });
    });
    out.mark_behind();
}

/// Returns the block for media that the service takes, with their format and where they are.
fn form<'a>(media: &Media<'a>) -> Option<(&'static str, &'static str, (&'static str, &'a str))> {
    let source = match media.source {
        Location::Inline(data) => ("bytes", data),
        Location::Store(uri) if is_s3(uri) => ("s3Location", uri),
        _ => return None,
    };
    let (kind, format) = format(media);
    Some((kind, format?, source))
}

fn media(part: &Part, media: &Media<'_>, out: &mut Writer<'_>) {
    let Some((kind, format, (place, source))) = form(media) else {
        return;
    };
    let number = out.file_number(part).filter(|_| kind == "document");
    out.json.object(|block| {
        block.object(kind, |block| {
            block.field("format", format);
            if kind == "document" {
                let name = document_name(media.filename);
                let name = match &number {
                    Some(number) => {
                        let most = LONGEST_NAME.saturating_sub(number.len() + 3);
                        let name: String = name.chars().take(most).collect();
                        format!("{} [{number}]", name.trim_end())
                    }
                    None => name,
                };
                block.field("name", &name);
            }
            block.object("source", |written| {
                if place == "bytes" {
                    written.text(place, source);
                } else {
                    written.strings(place, &[("uri", source)]);
                }
            });
            if let Some(enabled) = part.citations().filter(|_| kind == "document") {
                block.object("citations", |citations| {
                    citations.field("enabled", &enabled);
                });
            }
        });
    });
    if takes_mark(media) {
        out.mark_behind();
    }
}

/// Returns whether a cache point may stand after media. By report (strands-agents/harness-sdk#1966) not after a document that is no
/// PDF.
fn takes_mark(media: &Media<'_>) -> bool {
    media.class != Class::File || media.is_pdf()
}

/// Returns the block for a medium, and its format.
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

/// The service's own pattern of an address.
static S3: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new("^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?$").ok());

fn is_s3(uri: &str) -> bool {
    let is_one = S3.as_ref().is_some_and(|pattern| pattern.is_match(uri));
    is_one && uri.chars().count() <= 1024
}
