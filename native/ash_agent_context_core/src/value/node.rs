//! JSON as it is read: nodes that point into the text, or values that came as terms.

use std::borrow::Cow;

use crate::value::fields::{self, NotThat};
use crate::value::json::Tree;
use crate::value::time::{self, Time};
use crate::value::{Map, Value};

/// A part of a document. Most parts are looked at once and never kept.
pub(crate) enum Node<'a> {
    /// Text where it was read, which is UTF-8; only what is kept is copied.
    Text(&'a [u8]),
    /// A list that was read from a text.
    List(Box<[Node<'a>]>),
    /// An object that was read from a text: its entries as they came.
    Object(Box<[Named<'a>]>),
    /// Anything else, and any value that came as a term.
    Value(Value),
    /// The place of a node that was taken out of an object.
    Taken,
}

impl<'a> Node<'a> {
    #[inline]
    pub const fn is_nil(&self) -> bool {
        matches!(self, Self::Value(Value::Nil))
    }

    /// Returns the text of UTF-8.
    #[inline]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => std::str::from_utf8(text).ok(),
            Self::Value(value) => value.as_str(),
            _ => None,
        }
    }

    /// Returns an integer that is not negative.
    pub fn as_count(&self) -> Option<u64> {
        match self {
            Self::Value(Value::Int(number)) => u64::try_from(*number).ok(),
            Self::Value(Value::BigInt(number)) => u64::try_from(&**number).ok(),
            _ => None,
        }
    }

    pub fn as_time(&self) -> Option<Time> {
        match self {
            Self::Text(text) => time::from_text(text),
            Self::Value(value) => time::from_value(value),
            _ => None,
        }
    }

    /// Returns the text of UTF-8, to be kept.
    pub fn into_text(self) -> Result<Box<str>, NotThat> {
        fields::utf8(self.into_value())
    }

    /// Returns its elements, or itself when it is not a list.
    #[inline]
    pub fn into_list(self) -> Result<Vec<Self>, Self> {
        match self {
            Self::List(items) => Ok(items.into_vec()),
            Self::Value(Value::List(items)) => {
                Ok(items.into_vec().into_iter().map(Self::Value).collect())
            }
            other => Err(other),
        }
    }

    /// Returns a value that points into no text. It recurses: readers of texts make no deeper nodes than their own stack
    /// took.
    pub fn into_value(self) -> Value {
        match self {
            Self::Text(text) => Value::Binary(text.into()),
            Self::List(items) => {
                Value::List(items.into_vec().into_iter().map(Self::into_value).collect())
            }
            Self::Object(entries) => Value::Map(map_of(entries.into_vec())),
            Self::Value(value) => value,
            Self::Taken => Value::Nil,
        }
    }

    /// Returns the value of a node that stays; `None` where a number does not fit into a float.
    pub fn to_value(&self) -> Option<Value> {
        Some(match self {
            Self::Text(text) => Value::Binary((*text).into()),
            Self::List(items) => {
                Value::List(items.iter().map(Self::to_value).collect::<Option<_>>()?)
            }
            Self::Object(entries) => {
                let entry = |(key, node): &Named<'_>| Some((Value::text(key), node.to_value()?));
                Value::Map(Map::new(entries.iter().map(entry).collect::<Option<_>>()?))
            }
            Self::Value(Value::Float(float)) if !float.is_finite() => return None,
            Self::Value(value) => value.clone(),
            Self::Taken => Value::Nil,
        })
    }
}

/// A key and its node.
pub(crate) type Named<'a> = (Cow<'a, str>, Node<'a>);

impl Tree for Node<'_> {
    const IS_STRICT: bool = false;

    fn scalar(value: Value) -> Self {
        Self::Value(value)
    }

    fn list(items: Vec<Self>) -> Self {
        Self::List(items.into_boxed_slice())
    }

    fn object(entries: Vec<(Box<str>, Self)>) -> (Self, bool) {
        let entry = |(key, node): (Box<str>, Self)| (Cow::Owned(key.into_string()), node);
        (
            Self::Object(entries.into_iter().map(entry).collect()),
            false,
        )
    }
}

/// Returns the map of an object's entries; of several with one key the last one counts.
pub(crate) fn map_of<'a>(entries: impl IntoIterator<Item = Named<'a>>) -> Map {
    let entries = entries.into_iter();
    Map::new(
        entries
            .map(|(key, node)| (Value::text(&key), node.into_value()))
            .collect(),
    )
}
