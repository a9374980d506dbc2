//! Images and files: what a provider can have of them.

use base64::Engine as _;

use crate::log::part::{is_base64, PartKind, Source};
use crate::value::letters;

/// An image or a file, as far as it tells what it is.
pub(crate) struct Media<'a> {
    pub is_image: bool,
    /// As given, or as a data URL or the end of a name tells.
    pub media_type: Option<&'a str>,
    pub source: Location<'a>,
    pub filename: Option<&'a str>,
}

/// Where its bytes are.
#[derive(Clone, Copy)]
pub(crate) enum Location<'a> {
    /// Here, in base64.
    Inline(&'a str),
    /// On the web.
    Web(&'a str),
    /// In a provider's own store: `gs://`, `s3://` and the like.
    Store(&'a str),
}

impl<'a> Media<'a> {
    /// The media in a part that is an image or a file.
    pub fn of(kind: &'a PartKind) -> Option<Self> {
        let (is_image, media_type, source, filename) = match kind {
            PartKind::Image { media_type, source } => (true, media_type, source, None),
            PartKind::File {
                media_type,
                source,
                filename,
            } => (false, media_type, source, filename.as_deref()),
            _ => return None,
        };
        let (of_url, source) = match source {
            Source::Data(data) => (None, Location::Inline(data)),
            Source::Url(url) => place(url),
        };
        Some(Self {
            is_image,
            media_type: media_type.as_deref().or(of_url),
            source,
            filename: filename.filter(|name| !letters::is_blank(name)),
        })
    }

    /// Whether it is an image of a type that every provider with images takes.
    pub fn is_common_image(&self) -> bool {
        self.is_image && self.image_format().is_some()
    }

    /// `png`, `jpeg`, `gif` or `webp`.
    pub fn image_format(&self) -> Option<&'static str> {
        match self.media_type? {
            "image/png" => Some("png"),
            "image/jpeg" => Some("jpeg"),
            "image/gif" => Some("gif"),
            "image/webp" => Some("webp"),
            _ => None,
        }
    }

    /// The text of a text file that is here.
    pub fn text(&self) -> Option<String> {
        let Location::Inline(data) = self.source else {
            return None;
        };
        if self.is_image || !self.media_type?.starts_with("text/") {
            return None;
        }
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(data)
            .ok()?;
        let body = letters::utf8(&bytes);
        if letters::is_blank(&body) {
            return None;
        }
        Some(match self.filename {
            Some(name) => format!("{name}:\n{body}"),
            None => body.into_owned(),
        })
    }

    /// What stands for it where it cannot be sent: its text, its address, or a note.
    pub fn words(&self) -> String {
        let what = if self.is_image { "image" } else { "file" };
        let name = self
            .filename
            .map_or(String::new(), |name| format!(" {name}"));
        if let Some(text) = self.text() {
            return text;
        }
        match self.source {
            Location::Web(url) | Location::Store(url) => format!("({what}{name}: {url})"),
            Location::Inline(_) => {
                let of = self.media_type.unwrap_or("unknown type");
                format!("({what}{name} of {of}, not sent)")
            }
        }
    }

    /// `data:image/png;base64,...`
    pub fn data_url(&self) -> Option<String> {
        match self.source {
            Location::Inline(data) => Some(format!("data:{};base64,{data}", self.media_type?)),
            _ => None,
        }
    }

    /// The address, a data URL for what is here.
    pub fn url(&self) -> String {
        match self.source {
            Location::Web(url) | Location::Store(url) => url.to_owned(),
            Location::Inline(_) => self.data_url().unwrap_or_default(),
        }
    }

    /// The media type, or what the end of the address tells of it.
    pub fn guessed_type(&self) -> Option<&'a str> {
        let (Location::Web(url) | Location::Store(url)) = self.source else {
            return self.media_type;
        };
        let path = url.split(['?', '#']).next().unwrap_or(url);
        let end = path.rsplit(['.', '/']).next().unwrap_or("");
        self.media_type.or(match end.to_ascii_lowercase().as_str() {
            "png" => Some("image/png"),
            "jpg" | "jpeg" => Some("image/jpeg"),
            "gif" => Some("image/gif"),
            "webp" => Some("image/webp"),
            "pdf" => Some("application/pdf"),
            _ => None,
        })
    }
}

/// What stands for an image or a file where only text can be; `None` for other parts.
pub(crate) fn words_of(kind: &PartKind) -> Option<String> {
    Media::of(kind).map(|media| media.words())
}

/// What an address is; a data URL is no address.
fn place(url: &str) -> (Option<&str>, Location<'_>) {
    let is_web = ["http://", "https://"]
        .iter()
        .any(|scheme| url.len() > scheme.len() && url.starts_with(scheme));
    if is_web && !url.contains(char::is_whitespace) {
        return (None, Location::Web(url));
    }
    let inline = url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"))
        .filter(|(_, data)| is_base64(data));
    match inline {
        Some((media_type, data)) => (Some(media_type), Location::Inline(data)),
        None => (None, Location::Store(url)),
    }
}
