//! Takes foreign objects apart, with the path to the fault in errors.

use crate::error::{each, Error};
use crate::log::call::{Arguments, Name, ToolCall, PARTS_BEFORE};
use crate::log::kind::CallKind;
use crate::log::message::Status;
use crate::log::part::{is_base64, Class, Content, MediaPart, Part, PartKind, Source};
use crate::log::provider::Provider;
use crate::value::fields::{utf8, Fields};
use crate::value::{Bytes, Map, Value, MAX_DEPTH};

/// The expected content, for errors.
pub const CONTENT: &str = "content: text or a list of parts";

/// Readers of foreign histories take fields by these functions. Keys are atoms or strings.
impl Fields {
    pub fn read(value: Value, expected: &'static str) -> Result<Self, Error> {
        Self::of(value).ok_or_else(|| Error::invalid(Vec::new(), expected))
    }

    /// Returns an error at one of its keys.
    pub fn wrong(&self, name: &str, expected: &'static str) -> Error {
        Error::invalid(vec![self.key(name)], expected)
    }

    /// Takes UTF-8 text; an atom is text too.
    pub fn text(&mut self, name: &str) -> Result<Option<Box<str>>, Error> {
        let text = match self.take_given(name) {
            Some(Value::Atom(atom)) => Ok(Some((*atom).into())),
            given => given.map(utf8).transpose(),
        };
        text.map_err(|_| self.wrong(name, "text"))
    }

    /// Takes UTF-8 text that must be there.
    pub fn need_text(&mut self, name: &str) -> Result<Box<str>, Error> {
        let text = self.text(name)?;
        text.ok_or_else(|| self.wrong(name, "text"))
    }

    /// Takes text that must be there, whatever its bytes.
    pub fn need_bytes(&mut self, name: &str) -> Result<Bytes, Error> {
        match self.take_given(name) {
            Some(Value::Binary(bytes)) => Ok(bytes),
            _ => Err(self.wrong(name, "text")),
        }
    }

    /// Takes the name of a tool, which must be there.
    pub fn need_name(&mut self, name: &str) -> Result<Name, Error> {
        let read = match self.take_given(name) {
            Some(Value::Atom(atom)) => Some(Name::Atom(atom)),
            Some(value) => utf8(value).ok().map(Name::Text),
            None => None,
        };
        read.ok_or_else(|| self.wrong(name, "a tool's name"))
    }

    /// Takes a list that must be there.
    pub fn need_list(&mut self, name: &str, expected: &'static str) -> Result<Vec<Value>, Error> {
        match self.take_given(name) {
            Some(Value::List(items)) => Ok(items.into_vec()),
            _ => Err(self.wrong(name, expected)),
        }
    }

    /// Takes a list that may be left out, and reads each element with `read`.
    pub fn read_list<T>(
        &mut self,
        name: &str,
        expected: &'static str,
        read: impl FnMut(Value) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        match self.take_given(name) {
            None => Ok(Vec::new()),
            Some(Value::List(items)) => {
                each(items, read).map_err(|error| error.within(self.key(name)))
            }
            Some(_) => Err(self.wrong(name, expected)),
        }
    }

