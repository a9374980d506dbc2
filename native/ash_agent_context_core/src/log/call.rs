//! Tool calls, as the model asks for them and as applications give them.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use crate::error::Error;
use crate::log::kind::CallKind;
use crate::log::provider::Provider;
use crate::value::fields::{utf8, Fields};
use crate::value::json;
use crate::value::{Map, Size, Value, MAX_DEPTH};

/// The number of content parts before a call is kept in its metadata under this key.
pub(crate) const PARTS_BEFORE: &str = "position";

/// Up to so many calls, comparing ids one by one is faster than an index.
pub(crate) const FEW: usize = 8;

/// One request of the model to run a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Unique in its message; a later message may use it again.
    pub id: Box<str>,
    /// The form that it has at its provider.
    pub kind: CallKind,
    /// The tool's name.
    pub name: Name,
    /// The arguments that the model passes to the tool.
    pub arguments: Arguments,
    /// Fields that the provider wants back with the call.
    pub provider_metadata: Option<Map>,
    /// Further keys, kept as given.
    pub extra: Option<Map>,
    /// Fields of a snapshot that this version does not know.
    pub(crate) unknown: Option<Map>,
    /// Ids for providers that cannot take [`ToolCall::id`]; given when the call joins a context.
    pub(crate) aliases: crate::log::alias::Aliases,
}

/// The place of a message, for the ids of calls that have none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessagePlace {
    /// The number of the iteration.
    pub iteration: u64,
    /// The 0-based position in it.
    pub position: usize,
}

impl MessagePlace {
    /// Names calls without an id `call_<iteration>_<message>_<call>`, with more `_` after it where
    /// another call of the message has that.
    pub(crate) fn name_calls(self, calls: &mut [ToolCall]) {
        if calls.iter().all(|call| !call.id.is_empty()) {
            return;
        }
        let given: HashSet<Box<str>> = calls.iter().map(|call| call.id.clone()).collect();
        for (position, call) in calls.iter_mut().enumerate() {
            if call.id.is_empty() {
                let mut id = format!("call_{}_{}_{position}", self.iteration, self.position);
                while given.contains(id.as_str()) {
                    id.push('_');
                }
                call.id = id.into();
            }
        }
    }
}

/// Returns the first id that two calls have. A call may have none yet.
fn first_double(calls: &[ToolCall]) -> Option<&str> {
    let ids = || calls.iter().map(|call| &*call.id);
    if calls.len() <= FEW {
        let is_double = |(position, id): &(usize, &str)| {
            !id.is_empty() && ids().take(*position).any(|other| other == *id)
        };
        return ids().enumerate().find(is_double).map(|(_, id)| id);
    }
    let mut seen = HashSet::with_capacity(calls.len());
    ids().find(|id| !id.is_empty() && !seen.insert(*id))
}

/// An index of a message's calls by their ids. It is made on the first search among many: calls are answered one by one, and
/// each is looked up.
#[derive(Debug, Default)]
pub(crate) struct Places(OnceLock<Box<[usize]>>);

impl Places {
    pub fn find(&self, calls: &[ToolCall], id: &str) -> Option<usize> {
        if calls.len() <= FEW {
            return calls.iter().position(|call| &*call.id == id);
        }
        let id_at = |place: &usize| calls.get(*place).map(|call| &*call.id);
        if self.0.get().is_none() {
            let mut places: Box<[usize]> = (0..calls.len()).collect();
            places.sort_unstable_by_key(|place| id_at(place));
            // Nobody waits for an index that another thread makes: both make it and one is kept.
            let _ = self.0.set(places);
        }
        let places = self.0.get()?;
        let found = places.binary_search_by_key(&Some(id), id_at).ok()?;
        places.get(found).copied()
    }
}

/// A name, and whether an atom or a string was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// `:get_weather`
    Atom(Arc<str>),
    /// `"get_weather"`
    Text(Box<str>),
}

impl Name {
    /// Returns the name's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Atom(name) => name,
            Self::Text(name) => name,
        }
    }
}

/// Arguments as a term, and the JSON text they came as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// A map, or the given text if it is not a JSON object or the tool takes text.
    pub value: Value,
    /// The text a provider gave, which it gets back byte for byte.
    pub json: Option<Box<str>>,
}

impl Arguments {
    /// Returns the arguments of a call of this kind: a custom tool's are the text itself, whatever it says.
    #[inline]
    pub(crate) fn of(kind: CallKind, value: Value) -> Option<Self> {
        let text = |bytes| Self {
            value: Value::Binary(bytes),
            json: None,
        };
        match (kind, value) {
            (CallKind::Custom, Value::Nil) => Some(text(Box::default())),
            (CallKind::Custom, Value::Binary(bytes)) => Some(text(bytes)),
            (CallKind::Custom, _) => None,
            (_, value) => Self::from_value(value),
        }
    }

    #[inline]
    pub(crate) fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Nil => Some(Self::default()),
            Value::Map(_) => Some(Self { value, json: None }),
            Value::Binary(bytes) => Some(Self::from_json(bytes)),
            _ => None,
        }
    }

    pub(crate) fn from_json(bytes: Box<[u8]>) -> Self {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Self::default();
        }
        match json::read_whole(&bytes, MAX_DEPTH) {
            // Some models write this for a tool without parameters.
            Ok((Value::Nil, ..)) => Self::default(),
            Ok((value @ Value::Map(_), doubled, text)) => Self {
                value,
                // A reader of a doubled key takes its first value or its last: such a text is not sent on.
                json: std::str::from_utf8(&text)
                    .ok()
                    .filter(|_| !doubled)
                    .map(Into::into),
            },
            _ => Self {
                value: Value::Binary(bytes),
                json: None,
            },
        }
    }
}

