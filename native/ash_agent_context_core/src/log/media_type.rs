//! Media types, as people write them and as providers read them.

use std::borrow::Cow;

/// Other names of a type that providers know under one.
const SYNONYMS: [(&str, &str); 16] = [
    ("image/jpg", "image/jpeg"),
    ("image/pjpeg", "image/jpeg"),
    ("image/x-png", "image/png"),
    ("audio/mp3", "audio/mpeg"),
    ("audio/x-mp3", "audio/mpeg"),
    ("audio/x-wav", "audio/wav"),
    ("audio/wave", "audio/wav"),
    ("audio/vnd.wave", "audio/wav"),
    ("audio/x-flac", "audio/flac"),
    ("audio/x-m4a", "audio/mp4"),
    ("audio/m4a", "audio/mp4"),
    ("video/mov", "video/quicktime"),
    ("video/x-msvideo", "video/avi"),
    ("video/msvideo", "video/avi"),
    ("video/x-ms-wmv", "video/wmv"),
    ("application/x-pdf", "application/pdf"),
];

/// Returns the type in small letters, without parameters, under the name that providers know.
pub(crate) fn normal(given: &str) -> Cow<'_, str> {
    let essence = given.split(';').next().unwrap_or_default().trim();
    let small = match essence.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(essence.to_ascii_lowercase()),
        false => Cow::Borrowed(essence),
    };
    let synonym = SYNONYMS.iter().find(|(other, _)| *other == small);
    synonym.map_or(small, |(_, known)| Cow::Borrowed(known))
}

/// Returns true if a file of this normal type is text, so that a model can read it as such.
pub(crate) fn is_text(media_type: &str) -> bool {
    let is_structured = media_type.ends_with("+json") || media_type.ends_with("+xml");
    media_type.starts_with("text/")
        || is_structured
        || matches!(
            media_type,
            "application/json"
                | "application/x-ndjson"
                | "application/xml"
                | "application/yaml"
                | "application/x-yaml"
                | "application/toml"
                | "application/sql"
                | "application/javascript"
                | "application/x-javascript"
                | "application/x-sh"
                | "application/x-python"
                | "application/x-tex"
        )
}