    /// Takes an object that must be there, and reads it with `read`.
    pub fn need_object<T>(
        &mut self,
        name: &str,
        expected: &'static str,
        read: impl FnOnce(Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match self.take_given(name).and_then(Self::of) {
            Some(fields) => read(fields).map_err(|error| error.within(self.key(name))),
            None => Err(self.wrong(name, expected)),
        }
    }

    /// Takes arguments: an object or its JSON text, which may be left out.
    pub fn arguments(&mut self, name: &str) -> Result<Arguments, Error> {
        let value = self.take_arguments(name)?;
        Arguments::from_value(value)
            .ok_or_else(|| self.wrong(name, "arguments: an object or its JSON text"))
    }

    /// Takes the kind of a call. A value that is no kind stays.
    pub fn kind(&mut self) -> CallKind {
        self.take_known("kind", CallKind::of).unwrap_or_default()
    }

    /// Takes the arguments of a call of this kind, which may be left out.
    pub fn arguments_of(&mut self, kind: CallKind, name: &str) -> Result<Arguments, Error> {
        let value = self.take_arguments(name)?;
        Arguments::of(kind, value).ok_or_else(|| self.wrong(name, "the arguments of its kind"))
    }

    /// Arguments that another form has under its own key are not left out.
    fn take_arguments(&mut self, name: &str) -> Result<Value, Error> {
        const KEYS: [&str; 4] = ["arguments", "args", "input", "parameters"];
        let Some(value) = self.take_given(name) else {
            let other = KEYS.into_iter().find(|key| *key != name && self.has(key));
            let expected = format!("arguments under the key {name}");
            let wrong = |key| Error::invalid(vec![self.key(key)], expected);
            return other.map_or(Ok(Value::Nil), |key| Err(wrong(key)));
        };
        check_levels(&value, MAX_DEPTH)?;
        Ok(value)
    }

    /// Takes the flag that a result is an error.
    pub fn status(&mut self) -> Status {
        match self.take_given("is_error") {
            Some(Value::Bool(true)) => Status::Error,
            _ => Status::Ok,
        }
    }

    /// Takes a map that may be left out.
    pub fn map(&mut self, name: &str) -> Result<Option<Map>, Error> {
        let map = self.take_map(name);
        map.map_err(|_| self.wrong(name, "a map"))
    }

    /// Takes content, and reads each part of a list with `read`.
    pub fn content(
        &mut self,
        name: &str,
        read: impl FnMut(Value) -> Result<Part, Error>,
    ) -> Result<Content, Error> {
        match self.get(name) {
            Some(Value::Binary(_)) => self.need_bytes(name).map(Content::Text),
            Some(_) => {
                let parts = self.read_list(name, CONTENT, read)?;
                Ok(Content::Parts(parts.into_boxed_slice()))
            }
            None => {
                self.take(name);
                Ok(Content::None)
            }
        }
    }

    /// Returns the object with a field that was taken from it.
    pub fn put_back(self, name: &str, value: Value) -> Map {
        let key = self.key(name);
        self.rest().unwrap_or_default().put(key, value)
    }
}

/// Returns the value under a key, if this is a map; `nil` counts as missing.
pub fn at<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    let value = value.as_map()?.get_named(key)?;
    (*value != Value::Nil).then_some(value)
}

/// Returns whether a value is a map with something under this key.
pub fn has(value: &Value, key: &str) -> bool {
    at(value, key).is_some()
}

/// Returns the text or atom under a key, if this is a map.
pub fn name_at<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    at(value, key)?.as_name()
}

/// Returns the text or atom under a key, unless it is blank.
pub fn filled_name_at<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    name_at(value, key).filter(|name| !name.trim().is_empty())
}

/// Returns metadata with the provider's name and the texts that it wants back.
pub fn metadata(provider: Provider, texts: &[(&str, Option<&str>)]) -> Map {
    let texts = texts.iter();
    let texts = texts.filter_map(|(key, text)| Some((*key, Value::text((*text)?))));
    metadata_with(provider, texts)
}

/// Returns metadata with the provider's name and values of any kind.
pub fn metadata_with<'k>(
    provider: Provider,
    notes: impl IntoIterator<Item = (&'k str, Value)>,
) -> Map {
    let provider = (Value::atom("provider"), Value::atom(provider.name()));
    let notes = notes.into_iter();
    let notes = notes.map(|(key, value)| (Value::atom(key), value));
    Map::new(std::iter::once(provider).chain(notes).collect())
}

/// Returns metadata with this text, if there is one.
pub fn metadata_of(provider: Provider, key: &str, text: Option<&str>) -> Option<Map> {
    text.map(|text| metadata(provider, &[(key, Some(text))]))
}

pub fn part(kind: PartKind, provider_metadata: Option<Map>) -> Part {
    Part {
        provider_metadata,
        ..Part::of(kind)
    }
}

/// Returns the texts and summaries in details of reasoning, joined.
pub fn join_details(details: &Value) -> String {
    let text = |detail| name_at(detail, "text").or_else(|| name_at(detail, "summary"));
    let details = details.as_list().unwrap_or_default();
    details.iter().filter_map(text).collect()
}

pub fn text_part(text: Bytes) -> Part {
    part(PartKind::Text(text), None)
}

/// Reads a block as a text, which stands under this key.
pub fn text_block(block: Value, key: &str) -> Result<Part, Error> {
    let mut block = Fields::read(block, BLOCK)?;
    block.need_bytes(key).map(text_part)
}

