//! Parts of messages and of results.

use super::PROVIDER;
use crate::log::media::{Class, Location, Media};
use crate::log::part::{Part, PartKind};
use crate::provider::dialect::breakpoints::hint;
use crate::provider::writer::{Block, Writer};
use crate::value::json::AsObject;

/// Parts of a result; nothing when there is nothing to say.
pub(super) fn parts_output(parts: &[Part], out: &mut Writer<'_>) -> String {
    out.apart(|out| {
        out.wrapped("[", "]", |out| {
            for part in parts {
                user_part(part, out);
            }
        });
    })
}

pub(super) fn user_part(part: &Part, out: &mut Writer<'_>) {
    match &part.kind {
        PartKind::Text(bytes) => {
            if let Some(text) = out.text(bytes) {
                input_text(&text, out);
                hint(part, out);
            }
        }
        PartKind::ProviderBlock { .. } => match out.block(part) {
            Block::Own(data) => out.json.element(&AsObject(data)),
            Block::Words(words) => input_text(&words, out),
            Block::Nothing => {}
        },
        _ => media(part, out),
    }
}

pub(super) fn input_text(text: &str, out: &mut Writer<'_>) {
    out.json.object(|part| {
        part.field("type", "input_text").text("text", text);
    });
}

/// Whether a part can stand in a user message or in a result; what cannot becomes words.
pub(super) fn is_sent(media: &Media<'_>) -> bool {
    match (media.class, media.source) {
        (Class::Image | Class::File, Location::Stored(owner, _)) => owner == PROVIDER,
        (Class::Image, Location::Inline(_)) => media.is_common_image(),
        (Class::Image, Location::Web(_)) => true,
        (Class::File, Location::Inline(_) | Location::Web(_)) => media.is_pdf(),
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
        input_text(&words, out);
        hint(part, out);
        return;
    }
    let url = media.url();
    out.json.object(|written| {
        if media.is_image() {
            written
                .field("type", "input_image")
                .field("detail", part.detail().unwrap_or("auto"));
        } else {
            written.field("type", "input_file");
        }
        match (media.is_image(), media.source) {
            (_, Location::Stored(_, id)) => {
                written.field("file_id", id);
            }
            (true, _) => {
                written.text("image_url", &url);
            }
            (false, Location::Web(url)) => {
                written.field("file_url", url);
            }
            (false, _) => {
                written
                    .field("filename", media.filename.unwrap_or("file.pdf"))
                    .text("file_data", &url);
            }
        }
        let detail = part.detail().filter(|detail| *detail != "original");
        if let Some(detail) = detail.filter(|_| !media.is_image()) {
            written.field("detail", detail);
        }
    });
    hint(part, out);
}
