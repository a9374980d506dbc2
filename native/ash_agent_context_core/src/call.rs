//! Tool calls.

use std::collections::HashSet;

use crate::error::Error;
use crate::fields::{utf8, Fields};
use crate::json;
use crate::value::{Map, Size, Value, MAX_DEPTH};

/// One request of the model to run a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Unique in its message; a later message may use it again.
    pub id: Box<str>,
    /// The tool's name.
    pub name: Name,
    /// What the model passes to the tool.
    pub arguments: Arguments,
    /// What its provider wants to see again.
    pub provider_metadata: Option<Map>,
    /// Further keys, kept as given.
    pub extra: Option<Map>,
    /// Ids for providers that cannot take [`ToolCall::id`]; given when the call joins a context.
    pub(crate) aliases: crate::ids::Aliases,
}

/// A name, and whether an atom or a string was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// `:get_weather`
    Atom(Box<str>),
    /// `"get_weather"`
    Text(Box<str>),
}

impl Name {
    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Atom(name) | Self::Text(name) => name,
        }
    }
}

/// Arguments as a term, and the JSON text they came as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// A map, or the given text when that is no JSON object.
    pub value: Value,
    /// The text a provider gave, which it gets back byte for byte.
    pub json: Option<Box<str>>,
}

impl Arguments {
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Nil => Some(Self::default()),
            Value::Map(_) => Some(Self { value, json: None }),
            Value::Binary(bytes) => Some(Self::from_json(bytes)),
            _ => None,
        }
    }

    fn from_json(bytes: Box<[u8]>) -> Self {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Self::default();
        }
        match (json::read(&bytes, MAX_DEPTH), std::str::from_utf8(&bytes)) {
            (Ok(value @ Value::Map(_)), Ok(text)) => Self {
                value,
                json: Some(text.into()),
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
    /// Reads the calls of one message. A call without an id gets `call_<place>_<position>`.
    ///
    /// # Errors
    /// [`Error::InvalidToolCall`], [`Error::DuplicateToolCall`].
    pub(crate) fn read_all(value: Value, place: &str) -> Result<Box<[Self]>, Error> {
        let Value::List(values) = value else {
            return match value {
                Value::Nil => Ok(Box::default()),
                _ => Err(Error::invalid(Vec::new(), "a list of tool calls")),
            };
        };
        let mut calls = Vec::with_capacity(values.len());
        for (position, value) in values.into_vec().into_iter().enumerate() {
            let wrong = |key: &'static str| Error::InvalidToolCall {
                position,
                key: Value::atom(key),
            };
            calls.push(Self::read(value, place, position).map_err(wrong)?);
        }
        let mut seen = HashSet::with_capacity(calls.len());
        if let Some(twice) = calls.iter().find(|call| !seen.insert(&*call.id)) {
            return Err(Error::DuplicateToolCall {
                id: twice.id.clone(),
            });
        }
        Ok(calls.into_boxed_slice())
    }

    /// `Err` is the key that is wrong.
    fn read(value: Value, place: &str, position: usize) -> Result<Self, &'static str> {
        let mut fields = Fields::of(value).ok_or("id")?;
        let id = fields.take_text("id").or(Err("id"))?;
        let name = match fields.take("name") {
            Some(Value::Atom(name)) => Name::Atom(name),
            Some(text @ Value::Binary(_)) => Name::Text(utf8(text).or(Err("name"))?),
            _ => return Err("name"),
        };
        let arguments = fields.take("arguments").unwrap_or(Value::Nil);
        let provider_metadata = fields.take_map("provider_metadata");
        Ok(Self {
            id: id
                .filter(|id| !id.is_empty())
                .unwrap_or_else(|| format!("call_{place}_{position}").into()),
            name,
            arguments: Arguments::from_value(arguments).ok_or("arguments")?,
            provider_metadata: provider_metadata.or(Err("provider_metadata"))?,
            extra: fields.rest(),
            aliases: crate::ids::Aliases::default(),
        })
    }

    /// How much there is to walk and to copy.
    #[must_use]
    pub fn size(&self) -> Size {
        let maps = [&self.provider_metadata, &self.extra];
        let json = self.arguments.json.as_ref().map_or(0, |text| text.len());
        maps.into_iter()
            .flatten()
            .fold(self.arguments.value.size(), |sum, map| sum.plus(map.size()))
            .plus(Size::new(
                6,
                self.id.len() + self.name.as_str().len() + json,
            ))
    }
}