/// Reads a part of a system prompt: a text, else a block of its provider.
pub fn system_part(provider: Provider, block: Value) -> Result<Part, Error> {
    match (name_at(&block, "type"), at(&block, "text")) {
        (None | Some("text" | "input_text"), Some(Value::Binary(text))) => {
            Ok(text_part(text.clone()))
        }
        _ => provider_block(provider, block),
    }
}

const BLOCK: &str = "a content block, an object";

/// Returns a block of the provider's own.
pub fn own_block(provider: Provider, data: Map) -> Part {
    part(PartKind::ProviderBlock { provider, data }, None)
}

/// Reads a block that has no neutral form.
pub fn provider_block(provider: Provider, block: Value) -> Result<Part, Error> {
    match json_like(block, MAX_DEPTH)? {
        Value::Map(data) => Ok(own_block(provider, data)),
        _ => Err(Error::invalid(Vec::new(), BLOCK)),
    }
}

/// Returns the JSON of a block that has no neutral form, for a place where only text can be.
pub fn json_part(block: &Value) -> Result<Part, Error> {
    match block {
        Value::Map(_) => Ok(json_text(block)),
        _ => Err(Error::invalid(Vec::new(), BLOCK)),
    }
}

/// Returns the JSON of a value as a text part.
pub fn json_text(value: &Value) -> Part {
    text_part(crate::value::json::write(value).into_bytes().into())
}

/// Returns a call that only the provider keeps, of which a result is known.
pub fn assumed_call(provider: Provider, id: &str, name: Option<&str>) -> ToolCall {
    let name = Name::Text(name.unwrap_or("unknown").into());
    let metadata = metadata_with(provider, [("assumed", Value::Bool(true))]);
    call(Some(id.into()), name, Arguments::default(), Some(metadata))
}

/// Returns the error for a block that cannot stand in its message.
pub fn refuse_misplaced(block: &Value) -> Error {
    let name = name_at(block, "type").unwrap_or("this");
    let expected = format!("another block than {name} in a message of this role");
    Error::invalid(vec![Value::text("type")], expected)
}

/// Returns a call. One without an id gets it when it joins the context.
pub fn call(
    id: Option<Box<str>>,
    name: Name,
    arguments: Arguments,
    provider_metadata: Option<Map>,
) -> ToolCall {
    ToolCall {
        id: id.unwrap_or_default(),
        kind: CallKind::Function,
        name,
        arguments,
        provider_metadata,
        extra: None,
        unknown: None,
        aliases: crate::log::alias::Aliases::default(),
    }
}

/// Returns a call of a model that declined as the block of Anthropic's that it came as.
pub fn declined_call(call: ToolCall) -> Part {
    // The block around the arguments takes one level.
    let input = json_like(call.arguments.value, MAX_DEPTH - 1).unwrap_or(Value::Nil);
    let mut data = vec![
        (Value::text("type"), Value::text("tool_use")),
        (Value::text("id"), Value::text(&call.id)),
        (Value::text("name"), Value::text(call.name.as_str())),
        (Value::text("input"), input),
    ];
    let ours = ["provider", "model", PARTS_BEFORE];
    let notes = call.provider_metadata.unwrap_or_default().into_entries();
    data.extend(notes.into_iter().filter_map(|(key, value)| {
        let key = key.as_name().filter(|key| !ours.contains(key))?;
        Some((Value::text(key), value))
    }));
    own_block(Provider::Anthropic, Map::new(data))
}

/// Returns a part of this kind, or the block as it came if its kind is not known.
pub fn part_or_block(
    kind: Option<PartKind>,
    provider: Provider,
    block: Value,
) -> Result<Part, Error> {
    match kind {
        Some(kind) => Ok(part(kind, None)),
        None => provider_block(provider, block),
    }
}

/// Returns an image, or a file, which may have a name.
pub fn image_or_file(
    is_image: bool,
    media_type: Option<Box<str>>,
    source: Source,
    filename: Option<Box<str>>,
) -> PartKind {
    match is_image {
        true => image(media_type, source),
        false => PartKind::Media(MediaPart {
            class: Class::File,
            media_type,
            source,
            filename,
        }),
    }
}

/// Returns the place of a file in a provider's store.
pub fn stored(provider: Provider, id: &str) -> Source {
    let id = id.into();
    Source::Stored { provider, id }
}

