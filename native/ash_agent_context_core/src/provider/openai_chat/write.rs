//! Writes messages for OpenAI Chat Completions.

use super::beside::Beside;
use super::Room;
use crate::log::exchange::Exchange;
use crate::log::media::{Location, Media};
use crate::log::message::{Message, Role};
use crate::log::part::{Class, Content, Part, PartKind};
use crate::log::provider::Provider;
use crate::provider::dialect::chat::read::AUDIO;
use crate::provider::dialect::chat::write::{
    hint, message_with_calls, result_messages, role_message, system_role, text_part,
};
use crate::provider::format::Writes;
use crate::provider::writer::{own_element, Parts, Thought, Writer};

impl Writes for Room {
    fn system(&self, system: &Message, out: &mut Writer<'_>) {
        let role = system_role(out.options.system_role);
        role_message(role, &system.content, &PARTS, out);
    }

    fn user(&self, message: &Message, out: &mut Writer<'_>) {
        match message.role {
            Role::System => self.system(message, out),
            _ => role_message("user", &message.content, &PARTS, out),
        }
    }

    fn assistant(&self, message: &Message, out: &mut Writer<'_>) {
        let beside = Beside::of(message, out, is_sent);
        // Written apart, since an empty message is left out.
        let content = out.apart(|out| match &message.content {
            Content::Parts(parts) => match text_beside(parts, &beside) {
                Some(bytes) => {
                    for part in &**parts {
                        thinking(part, &beside, out);
                    }
                    if let Some(text) = out.text(bytes) {
                        out.json.text(&text);
                    }
                }
                None => out.wrap("[", "]", |out| {
                    for part in parts.iter().filter(|part| !beside.has(part)) {
                        assistant_part(part, &beside, out);
                    }
                }),
            },
            content => {
                out.say(content, |text, out| out.json.text(text));
            }
        });
        if !(content.is_empty() && message.calls.is_empty() && beside.says_nothing()) {
            message_with_calls(message, &content, |written| beside.write(written), out);
        }
    }

    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Writer<'_>) {
        result_messages(message, exchange, &PARTS, false, out);
    }
}

const PARTS: Parts = Parts {
    text: text_part,
    hint,
    own: own_element,
    takes: is_sent,
    media,
};

/// Returns the text of a message that is one text and fields beside it. Servers that reason want it as a string, not in a list.
fn text_beside<'a>(parts: &'a [Part], beside: &Beside<'_>) -> Option<&'a [u8]> {
    let (apart, rest): (Vec<_>, Vec<_>) = parts
        .iter()
        .partition(|part| part.kind.thoughts().is_some() || beside.has(part));
    match (apart.is_empty(), &*rest) {
        (false, [part]) if part.hints.is_none() => match &part.kind {
            PartKind::Text(bytes) => Some(bytes),
            _ => None,
        },
        _ => None,
    }
}

fn assistant_part(part: &Part, beside: &Beside<'_>, out: &mut Writer<'_>) {
    match &part.kind {
        PartKind::Thinking(_) => {
            if let Thought::Text(text) = thinking(part, beside, out) {
                text_part(&text, out);
            }
        }
        _ => PARTS.one_in_words(part, out),
    }
}

/// Returns the form in which thinking that does not stand beside the content is sent.
fn thinking<'a>(part: &'a Part, beside: &Beside<'_>, out: &mut Writer<'_>) -> Thought<'a> {
    if beside.has(part) {
        return Thought::Nothing;
    }
    out.turn_thinking_into_text(part)
}

/// Returns whether a medium can stand in a user message. Others become words.
fn is_sent(media: &Media<'_>) -> bool {
    match (media.class, media.source) {
        (Class::Image, Location::Inline(_)) => media.is_common_image(),
        (Class::Image, Location::Web(_)) => true,
        (Class::Audio, Location::Inline(_)) => audio_format(media).is_some(),
        (Class::File, Location::Inline(_)) => media.is_pdf(),
        (Class::File, Location::Stored(owner, _)) => owner == Provider::OpenAiChat,
        _ => false,
    }
}

fn audio_format(media: &Media<'_>) -> Option<&'static str> {
    let of = media.media_type.as_deref()?;
    let known = AUDIO.iter().find(|(_, media_type)| *media_type == of);
    known.map(|(format, _)| *format)
}

fn media(part: &Part, media: &Media<'_>, out: &mut Writer<'_>) {
    let url = media.url();
    let kind = match (media.class, media.source) {
        (Class::Image, _) => "image_url",
        (Class::Audio, Location::Inline(_)) => "input_audio",
        _ => "file",
    };
    out.json.object(|written| {
        let written = written.field("type", kind);
        written.object(kind, |inside| {
            match (media.class, media.source) {
                (Class::Image, _) => inside.text("url", &url).given("detail", part.detail()),
                (Class::Audio, Location::Inline(data)) => {
                    let format = audio_format(media).unwrap_or_default();
                    inside.text("data", data).field("format", format)
                }
                (_, Location::Stored(_, id)) => inside.field("file_id", id),
                _ => {
                    let name = media.filename.unwrap_or("file.pdf");
                    inside.field("filename", name).text("file_data", &url)
                }
            };
        });
    });
}
