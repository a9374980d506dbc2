//! Reads images and files.

use super::PROVIDER;
use crate::log::part::{PartKind, Source};
use crate::provider::foreign::{
    filled_name_at, image_or_file, inline_file, name_at, stored, url_image,
};
use crate::value::Value;

/// Reads an image or a file, wherever its bytes are.
pub(super) fn media(value: &Value) -> Option<PartKind> {
    let is_image = match name_at(value, "type")? {
        "input_image" => true,
        "input_file" => false,
        _ => return None,
    };
    let filename = name_at(value, "filename").map(Into::into);
    let source = match (filled_name_at(value, "file_id"), is_image) {
        (Some(id), _) => stored(PROVIDER, id),
        (None, true) => return Some(url_image(filled_name_at(value, "image_url")?.into())),
        (None, false) => match name_at(value, "file_data") {
            Some(data) => return inline_file(data, filename),
            None => Source::Url(filled_name_at(value, "file_url")?.into()),
        },
    };
    Some(image_or_file(is_image, None, source, filename))
}
