//! Content of messages: text, or a list of parts.

use crate::error::Error;
use crate::log::address::{is_address, is_file_id};
use crate::log::hints::{self, Takes, Ttl, CACHE, CITATIONS, DETAIL};
pub use crate::log::place::Place;
use crate::log::provider::Provider;
use crate::value::fields::Fields;
use crate::value::json;
use crate::value::letters;
use crate::value::word::words;
use crate::value::{Bytes, Map, Size, Value};

/// Key in a text's metadata for the recording that it is the transcript of.
pub(crate) const AUDIO_ID: &str = "audio_id";

/// The content of a message or a result.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Content {
    /// Nothing (`nil`): an assistant message that only calls tools.
    #[default]
    None,
    /// Text, mostly UTF-8.
    Text(Bytes),
    /// Parts in their order.
    Parts(Box<[Part]>),
}

/// A piece of content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The kind, with its data.
    pub kind: PartKind,
    /// Fields that its provider wants back with it.
    pub provider_metadata: Option<Map>,
    /// Hints of the application for providers: `detail`, `citations`, `cache`.
    pub hints: Option<Map>,
    /// Fields of a snapshot that this version does not know.
    pub(crate) extra: Option<Map>,
    /// Its provider does not get it back, or not its id: an earlier item has the id, which is known when the part joins a
    /// context, or the other half of its pair is not sent.
    pub(crate) withheld: bool,
    /// Its place in the conversation, if it is a file, which is known when the part joins a context.
    pub(crate) number: Option<FileNumber>,
}

/// What tells a file from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileNumber {
    pub place: Box<str>,
    /// Its name does not: an earlier file has it, or its own is masked.
    pub is_needed: bool,
}

/// The kinds of parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartKind {
    /// Text.
    Text(Bytes),
    /// An image, a recording, a film or a file.
    Media(MediaPart),
    /// A model's reasoning.
    Thinking(Bytes),
    /// A model's reasoning in a form that only its provider reads.
    RedactedThinking(Box<str>),
    /// Anything else of a provider, for that provider only.
    ProviderBlock {
        /// The only provider that gets it.
        provider: Provider,
        /// The block as the provider gave it.
        data: Map,
    },
}

/// An image, a recording, a film or a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaPart {
    /// The class of media.
    pub class: Class,
    /// Such as `image/png`; always there with [`Source::Data`].
    pub media_type: Option<Box<str>>,
    /// Where its bytes are.
    pub source: Source,
    /// The name of a file.
    pub filename: Option<Box<str>>,
}

words! {
    /// The class of a part with media; a file's media type may show that it is one of the others.
    pub enum Class {
        /// An image.
        Image = "image",
        /// A recording.
        Audio = "audio",
        /// A film.
        Video = "video",
        /// A file.
        File = "file",
    }
}

/// Where the bytes of an image, a recording, a film or a file are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Here, as base64 text.
    Data(Box<str>),
    /// Elsewhere.
    Url(Box<str>),
    /// In a provider's own store of files.
    Stored {
        /// The provider with the store.
        provider: Provider,
        /// Its name in the store.
        id: Box<str>,
    },
}

impl Place {
    /// Refuses blocks that their provider would refuse here. Calls of a model that declined are not sent.
    pub(crate) fn check(self, parts: &[Part]) -> Result<(), Error> {
        let is_refused = |part: &Part| {
            let block = part.kind.block();
            block.is_some_and(|(provider, data)| !(provider.facts().takes_block)(self, data))
        };
        let declined = Part::last_fallback(parts)
            .filter(|_| self == Self::Assistant)
            .unwrap_or_default();
        let is_wrong = |(at, part): &(usize, &Part)| {
            is_refused(part) && !(*at < declined && part.is_declined_call())
        };
        let key = Value::atom("data");
        match parts.iter().enumerate().find(is_wrong) {
            Some((position, _)) => Err(Error::InvalidPart { position, key }),
            None => Ok(()),
        }
    }
}

impl Content {
    /// Returns the parts, if it is a list of them.
    pub(crate) fn parts(&self) -> &[Part] {
        match self {
            Self::Parts(parts) => parts,
            Self::None | Self::Text(_) => &[],
        }
    }

    /// Returns true if it has neither text nor media.
    pub(crate) fn is_wordless(&self) -> bool {
        let says = |text: &Bytes| !letters::is_blank(&letters::utf8(text));
        match self {
            Self::None => true,
            Self::Text(text) => !says(text),
            Self::Parts(parts) => !parts.iter().any(|part| match &part.kind {
                PartKind::Text(text) => says(text),
                kind => matches!(kind, PartKind::Media(_)),
            }),
        }
    }

