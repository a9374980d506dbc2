//! Reading images and files.

use super::PROVIDER;
use crate::log::part::{PartKind, Source};
use crate::provider::foreign::{inline_file, name_at, url_image};
use crate::value::Value;

/// An image or a file, wherever its bytes are.
pub(super) fn media(value: &Value) -> Option<PartKind> {
    let stored = |id: &str| Source::Stored {
        provider: PROVIDER,
        id: id.into(),
    };
    let id = name_at(value, "file_id").filter(|id| !id.trim().is_empty());
    match name_at(value, "type")? {
        "input_image" => {
            if let Some(id) = id {
                return Some(PartKind::Image {
                    media_type: None,
                    source: stored(id),
                });
            }
            let url = name_at(value, "image_url").filter(|url| !url.trim().is_empty())?;
            Some(url_image(url.into()))
        }
        "input_file" => {
            let filename = name_at(value, "filename").map(Into::into);
            if let Some(id) = id {
                return Some(PartKind::File {
                    media_type: None,
                    source: stored(id),
                    filename,
                });
            }
            if let Some(data) = name_at(value, "file_data") {
                return inline_file(data, filename);
            }
            let url = name_at(value, "file_url").filter(|url| !url.trim().is_empty())?;
            Some(PartKind::File {
                media_type: None,
                source: Source::Url(url.into()),
                filename,
            })
        }
        _ => None,
    }
}
