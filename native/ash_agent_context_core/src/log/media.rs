//! Images, recordings, films and files, and the forms in which a provider can have them.

use std::borrow::Cow;

use base64::Engine as _;

use crate::log::address::{is_address, is_file_id};
use crate::log::media_type::{is_text, normal};
use crate::log::part::{is_base64, Class, PartKind, Source};
use crate::log::provider::Provider;
use crate::log::signature::other_type;
use crate::value::letters;

/// A part with media, with its type as far as that is known.
pub(crate) struct Media<'a> {
    pub class: Class,
    /// The given type, or that of a data URL, under the name that providers know; of bytes that are something else, theirs.
    pub media_type: Option<Cow<'a, str>>,
    /// The bytes are something else than was said.
    pub is_corrected: bool,
    pub source: Location<'a>,
    pub filename: Option<&'a str>,
}

#[derive(Clone, Copy)]
pub(crate) enum Location<'a> {
    /// Base64 in the part itself.
    Inline(&'a str),
    Web(&'a str),
    /// At an address that only some can read: `gs://`, `s3://` and the like.
    Store(&'a str),
    /// In a provider's own store of files.
    Stored(Provider, &'a str),
    /// At an address that no provider may be told to fetch.
    Refused(&'a str),
}

impl<'a> Media<'a> {
    /// Returns the media in a part that has some.
    pub fn of(kind: &'a PartKind) -> Option<Self> {
        let part = kind.media()?;
        let (of_url, source) = match &part.source {
            Source::Data(data) => (None, Location::Inline(data)),
            Source::Url(url) => place(url),
            Source::Stored { id, .. } if !is_file_id(id) => (None, Location::Refused(id)),
            Source::Stored { provider, id } => (None, Location::Stored(*provider, id)),
        };
        let media_type = part.media_type.as_deref().or(of_url).map(normal);
        let other = match source {
            Location::Inline(data) => other_type(media_type.as_deref(), data),
            _ => None,
        };
        let media_type = other.map(Cow::Borrowed).or(media_type);
        let is_told = part.class == Class::File && !matches!(source, Location::Stored(..));
        let class = match is_told || other.is_some() {
            true => Class::of(media_type.as_deref()),
            false => part.class,
        };
        let filename = part.filename.as_deref();
        Some(Self {
            class,
            media_type,
            is_corrected: other.is_some(),
            source,
            filename: filename.filter(|name| !letters::is_blank(name)),
        })
    }

    /// Returns the type in words: that of the bytes, and the given one if that is another.
    pub fn type_words(&self, given: Option<&str>) -> Option<String> {
        let known = self.media_type.as_deref().filter(|_| self.is_corrected);
        match (known, given) {
            (Some(known), Some(given)) => Some(format!("{known}, given as {given}")),
            (known, given) => known.or(given).map(str::to_owned),
        }
    }

    pub fn is_image(&self) -> bool {
        self.class == Class::Image
    }

    /// Returns true if it is an image of a type that every provider with images takes.
    pub fn is_common_image(&self) -> bool {
        self.is_image() && self.image_format().is_some()
    }

    pub fn is_pdf(&self) -> bool {
        self.class == Class::File && self.guessed_type() == Some("application/pdf")
    }

    /// Returns the file's name in this provider's own store.
    pub fn id_for(&self, provider: Provider) -> Option<&'a str> {
        match self.source {
            Location::Stored(owner, id) if owner == provider => Some(id),
            _ => None,
        }
    }

    /// Returns `png`, `jpeg`, `gif` or `webp`.
    pub fn image_format(&self) -> Option<&'static str> {
        let format = self.guessed_type()?.strip_prefix("image/")?;
        let mut known = ["png", "jpeg", "gif", "webp"].into_iter();
        known.find(|known| *known == format)
    }

    /// Returns the text of a text file that is in the part itself.
    pub fn text(&self) -> Option<String> {
        let Location::Inline(data) = self.source else {
            return None;
        };
        let media_type = self.media_type.as_deref().filter(|of| is_text(of))?;
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(data)
            .ok()?;
        let body = match std::str::from_utf8(&bytes) {
            Ok(body) => Cow::Borrowed(body),
            Err(_) if media_type.starts_with("text/") => letters::utf8(&bytes),
            Err(_) => return None,
        };
        if letters::is_blank(&body) {
            return None;
        }
        Some(match self.filename {
            Some(name) => format!("{name}:\n{body}"),
            None => body.into_owned(),
        })
    }

    /// Returns the text that is sent where the media cannot be: its own text, its address, or a note.
    pub fn words(&self) -> String {
        let what = self.class.name();
        let name = self
            .filename
            .map_or(String::new(), |name| format!(" {name}"));
        if let Some(text) = self.text() {
            return text;
        }
        match self.source {
            Location::Web(url) | Location::Store(url) | Location::Refused(url) => {
                format!("({what}{name}: {url})")
            }
            Location::Stored(owner, id) => {
                format!("({what}{name} {id} of {}, not sent)", owner.name())
            }
            Location::Inline(_) => {
                let of = self.media_type.as_deref().unwrap_or("unknown type");
                format!("({what}{name} of {of}, not sent)")
            }
        }
    }

    /// Returns `data:image/png;base64,...`.
    pub fn data_url(&self) -> Option<String> {
        match self.source {
            Location::Inline(data) => Some(format!(
                "data:{};base64,{data}",
                self.media_type.as_deref()?
            )),
            _ => None,
        }
    }

    /// Returns the address, a data URL for media in the part itself.
    pub fn url(&self) -> String {
        match self.source {
            Location::Web(url) | Location::Store(url) | Location::Refused(url) => url.to_owned(),
            Location::Stored(_, id) => id.to_owned(),
            Location::Inline(_) => self.data_url().unwrap_or_default(),
        }
    }

    /// Returns the media type, or the one that the end of the address suggests.
    pub fn guessed_type(&self) -> Option<&str> {
        if self.media_type.is_some() {
            return self.media_type.as_deref();
        }
        let (Location::Web(url) | Location::Store(url)) = self.source else {
            return None;
        };
        let path = url.split(['?', '#']).next().unwrap_or(url);
        let end = path.rsplit(['.', '/']).next().unwrap_or("");
        match end.to_ascii_lowercase().as_str() {
            "png" => Some("image/png"),
            "jpg" | "jpeg" => Some("image/jpeg"),
            "gif" => Some("image/gif"),
            "webp" => Some("image/webp"),
            "pdf" => Some("application/pdf"),
            "wav" => Some("audio/wav"),
            "mp3" => Some("audio/mpeg"),
            "mp4" => Some("video/mp4"),
            "mov" => Some("video/quicktime"),
            "webm" => Some("video/webm"),
            _ => None,
        }
    }
}

impl Class {
    fn of(media_type: Option<&str>) -> Self {
        match media_type.and_then(|of| of.split('/').next()) {
            Some("image") => Self::Image,
            Some("audio") => Self::Audio,
            Some("video") => Self::Video,
            _ => Self::File,
        }
    }
}

/// Returns the text for an image or a file where only text can be sent; `None` for other parts.
pub(crate) fn words_of(kind: &PartKind) -> Option<String> {
    Media::of(kind).map(|media| media.words())
}

/// Returns the type and the place that an address tells; a data URL is data and not an address.
fn place(url: &str) -> (Option<&str>, Location<'_>) {
    if !is_address(url) {
        return (None, Location::Refused(url));
    }
    let is_web = ["http://", "https://"].iter().any(|scheme| {
        let start = url.get(..scheme.len());
        url.len() > scheme.len() && start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    });
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