    pub(crate) const fn count_parts(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Text(_) => 1,
            Self::Parts(parts) => parts.len(),
        }
    }

    /// Reads the content of a message: text, `nil` or parts.
    ///
    /// # Errors
    /// [`Error::InvalidPart`]; [`Error::Invalid`] when it is none of the three.
    pub fn from_value(value: Value, place: Place) -> Result<Self, Error> {
        let content = Self::from_history(value, place)?;
        place.check(content.parts())?;
        Ok(content)
    }

    /// Reads the content of a message of the past, whose blocks may be any: they go back as they came.
    pub(crate) fn from_history(value: Value, place: Place) -> Result<Self, Error> {
        match value {
            Value::Nil => Ok(Self::None),
            Value::Binary(text) => Ok(Self::Text(text)),
            Value::List(parts) => read_parts(parts.into_vec(), place).map(Self::Parts),
            _ => Err(Error::invalid(
                Vec::new(),
                "content: text, nil or a list of parts",
            )),
        }
    }

    /// Reads the input of a user: text, parts, `%{message: text}`, or any other map, which becomes its JSON.
    ///
    /// # Errors
    /// As [`Content::from_value`].
    pub fn from_input(value: Value) -> Result<Self, Error> {
        match value {
            Value::Map(map) => {
                if let (1, Some(Value::Binary(text))) = (map.len(), map.get_named("message")) {
                    return Ok(Self::Text(text.clone()));
                }
                let json = json::write(&Value::Map(map));
                Ok(Self::Text(json.into_bytes().into_boxed_slice()))
            }
            other => Self::from_value(other, Place::User),
        }
    }

    /// Returns how much there is to walk and to copy.
    #[must_use]
    pub fn size(&self) -> Size {
        match self {
            Self::None => Size::new(1, 0),
            Self::Text(text) => Size::new(1, text.len()),
            Self::Parts(parts) => sum_parts(parts),
        }
    }
}

/// Checks the addresses of what an application adds. Those that come in otherwise become words in requests.
///
/// # Errors
/// [`Error::InvalidPart`]
pub(crate) fn check_addresses(parts: &[Part]) -> Result<(), Error> {
    for (position, part) in parts.iter().enumerate() {
        let wrong = match part.kind.media().map(|media| &media.source) {
            Some(Source::Url(url)) if !is_address(url) => "url",
            Some(Source::Stored { id, .. }) if !is_file_id(id) => "file_id",
            _ => continue,
        };
        let key = Value::atom(wrong);
        return Err(Error::InvalidPart { position, key });
    }
    Ok(())
}

/// Returns the size of a list of parts.
pub(crate) fn sum_parts(parts: &[Part]) -> Size {
    Size::new(1, 0).plus(parts.iter().map(Part::size).sum())
}

fn read_parts(parts: Vec<Value>, place: Place) -> Result<Box<[Part]>, Error> {
    let read = |(position, part)| Part::from_value(part, place, position);
    parts.into_iter().enumerate().map(read).collect()
}

/// Returns the parts of a tool result, if its value is a list of nothing but parts; else the value.
///
/// # Errors
/// [`Error::InvalidPart`] when every element names the type of a part and one is wrong all the same.
pub(crate) fn result_parts(value: Value) -> Result<Result<Box<[Part]>, Value>, Error> {
    match value {
        Value::List(items) if !items.is_empty() && items.iter().all(names_part) => {
            read_parts(items.into_vec(), Place::Result).map(Ok)
        }
        other => Ok(Err(other)),
    }
}

fn names_part(value: &Value) -> bool {
    let Value::Map(map) = value else { return false };
    let name = map.get_named("type").and_then(Value::as_name);
    name.is_some_and(|name| {
        matches!(name, "text" | "provider_block") || Class::from_name(name).is_some()
    })
}

impl Part {
    pub(crate) fn detail(&self) -> Option<&str> {
        self.hints.as_ref()?.get_named(DETAIL)?.as_name()
    }

    pub(crate) fn citations(&self) -> Option<bool> {
        match self.hints.as_ref()?.get_named(CITATIONS)? {
            Value::Bool(citations) => Some(*citations),
            _ => None,
        }
    }

    /// Returns true for a block that this provider gets back.
    pub(crate) fn is_block_of(&self, provider: Provider) -> bool {
        let block = self.kind.block();
        block.is_some_and(|(of, _)| of == provider) && !self.withheld
    }

