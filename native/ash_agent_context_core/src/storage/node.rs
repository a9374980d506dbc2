//! Holds what a document is made of while it is read: the terms that nodes stand for, and the fields of an object.

use crate::error::Error;
use crate::storage::limits::LEVELS;
use crate::storage::trust::Structs;
use crate::storage::untagged;
use crate::value::fields;
use crate::value::node::{map_of, Named};
use crate::value::{Map, Value};

pub(crate) use crate::value::node::Node;

impl Node<'_> {
    /// The term that it stands for, with the structs that it may have.
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

    /// In one go, which takes half the time.
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

/// The entries of an object that is being taken apart.
#[derive(Default)]
pub(crate) struct DocumentFields<'a> {
    /// Those of a map that came as a term.
    pub values: fields::Fields,
    /// Those of a text as they came, without what was taken.
    named: Vec<Named<'a>>,
}

impl<'a> DocumentFields<'a> {
    /// The entries of an object, nothing of anything else.
    #[inline]
    pub fn of(node: Node<'a>) -> Option<Self> {
        match node {
            Node::Object(entries) => Some(Self {
                values: fields::Fields::default(),
                named: entries.into_vec(),
            }),
            Node::Value(value) => Some(Self {
                values: fields::Fields::of(value)?,
                named: Vec::new(),
            }),
            Node::Text(_) | Node::List(_) | Node::Taken => None,
        }
    }

    /// Takes what stands under a known key out; of several the last one counts.
    #[inline]
    pub fn take(&mut self, name: &str) -> Option<Node<'a>> {
        let mut entries = self.named.iter_mut().rev();
        match entries.find(|(key, _)| key == name) {
            Some((_, node)) => match std::mem::replace(node, Node::Taken) {
                Node::Taken => None,
                node => Some(node),
            },
            None => self.values.take(name).map(Node::Value),
        }
    }

    /// Like [`DocumentFields::take`], but `nil` counts as missing.
    #[inline]
    pub fn take_given(&mut self, name: &str) -> Option<Node<'a>> {
        self.take(name).filter(|node| !node.is_nil())
    }

    /// Returns whether anything stands under a known key.
    pub fn has(&mut self, name: &str) -> bool {
        self.named.iter().any(|(key, _)| key == name) || self.values.get_mut(name).is_some()
    }

    /// Returns what nobody took.
    #[inline]
    pub fn rest(self) -> Option<Map> {
        match self.named.iter().all(is_taken) {
            true => self.values.rest(),
            false => self.left(),
        }
    }

    fn left(self) -> Option<Map> {
        let (taken, left): (Vec<_>, Vec<_>) = self.named.into_iter().partition(is_taken);
        // Where a known key came twice, the last one was taken.
        let is_unknown = |(key, _): &Named<'_>| taken.iter().all(|(known, _)| known != key);
        Some(map_of(left.into_iter().filter(is_unknown))).filter(|map| !map.is_empty())
    }
}

fn is_taken((_, node): &Named<'_>) -> bool {
    matches!(node, Node::Taken)
}
