//! Writes messages for Mistral chat completions: OpenAI's shape with rules of its own.

use super::Room;
use crate::log::exchange::Exchange;
use crate::log::media::{Location, Media};
use crate::log::message::Message;
use crate::log::part::{Class, Content, Part, PartKind};
use crate::log::provider::Provider;
use crate::provider::dialect::chat::read::{pieces, ThoughtPiece};
use crate::provider::dialect::chat::write::{
    message_with_calls, result_messages, role_message, text_part,
};
use crate::provider::format::Writes;
use crate::provider::writer::{mark_nothing, own_element, texts, Parts, Thought, Writer};
use crate::value::json::AsJson;
use crate::value::letters::is_blank;

impl Writes for Room {
    fn system(&self, system: &Message, out: &mut Writer<'_>) {
        let Content::Parts(_) = &system.content else {
            return role_message("system", &system.content, &PARTS, out);
        };
        let texts = texts(&system.content, out);
        out.wrap(",{\"role\":\"system\",\"content\":[", "]}", |out| {
            texts.iter().for_each(|text| text_part(text, out));
        });
    }

    fn user(&self, message: &Message, out: &mut Writer<'_>) {
        role_message("user", &message.content, &PARTS, out);
    }

    fn assistant(&self, message: &Message, out: &mut Writer<'_>) {
        let mut speaks = false;
        let content = out.apart(|out| match &message.content {
            Content::Parts(parts) => out.wrap("[", "]", |out| {
                for part in &**parts {
                    speaks |= assistant_part(part, out);
                }
            }),
            content => speaks = out.say(content, |text, out| out.json.text(text)),
        });
        // Thinking that nothing follows is not sent.
        if speaks || !message.calls.is_empty() {
            message_with_calls(message, &content, |_| {}, out);
        }
    }

    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Writer<'_>) {
        result_messages(message, exchange, &PARTS, true, out);
    }
}

const PARTS: Parts = Parts {
    text: text_part,
    hint: mark_nothing,
    own: own_element,
    takes: is_sent,
    media,
};

/// Writes a part. Returns whether it is more than thinking.
fn assistant_part(part: &Part, out: &mut Writer<'_>) -> bool {
    let before = out.json.0.len();
    match &part.kind {
        PartKind::Thinking(_) => match out.thinking(part, false) {
            Thought::Own { text, signature } => {
                let pieces = pieces(&text, part);
                let says = |piece: &ThoughtPiece<'_>| !matches!(piece, ThoughtPiece::Text(text) if is_blank(text));
                if !pieces.iter().any(says) {
                    return false;
                }
                out.json.object(|written| {
                    written.field("type", "thinking").list("thinking", |list| {
                        for piece in pieces {
                            match piece {
                                ThoughtPiece::Text(text) => list.object(|piece| {
                                    piece.field("type", "text").text("text", text);
                                }),
                                ThoughtPiece::Chunk(chunk) => list.element(&AsJson(chunk)),
                            }
                        }
                    });
                    let closed = part.is_noted("closed").then_some(true);
                    written
                        .given("signature", signature)
                        .given("closed", closed);
                });
                return false;
            }
            Thought::Text(text) => text_part(&text, out),
            Thought::Redacted(_) | Thought::Nothing => {}
        },
        _ => PARTS.one_in_words(part, out),
    }
    out.json.0.len() > before
}

fn is_sent(media: &Media<'_>) -> bool {
    match (media.class, media.source) {
        (_, Location::Stored(owner, _)) => owner == Provider::Mistral,
        (Class::Image, Location::Inline(_)) => media.is_common_image(),
        (Class::Image, Location::Web(_)) => true,
        (Class::Audio, Location::Inline(_)) => {
            matches!(media.guessed_type(), Some("audio/wav" | "audio/mpeg"))
        }
        (Class::File, Location::Inline(_) | Location::Web(_)) => media.is_pdf(),
        _ => false,
    }
}

fn media(part: &Part, media: &Media<'_>, out: &mut Writer<'_>) {
    let url = media.url();
    // Only OpenAI knows "original".
    let detail = part.detail().filter(|detail| *detail != "original");
    out.json.object(|written| {
        let kind = match (media.class, media.source) {
            (_, Location::Stored(..)) => "file",
            (Class::Image, _) => "image_url",
            (Class::Audio, Location::Inline(_)) => "input_audio",
            _ => "document_url",
        };
        let written = written.field("type", kind);
        match (media.class, media.source, detail) {
            (_, Location::Stored(_, id), _) => written.field("file_id", id),
            (Class::Image, _, Some(detail)) => {
                written.strings(kind, &[("url", &url), ("detail", detail)])
            }
            (Class::Image, ..) => written.text(kind, &url),
            (Class::Audio, Location::Inline(data), _) => written.text(kind, data),
            _ => {
                let written = written.text(kind, &url);
                written.given("document_name", media.filename)
            }
        };
    });
}