    pub(crate) fn mark(&self) -> Option<Ttl> {
        Ttl::of(self.hints.as_ref()?.get_named(CACHE)?).ok()?
    }

    /// Returns true if it belongs to the same item as the part before it: an item may have several texts.
    pub(crate) fn continues(&self, before: &Self) -> bool {
        let are_texts = self.kind.is_text() && before.kind.is_text();
        let id = self.item_id().filter(|_| are_texts);
        id.is_some() && id == before.item_id()
    }

    /// Returns the id that its provider gave the item.
    pub(crate) fn item_id(&self) -> Option<String> {
        item_id(self.provider_metadata.as_ref())
    }

    pub(crate) fn from_value(value: Value, place: Place, position: usize) -> Result<Self, Error> {
        let wrong = |key: &'static str| Error::InvalidPart {
            position,
            key: Value::atom(key),
        };
        let mut fields = Fields::of(value).ok_or_else(|| wrong("type"))?;
        let kind = fields.take("type").ok_or_else(|| wrong("type"))?;
        let name = kind.as_name().ok_or_else(|| wrong("type"))?;
        let kind = PartKind::read(name, place, &mut fields).map_err(wrong)?;
        let provider_metadata = fields.take_map("provider_metadata");
        let provider_metadata = provider_metadata.map_err(|_| wrong("provider_metadata"))?;
        let hints = hints::take(kind.takes(), &mut fields).map_err(wrong)?;
        if let Some(key) = fields.unknown().cloned() {
            return Err(Error::InvalidPart { position, key });
        }
        Ok(Self {
            provider_metadata,
            hints,
            ..Self::of(kind)
        })
    }

    /// Returns how much there is to walk and to copy.
    #[must_use]
    pub fn size(&self) -> Size {
        let Self {
            kind,
            provider_metadata,
            hints,
            extra,
            withheld: _,
            number: _,
        } = self;
        let kind = match kind {
            PartKind::Text(text) | PartKind::Thinking(text) => Size::new(3, text.len()),
            PartKind::RedactedThinking(data) => Size::new(3, data.len()),
            PartKind::Media(media) => media.size(),
            PartKind::ProviderBlock { data, .. } => data.size(),
        };
        let maps = [provider_metadata, hints, extra];
        kind.plus(maps.into_iter().flatten().map(Map::size).sum())
    }

    pub(crate) fn text(bytes: Box<[u8]>) -> Self {
        Self::of(PartKind::Text(bytes))
    }

    pub(crate) const fn of(kind: PartKind) -> Self {
        Self {
            kind,
            provider_metadata: None,
            hints: None,
            extra: None,
            withheld: false,
            number: None,
        }
    }

    /// Returns the bytes of its text; 0 for other parts.
    pub(crate) fn text_bytes(&self) -> usize {
        self.kind.text().map_or(0, |bytes| bytes.len())
    }
}

impl MediaPart {
    fn size(&self) -> Size {
        let (Source::Data(text) | Source::Url(text) | Source::Stored { id: text, .. }) =
            &self.source;
        let names = [&self.media_type, &self.filename].into_iter().flatten();
        let terms = 5 + usize::from(self.class == Class::File); // a file may have a name
        Size::new(terms, names.fold(text.len(), |sum, name| sum + name.len()))
    }
}

