//! Content in the format's words, and in ours where it has none.

use crate::log::media::Media;
use crate::log::media_type::normal;
use crate::log::part::{Class, Content, MediaPart, Part, PartKind, Source};
use crate::trace::atif::IMAGES;
use crate::trace::said::part_text;
use crate::value::builder::{Json, JsonObject};
use crate::value::json::{AsJson, AsObject};
use crate::value::letters;

/// Content of a step, apart from what the model thought.
pub(super) fn content(json: &mut Json, content: &Content) {
    match content {
        Content::None => json.text(""),
        Content::Text(text) => json.text(&letters::utf8(text)),
        Content::Parts(all) => match all.iter().any(|part| !is_thinking(part)) {
            true => parts(json, all.iter().filter(|part| !is_thinking(part))),
            // The format has no list without anything in it that a person could read.
            false => json.text(""),
        },
    }
}

pub(super) fn parts<'a>(json: &mut Json, parts: impl Iterator<Item = &'a Part>) {
    json.list(parts, |json, part| match image(part) {
        Some((media_type, path)) => json.bare_object(|json| {
            json.text("type", "image").object("source", |json| {
                json.text("media_type", &media_type).text("path", &path);
            });
        }),
        None => json.bare_object(|json| {
            json.text("type", "text").text("text", &part_text(part));
        }),
    });
}

/// Returns what the model thought.
pub(super) fn thoughts(content: &Content) -> Option<String> {
    let Content::Parts(parts) = content else {
        return None;
    };
    let thoughts: Vec<_> = parts
        .iter()
        .filter_map(|part| part.kind.thoughts().map(|text| letters::utf8(text)))
        .collect();
    (!thoughts.is_empty()).then(|| thoughts.join("\n\n"))
}

/// Returns whether the format says all of it.
pub(super) fn is_said(content: &Content) -> bool {
    let Content::Parts(parts) = content else {
        return true;
    };
    let is_first = |(at, part): (usize, &Part)| at == 0 || !is_thinking(part);
    !parts.is_empty() && parts.iter().enumerate().all(is_first) && parts.iter().all(is_said_part)
}

pub(super) fn is_said_part(part: &Part) -> bool {
    let is_bare = part.provider_metadata.is_none() && part.hints.is_none();
    is_bare
        && match &part.kind {
            PartKind::Text(_) | PartKind::Thinking(_) => true,
            PartKind::Media(media) => {
                let of = media.media_type.as_deref();
                let is_known = of.is_some_and(|of| IMAGES.contains(&of));
                let is_address = match &media.source {
                    Source::Url(url) => !url.starts_with("data:"),
                    Source::Data(_) => true,
                    Source::Stored { .. } => false,
                };
                media.class == Class::Image && is_known && is_address
            }
            _ => false,
        }
}

const fn is_thinking(part: &Part) -> bool {
    part.kind.is_thinking()
}

/// The media type and the address of an image that the format has.
fn image(part: &Part) -> Option<(String, String)> {
    let given = part.kind.media()?;
    if given.class != Class::Image {
        return None;
    }
    let media = Media::of(&part.kind)?;
    let media_type = given.media_type.as_deref().or(media.guessed_type())?;
    let media_type = normal(media_type).into_owned();
    let path = match &given.source {
        Source::Data(data) => format!("data:{media_type};base64,{data}"),
        Source::Url(url) => url.to_string(),
        Source::Stored { .. } => return None,
    };
    IMAGES
        .contains(&media_type.as_str())
        .then_some((media_type, path))
}

/// Parts as an application gives them.
pub(super) fn own_parts(json: &mut JsonObject<'_>, parts: &[Part]) {
    json.key("content").list(parts, |json, part| {
        json.bare_object(|json| own_part(json, part))
    });
}

fn own_part(json: &mut JsonObject<'_>, part: &Part) {
    json.text("type", part.kind.name());
    match &part.kind {
        PartKind::Text(text) | PartKind::Thinking(text) => {
            json.text("text", &letters::utf8(text));
        }
        PartKind::RedactedThinking(data) => {
            json.text("data", data);
        }
        PartKind::ProviderBlock { provider, data } => {
            json.text("provider", provider.name())
                .field("data", &AsObject(data));
        }
        PartKind::Media(media) => own_media(json, media),
    }
    if let Some(metadata) = &part.provider_metadata {
        json.field("provider_metadata", &AsObject(metadata));
    }
    for (key, value) in part.hints.iter().flat_map(|hints| hints.iter()) {
        if let Some(key) = key.as_name() {
            json.field(key, &AsJson(value));
        }
    }
}

fn own_media(json: &mut JsonObject<'_>, media: &MediaPart) {
    if let Some(name) = &media.filename {
        json.text("filename", name);
    }
    if let Some(media_type) = &media.media_type {
        json.text("media_type", media_type);
    }
    match &media.source {
        Source::Data(data) => json.text("data", data),
        Source::Url(url) => json.text("url", url),
        Source::Stored { provider, id } => {
            json.text("file_id", id).text("provider", provider.name())
        }
    };
}
