//! OpenAI Chat Completions.

use crate::log::exchange::Exchange;
use crate::log::message::{Message, Role};
use crate::log::part::{Content, Part, PartKind};
use crate::value::json::AsObject;

use super::Room;
use crate::log::media::{Location, Media};
use crate::provider::dialect::chat::write::{message_with_calls, text_message, text_part};
use crate::provider::format::Writes;
use crate::provider::options::SystemRole;
use crate::provider::writer::{texts, Thought, Writer};

impl Writes for Room {
    fn system(&self, system: &Message, out: &mut Writer<'_>) {
        let role = match out.options.system_role {
            SystemRole::System => "system",
            SystemRole::Developer => "developer",
        };
        match &system.content {
            Content::Parts(_) => {
                let texts = texts(&system.content, out);
                let open = format!(",{{\"role\":\"{role}\",\"content\":[");
                out.wrapped(&open, "]}", |out| {
                    for text in texts {
                        text_part(&text, out);
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

    fn message(&self, message: &Message, out: &mut Writer<'_>) {
        match message.role {
            Role::System => self.system(message, out),
            Role::User => user(message, out),
            Role::Assistant => assistant(message, out),
        }
    }

    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Writer<'_>) {
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
}

fn user(message: &Message, out: &mut Writer<'_>) {
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

fn user_part(part: &Part, out: &mut Writer<'_>) {
    match &part.kind {
        PartKind::Text(bytes) => {
            if let Some(text) = out.text(bytes) {
                text_part(&text, out);
            }
        }
        PartKind::ProviderBlock { .. } => own_part(part, out),
        _ => media(part, out),
    }
}

fn own_part(part: &Part, out: &mut Writer<'_>) {
    if let Some(data) = out.own_block(part) {
        out.json.element(&AsObject(data));
    }
}

fn assistant(message: &Message, out: &mut Writer<'_>) {
    // Written apart: the message is left out when there is nothing in it.
    let content = out.apart(|out| match &message.content {
        Content::None => {}
        Content::Text(bytes) => {
            if let Some(text) = out.text(bytes) {
                out.json.text(&text);
            }
        }
        Content::Parts(parts) => out.wrapped("[", "]", |out| {
            for part in &**parts {
                assistant_part(part, out);
            }
        }),
    });
    message_with_calls(message, &content, out);
}

fn assistant_part(part: &Part, out: &mut Writer<'_>) {
    match &part.kind {
        // The API has no place for thinking, not even for its own models'.
        PartKind::Thinking(_) => {
            if let Thought::Text(text) = out.thinking_as_text(part) {
                text_part(&text, out);
            }
        }
        PartKind::Image { .. } | PartKind::File { .. } => {
            let words = out.media_words(part);
            text_part(&words, out);
        }
        PartKind::RedactedThinking(_) => out.dropped(part),
        PartKind::Text(_) | PartKind::ProviderBlock { .. } => user_part(part, out),
    }
}

/// Whether a part can stand in a user message; what cannot becomes words.
fn is_sent(media: &Media<'_>) -> bool {
    match (media.is_image, media.source) {
        (true, Location::Inline(_)) => media.is_common_image(),
        (true, Location::Web(_)) => true,
        (false, Location::Inline(_)) => media.media_type == Some("application/pdf"),
        _ => false,
    }
}

fn media(part: &Part, out: &mut Writer<'_>) {
    let Some(media) = Media::of(&part.kind) else {
        out.dropped(part);
        return;
    };
    if !is_sent(&media) {
        let words = out.media_words(part);
        text_part(&words, out);
        return;
    }
    let url = media.url();
    out.json.object(|written| {
        if media.is_image {
            written
                .field("type", "image_url")
                .object("image_url", |image| {
                    image.text("url", &url);
                });
        } else {
            let name = media.filename.unwrap_or("file.pdf");
            written.field("type", "file").object("file", |file| {
                file.field("filename", name).text("file_data", &url);
            });
        }
    });
}
