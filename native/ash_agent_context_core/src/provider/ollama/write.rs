//! Writes messages for Ollama chat: every content is one string, and images stand beside it.

use std::borrow::Cow;

use crate::log::exchange::Exchange;
use crate::log::message::Message;
use crate::log::part::{Content, Part, PartKind};

use super::Room;
use crate::log::media::{Location, Media};
use crate::provider::dialect::chat::write::text_message;
use crate::provider::format::Writes;
use crate::provider::writer::{texts, Thought, Writer};
use crate::value::letters::is_blank;

impl Writes for Room {
    fn system(&self, system: &Message, out: &mut Writer<'_>) {
        let texts = texts(&system.content, out);
        if !texts.is_empty() {
            text_message("system", &texts.join("\n\n"), out);
        }
    }

    fn user(&self, message: &Message, out: &mut Writer<'_>) {
        out.say(&message.content, |text, out| {
            text_message("user", text, out)
        });
        user(message.content.parts().iter(), out);
    }

    fn assistant(&self, message: &Message, out: &mut Writer<'_>) {
        let (mut texts, mut thoughts) = (Vec::new(), Vec::new());
        if let Content::Text(bytes) = &message.content {
            texts.extend(out.text(bytes));
        }
        for part in message.content.parts() {
            match &part.kind {
                PartKind::Text(bytes) => texts.extend(out.text(bytes)),
                PartKind::Thinking(_) => match out.thinking(part, false) {
                    Thought::Own { text, .. } if !is_blank(&text) => thoughts.push(text),
                    Thought::Text(text) => texts.push(text),
                    _ => {}
                },
                _ => texts.extend(out.words(part).map(Cow::Owned)),
            }
        }
        if texts.is_empty() && message.calls.is_empty() {
            return;
        }
        out.list_calls(message);
        let calls = message.calls.iter().map(|call| out.function(call));
        let calls: Vec<_> = calls.collect();
        out.json.raw(",");
        out.json.bare_object(|written| {
            written
                .field("role", "assistant")
                .text("content", &texts.join("\n\n"));
            if !thoughts.is_empty() {
                written.text("thinking", &thoughts.join("\n\n"));
            }
            if !calls.is_empty() {
                written.objects("tool_calls", &calls, |call, [id, name, arguments]| {
                    call.field("id", &**id).object("function", |function| {
                        function.field("name", &**name).raw("arguments", arguments);
                    });
                });
            }
        });
    }

    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Writer<'_>) {
        let mut behind = Vec::new();
        for (call, outcome) in exchange.answered_calls(&message.calls) {
            let (id, name) = (out.id(call), out.name(call));
            let (text, media) = out.split_result(outcome, true, is_sent);
            behind.extend(media);
            out.json.raw(",");
            out.json.bare_object(|message| {
                message
                    .field("role", "tool")
                    .text("content", &text)
                    .field("tool_name", &*name)
                    .field("tool_call_id", &*id);
            });
        }
        user(behind.into_iter(), out);
    }
}

fn user<'a>(parts: impl Iterator<Item = &'a Part>, out: &mut Writer<'_>) {
    let (mut texts, mut images) = (Vec::new(), Vec::new());
    for part in parts {
        let media = Media::of(&part.kind);
        media.iter().for_each(|media| out.report_type(part, media));
        match (&part.kind, media.filter(is_sent).map(|image| image.source)) {
            (PartKind::Text(bytes), _) => texts.extend(out.text(bytes)),
            (_, Some(Location::Inline(data))) => images.push(data.to_owned()),
            _ => texts.extend(out.words(part).map(Cow::Owned)),
        }
    }
    if texts.is_empty() && images.is_empty() {
        return;
    }
    out.json.raw(",");
    out.json.bare_object(|message| {
        message
            .field("role", "user")
            .text("content", &texts.join("\n\n"));
        if !images.is_empty() {
            message.field("images", &images);
        }
    });
}

/// Returns whether this is an image whose bytes are here; the server fetches nothing and reads no other files.
fn is_sent(media: &Media<'_>) -> bool {
    media.is_common_image() && matches!(media.source, Location::Inline(_))
}