/// Returns an image of this media type, or nothing if the data is not base64.
pub fn inline_image(media_type: Box<str>, data: Box<str>) -> Option<PartKind> {
    is_base64(&data).then(|| image(Some(media_type), Source::Data(data)))
}

pub const fn image(media_type: Option<Box<str>>, source: Source) -> PartKind {
    PartKind::unnamed(Class::Image, media_type, source)
}

/// Returns the image of a URL, which may hold its bytes.
pub fn url_image(url: Box<str>) -> PartKind {
    match data_url(&url) {
        Some((media_type, data)) => image(Some(media_type.into()), Source::Data(data.into())),
        None => image(None, Source::Url(url)),
    }
}

/// Returns a file from a data URL, or from bare base64: then it is a PDF, as at all providers.
pub fn inline_file(data: &str, filename: Option<Box<str>>) -> Option<PartKind> {
    let (media_type, data) = match data_url(data) {
        Some(parts) => parts,
        None if is_base64(data) => ("application/pdf", data),
        None => return None,
    };
    let (media_type, source) = (Some(media_type.into()), Source::Data(data.into()));
    Some(image_or_file(false, media_type, source, filename))
}

/// Returns the media type and the base64 of a data URL that has no parameters.
fn data_url(url: &str) -> Option<(&str, &str)> {
    let (media_type, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    let plain = media_type.contains('/') && !media_type.contains([';', ',']);
    (plain && is_base64(data)).then_some((media_type, data))
}

/// Returns foreign data as JSON has it, with texts for keys and atoms.
///
/// # Errors
/// [`Error::TooDeep`]
pub fn json_like(value: Value, levels: usize) -> Result<Value, Error> {
    check_levels(&value, levels)?;
    Ok(as_json(value))
}

fn as_json(value: Value) -> Value {
    match value {
        Value::Atom(name) => Value::text(&name),
        Value::List(items) => Value::List(items.into_vec().into_iter().map(as_json).collect()),
        // A date or another struct is written as its text.
        Value::Map(map) if map.get_atom("__struct__").is_none() => {
            let entry = |(key, value): (Value, Value)| {
                let name = key.as_name().map(Value::text);
                (name.unwrap_or(key), as_json(value))
            };
            let entries = map.into_entries().into_iter();
            Value::Map(Map::new(entries.map(entry).collect()))
        }
        other => other,
    }
}

/// Refuses a value with more levels than this.
///
/// # Errors
/// [`Error::TooDeep`]
pub fn check_levels(value: &Value, levels: usize) -> Result<(), Error> {
    match value.is_deeper_than(levels) {
        true => Err(Error::TooDeep { limit: MAX_DEPTH }),
        false => Ok(()),
    }
}

/// Returns content of parts. No parts are empty content, and a single text without metadata is a text.
pub fn plain_content(mut parts: Vec<Part>) -> Content {
    match parts.pop() {
        None => Content::None,
        Some(Part {
            kind: PartKind::Text(text),
            provider_metadata: None,
            ..
        }) if parts.is_empty() => Content::Text(text),
        Some(last) => {
            parts.push(last);
            Content::Parts(parts.into_boxed_slice())
        }
    }
}

/// Returns content of parts that a request has, be there none.
pub fn given_content(parts: Vec<Part>) -> Content {
    match plain_content(parts) {
        Content::None => Content::Parts(Box::default()),
        content => content,
    }
}

/// Returns the model's parts and its calls, each with the number of parts before it. Most calls follow all parts: these have no
/// number.
pub fn order_calls(
    provider: Provider,
    parts: Vec<Part>,
    calls: Vec<(usize, ToolCall)>,
) -> (Content, Vec<ToolCall>) {
    let len = parts.len();
    let are_last = calls.iter().all(|(before, _)| *before >= len);
    let place = |(before, mut call): (usize, ToolCall)| {
        if before < len {
            call.stand_at(before, provider);
        }
        call
    };
    let calls = calls.into_iter().map(place).collect();
    match are_last {
        true => (plain_content(parts), calls),
        false => (Content::Parts(parts.into_boxed_slice()), calls),
    }
}

/// Returns the parts of content.
pub fn into_parts(content: Content) -> Vec<Part> {
    match content {
        Content::None => Vec::new(),
        Content::Text(text) => vec![text_part(text)],
        Content::Parts(parts) => parts.into_vec(),
    }
}
