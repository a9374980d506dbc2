//! Writes parts of messages and of results.

use super::PROVIDER;
use crate::log::media::{Location, Media};
use crate::log::part::{Class, Part};
use crate::provider::dialect::chat::write::hint;
use crate::provider::parts::{own_element, Parts};
use crate::provider::writer::Writer;

pub(super) const PARTS: Parts = Parts {
    text: input_text,
    hint,
    own: own_element,
    takes: is_sent,
    media,
};

pub(super) fn input_text(text: &str, out: &mut Writer<'_>) {
    out.json.strings(&[("type", "input_text"), ("text", text)]);
}

/// Returns whether a medium can stand in a user message or in a result. Others become words.
pub(super) fn is_sent(media: &Media<'_>) -> bool {
    match (media.class, media.source) {
        (Class::Image | Class::File, Location::Stored(owner, _)) => owner == PROVIDER,
        (Class::Image, Location::Inline(_)) => media.is_common_image(),
        (Class::Image, Location::Web(_)) => true,
        (Class::File, Location::Inline(_) | Location::Web(_)) => media.is_pdf(),
        _ => false,
    }
}

fn media(part: &Part, media: &Media<'_>, out: &mut Writer<'_>) {
    let url = media.url();
    out.json.object(|written| {
        if media.is_image() {
            written
                .field("type", "input_image")
                .field("detail", part.detail().unwrap_or("auto"));
        } else {
            written.field("type", "input_file");
        }
        let filename = media.filename.unwrap_or("file.pdf");
        match (media.is_image(), media.source) {
            (_, Location::Stored(_, id)) => written.field("file_id", id),
            (true, _) => written.text("image_url", &url),
            (false, Location::Web(url)) => written.field("file_url", url),
            (false, _) => written.field("filename", filename).text("file_data", &url),
        };
        let detail = part.detail().filter(|detail| *detail != "original");
        written.given("detail", detail.filter(|_| !media.is_image()));
    });
}