impl PartKind {
    /// Reads what a part with this type holds; `Err` is the key that is wrong.
    pub(crate) fn read(
        name: &str,
        place: Place,
        fields: &mut Fields,
    ) -> Result<Self, &'static str> {
        match (name, place) {
            ("text", _) => Ok(Self::Text(binary(fields, "text")?)),
            ("provider_block", _) => {
                let provider = take_provider(fields)?;
                let data = fields.take_map("data").or(Err("data"))?;
                let data = data.ok_or("data")?;
                Ok(Self::ProviderBlock { provider, data })
            }
            (_, Place::System) => Err("type"),
            ("thinking", Place::Assistant) => Ok(Self::Thinking(binary(fields, "text")?)),
            ("redacted_thinking", Place::Assistant) => {
                let data = fields.take_text("data").or(Err("data"))?;
                Ok(Self::RedactedThinking(data.ok_or("data")?))
            }
            _ => Self::read_media(Class::from_name(name).ok_or("type")?, fields),
        }
    }

    fn read_media(class: Class, fields: &mut Fields) -> Result<Self, &'static str> {
        let media_type = fields.take_text("media_type").or(Err("media_type"))?;
        let source = Source::take(fields)?;
        // Bytes need a media type; a URL's server and a store of files tell it.
        if media_type.is_none() && matches!(source, Source::Data(_)) {
            return Err("media_type");
        }
        let filename = match class {
            Class::File => fields.take_text("filename").or(Err("filename"))?,
            _ => None,
        };
        Ok(Self::Media(MediaPart {
            class,
            media_type,
            source,
            filename,
        }))
    }

    pub(crate) const fn unnamed(
        class: Class,
        media_type: Option<Box<str>>,
        source: Source,
    ) -> Self {
        Self::Media(MediaPart {
            class,
            media_type,
            source,
            filename: None,
        })
    }

    /// Returns the hints that a part of this kind can have. No provider caches up to a model's thinking.
    pub(crate) fn takes(&self) -> Takes {
        let class = self.media().map(|media| media.class);
        Takes {
            detail: class.is_some_and(|class| class != Class::Audio),
            citations: class == Some(Class::File),
            cache: class.is_some() || self.is_text(),
        }
    }

    /// Returns the text, if it is one.
    #[must_use]
    pub const fn text(&self) -> Option<&Bytes> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns true for a text.
    #[must_use]
    pub const fn is_text(&self) -> bool {
        self.text().is_some()
    }

    /// Returns a model's reasoning, as far as it can be read.
    #[must_use]
    pub const fn thoughts(&self) -> Option<&Bytes> {
        match self {
            Self::Thinking(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the image, recording, film or file.
    #[must_use]
    pub const fn media(&self) -> Option<&MediaPart> {
        match self {
            Self::Media(media) => Some(media),
            _ => None,
        }
    }

    /// Returns a provider's block, and the provider.
    #[must_use]
    pub const fn block(&self) -> Option<(Provider, &Map)> {
        match self {
            Self::ProviderBlock { provider, data } => Some((*provider, data)),
            _ => None,
        }
    }

    /// Returns true for a model's reasoning, in whatever form.
    pub(crate) const fn is_thinking(&self) -> bool {
        matches!(self, Self::Thinking(_) | Self::RedactedThinking(_))
    }

    /// Returns the name that Elixir has for it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Media(media) => media.class.name(),
            Self::Thinking(_) => "thinking",
            Self::RedactedThinking(_) => "redacted_thinking",
            Self::ProviderBlock { .. } => "provider_block",
        }
    }
}

impl Source {
    fn take(fields: &mut Fields) -> Result<Self, &'static str> {
        let data = fields.take_text("data").or(Err("data"))?;
        let url = fields.take_text("url").or(Err("url"))?;
        let id = fields.take_text("file_id").or(Err("file_id"))?;
        match (data, url, id) {
            (Some(data), None, None) if is_base64(&data) => Ok(Self::Data(data)),
            (None, Some(url), None) if !url.trim().is_empty() => Ok(Self::Url(url)),
            (None, None, Some(id)) if !id.trim().is_empty() => {
                let provider = take_provider(fields)?;
                Ok(Self::Stored { provider, id })
            }
            (_, _, Some(_)) => Err("file_id"),
            (_, Some(_), None) => Err("url"),
            (_, None, None) => Err("data"),
        }
    }
}

fn take_provider(fields: &mut Fields) -> Result<Provider, &'static str> {
    let provider = fields.take("provider").ok_or("provider")?;
    let provider = provider.as_name().and_then(Provider::from_name);
    provider.ok_or("provider")
}

fn binary(fields: &mut Fields, name: &'static str) -> Result<Bytes, &'static str> {
    match fields.take(name) {
        Some(Value::Binary(bytes)) => Ok(bytes),
        _ => Err(name),
    }
}

/// Returns the parts with which an item begins.
pub(crate) fn first_of_items(parts: &[Part]) -> impl Iterator<Item = &Part> {
    let before = std::iter::once(None).chain(parts.iter().map(Some));
    let parts = parts.iter().zip(before);
    let begins =
        parts.filter(|(part, before)| !before.is_some_and(|before| part.continues(before)));
    begins.map(|(part, _)| part)
}

/// Returns the id of an item in its provider's metadata, preceded by the provider's name.
pub(crate) fn item_id(metadata: Option<&Map>) -> Option<String> {
    let metadata = metadata?;
    let provider = metadata.get_named("provider")?.as_name()?;
    let id = metadata.get_named("id")?.as_str()?;
    Some(format!("{provider} {id}"))
}

/// Returns true for standard base64 with padding, as every provider wants it. Raw bytes given by mistake are found here and
/// not by the provider.
pub(crate) fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    let alphabet = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    !digits.is_empty()
        && padding <= 2
        && text.len().is_multiple_of(4)
        && digits.bytes().all(alphabet)
}
