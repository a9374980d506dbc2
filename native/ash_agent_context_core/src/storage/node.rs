//! Terms from the nodes of a document.

use crate::error::Error;
use crate::storage::limits::LEVELS;
use crate::storage::trust::Structs;
use crate::storage::untagged;
use crate::value::node::Named;
use crate::value::{Map, Value};

pub(crate) use crate::value::node::Node;

impl Node<'_> {
    /// Returns the term of a node, with the structs that are allowed.
    #[inline]
    pub fn into_term(self, structs: Structs) -> Result<Value, Error> {
        if matches!(&self, Self::Object(entries) if entries.is_empty()) {
            return Ok(Value::Map(Map::default()));
        }
        if self.has_no_tag() {
            return Ok(self.into_untagged(structs));
        }
        let mut value = self.into_value();
        untagged::untag(&mut value, LEVELS, structs)?;
        Ok(value)
    }

    fn has_no_tag(&self) -> bool {
        match self {
            Self::Text(_) | Self::Taken => true,
            Self::List(items) => items.iter().all(Self::has_no_tag),
            Self::Object(entries) => entries
                .iter()
                .all(|(key, node)| !untagged::is_tag(key.as_bytes()) && node.has_no_tag()),
            Self::Value(value) => !matches!(
                value,
                Value::List(_) | Value::Map(_) | Value::Tuple(_) | Value::Atom(_)
            ),
        }
    }

    /// Makes the term in one go, which takes half the time.
    fn into_untagged(self, structs: Structs) -> Value {
        match self {
            Self::List(items) => {
                let items = items.into_vec().into_iter();
                Value::List(items.map(|item| item.into_untagged(structs)).collect())
            }
            Self::Object(entries) => {
                let entries = entries.into_vec().into_iter();
                let entry = |(key, node): Named<'_>| {
                    (untagged::unescape(&key), node.into_untagged(structs))
                };
                Value::Map(structs.admit(Map::new(entries.map(entry).collect())))
            }
            other => other.into_value(),
        }
    }
}