impl Default for Arguments {
    fn default() -> Self {
        Self {
            value: Value::Map(Map::default()),
            json: None,
        }
    }
}

impl ToolCall {
    /// Returns whether the model goes on without the result, which may come at any time, as OpenAI Responses has it.
    pub(crate) fn is_async(&self) -> bool {
        let metadata = self.provider_metadata.as_ref();
        metadata.and_then(|of| of.get_named("async")) == Some(&Value::Bool(true))
    }

    /// Returns the call as one of this kind.
    pub(crate) fn of_kind(self, kind: CallKind) -> Self {
        Self { kind, ..self }
    }

    /// Reads the calls of one message. A call without an id gets one made of its place.
    ///
    /// # Errors
    /// [`Error::InvalidToolCall`], [`Error::DuplicateToolCall`].
    pub(crate) fn read_all(value: Value, place: MessagePlace) -> Result<Box<[Self]>, Error> {
        let mut calls = Self::read_unnamed(value)?;
        place.name_calls(&mut calls);
        Ok(calls.into_boxed_slice())
    }

    /// Reads the calls of a message that has no place yet.
    ///
    /// # Errors
    /// [`Error::InvalidToolCall`], [`Error::DuplicateToolCall`].
    pub(crate) fn read_unnamed(value: Value) -> Result<Vec<Self>, Error> {
        let Value::List(values) = value else {
            return match value {
                Value::Nil => Ok(Vec::new()),
                _ => Err(Error::invalid(Vec::new(), "a list of tool calls")),
            };
        };
        let mut calls = Vec::with_capacity(values.len());
        for (position, value) in values.into_vec().into_iter().enumerate() {
            let wrong = |key: &'static str| Error::InvalidToolCall {
                position,
                key: Value::atom(key),
            };
            calls.push(Self::read(value).map_err(wrong)?);
        }
        if let Some(id) = first_double(&calls) {
            return Err(Error::DuplicateToolCall { id: id.into() });
        }
        Ok(calls)
    }

    /// Reads one call; `Err` is the key that is wrong.
    fn read(value: Value) -> Result<Self, &'static str> {
        let mut fields = Fields::of(value).ok_or("id")?;
        let id = fields.take_text("id").or(Err("id"))?;
        let kind = fields.take_known("kind", CallKind::of).unwrap_or_default();
        let name = match (fields.take_given("name"), kind.tool()) {
            (Some(Value::Atom(name)), _) => Name::Atom(name),
            (Some(text @ Value::Binary(_)), _) => Name::Text(utf8(text).or(Err("name"))?),
            (None, Some(tool)) => Name::Text(tool.into()),
            _ => return Err("name"),
        };
        let arguments = fields.take("arguments").unwrap_or(Value::Nil);
        let provider_metadata = fields.take_map("provider_metadata");
        if fields.take("result").is_some() {
            // Results have a place of their own; an extra key of this name would hide them.
            return Err("result");
        }
        Ok(Self {
            id: id.unwrap_or_default(),
            kind,
            name,
            arguments: Arguments::of(kind, arguments).ok_or("arguments")?,
            provider_metadata: provider_metadata.or(Err("provider_metadata"))?,
            extra: fields.rest(),
            unknown: None,
            aliases: crate::log::alias::Aliases::default(),
        })
    }

    /// Returns how many parts of its message's content the model made before it; more than any message has if that is not
    /// known.
    pub(crate) fn parts_before(&self) -> usize {
        let metadata = self.provider_metadata.as_ref();
        let position = metadata.and_then(|metadata| metadata.get_named(PARTS_BEFORE)?.as_count());
        usize::try_from(position.unwrap_or(u64::MAX)).unwrap_or(usize::MAX)
    }

    /// Keeps how many parts of its message's content come before it.
    pub(crate) fn put_parts_before(&mut self, parts: usize) {
        let position = Value::Int(i64::try_from(parts).unwrap_or(i64::MAX));
        let metadata = self.provider_metadata.take().unwrap_or_default();
        self.provider_metadata = Some(metadata.put(Value::atom(PARTS_BEFORE), position));
    }

    /// Keeps the place of a call as its provider told it.
    pub(crate) fn stand_at(&mut self, parts: usize, provider: Provider) {
        let name = (Value::atom("provider"), Value::atom(provider.name()));
        let named = || Map::new(vec![name]);
        self.provider_metadata.get_or_insert_with(named);
        self.put_parts_before(parts);
    }

    /// Returns how much there is to walk and to copy.
    #[must_use]
    pub fn size(&self) -> Size {
        let maps = [&self.provider_metadata, &self.extra, &self.unknown];
        let json = self.arguments.json.as_ref().map_or(0, |text| text.len());
        let bytes = self.id.len() + self.name.as_str().len() + json;
        let own = Size::new(6, bytes).plus(self.arguments.value.size());
        own.plus(maps.into_iter().flatten().map(Map::size).sum())
    }
}
