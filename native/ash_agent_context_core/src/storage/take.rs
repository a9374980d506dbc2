//! Takes values out of a document by their keys, with errors that name the key. Both forms of a document are read by the same
//! rules; their differences are in [`Form`].

use std::borrow::Cow;

use crate::error::{each, Error};
use crate::storage::trust::Trust;
use crate::storage::untagged;
use crate::value::fields::{self, utf8, Keys};
use crate::value::node::Node;
use crate::value::node::{map_of, Named};
use crate::value::time::Time;
use crate::value::{Map, Value, MAX_DEPTH};

/// Stands for an absent object.
pub(crate) const NIL: Node<'static> = Node::Value(Value::Nil);

/// The forms in which a conversation may be written down.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    /// The stored form has strings as keys and as names, and tags for terms that JSON lacks. Unknown fields are kept, for
    /// newer releases.
    Stored(Trust),
    /// The maps of `to_map/1` have atoms or strings as keys and names, and hold terms as they are. Unknown fields are
    /// mistakes, and missing values have defaults; this is the one for times.
    Maps(Time),
}

impl From<Trust> for Form {
    fn from(trust: Trust) -> Self {
        Self::Stored(trust)
    }
}

impl Form {
    /// Returns the trust in parts that only the stored form has.
    pub const fn trust(self) -> Trust {
        match self {
            Self::Stored(trust) => trust,
            Self::Maps(_) => Trust::KEEP,
        }
    }

    pub fn read_time(self, node: &Node<'_>) -> Result<Time, Error> {
        let expected = match self {
            Self::Stored(_) => "ISO 8601 text with an offset",
            Self::Maps(_) => "a DateTime or ISO 8601 text with an offset",
        };
        let time = node.as_time();
        time.ok_or_else(|| Error::expected(expected))
    }

    /// Reads the id of a conversation.
    pub fn read_id(self, node: Node<'_>) -> Result<Box<str>, Error> {
        let id = match self {
            Self::Stored(_) => read_name(node)?,
            Self::Maps(_) => node.into_text().unwrap_or_default(),
        };
        match id.is_empty() {
            true => Err(Error::expected("non-empty text")),
            false => Ok(id),
        }
    }

    /// Returns the name of a word.
    pub fn name_of<'n>(self, node: &'n Node<'_>) -> Option<&'n str> {
        match (self, node) {
            (Self::Maps(_), Node::Value(value)) => value.as_name(),
            _ => node.as_str(),
        }
    }

    /// Reads the number of an iteration. In maps it is never so high that counting on from it ends soon.
    pub fn read_number(self, node: &Node<'_>) -> Result<u64, Error> {
        let most = match self {
            Self::Stored(_) => u64::MAX,
            Self::Maps(_) => i64::MAX.unsigned_abs(),
        };
        let number = node.as_count().filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| Error::expected("a positive integer"))
    }

    pub fn read_term(self, node: Node<'_>) -> Result<Value, Error> {
        match self {
            Self::Stored(trust) => node.into_term(trust.structs),
            Self::Maps(_) => {
                let value = node.into_value();
                check_depth(&value)?;
                Ok(value)
            }
        }
    }
}

/// The entries of an object that is being taken apart.
pub(crate) struct DocumentFields<'a> {
    pub form: Form,
    /// Entries of a map that came as a term.
    pub values: fields::Fields,
    /// Entries of a text as they came, but for those that were taken.
    named: Vec<Named<'a>>,
}

impl<'a> DocumentFields<'a> {
    /// Returns the entries of an object; `None` for anything else.
    #[inline]
    pub fn of(node: Node<'a>, form: Form) -> Option<Self> {
        match node {
            Node::Object(entries) => Some(Self {
                form,
                values: fields::Fields::default(),
                named: entries.into_vec(),
            }),
            Node::Value(value) => Some(Self {
                form,
                values: fields::Fields::of(value)?,
                named: Vec::new(),
            }),
            Node::Text(_) | Node::List(_) | Node::Taken => None,
        }
    }

    /// Returns the spelling of the document's keys.
    pub const fn keys(&self) -> Keys {
        match self.form {
            Form::Stored(_) => Keys::Strings,
            Form::Maps(_) => self.values.keys,
        }
    }

    fn key(&self, name: &str) -> Value {
        self.keys().spell(name)
    }

    /// Takes the value of a known key out; of several the last one counts.
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

    /// Returns true if there is a known key.
    pub fn has(&self, name: &str) -> bool {
        self.named.iter().any(|(key, _)| key == name) || self.values.has_key(name)
    }

    /// Returns the entries that nobody took.
    #[inline]
    pub fn rest(self) -> Option<Map> {
        match self.named.iter().all(is_taken) {
            true => self.values.rest(),
            false => self.collect_left(),
        }
    }

    fn collect_left(self) -> Option<Map> {
        let (taken, left): (Vec<_>, Vec<_>) = self.named.into_iter().partition(is_taken);
        // Where a known key came twice, the last one was taken.
        let is_unknown = |(key, _): &Named<'_>| taken.iter().all(|(known, _)| known != key);
        Some(map_of(left.into_iter().filter(is_unknown))).filter(|map| !map.is_empty())
    }
}

fn is_taken((_, node): &Named<'_>) -> bool {
    matches!(node, Node::Taken)
}

#[inline]
pub(crate) fn fields<'a>(
    node: Node<'a>,
    expected: &'static str,
    form: impl Into<Form>,
) -> Result<DocumentFields<'a>, Error> {
    let fields = DocumentFields::of(node, form.into());
    fields.ok_or_else(|| Error::expected(expected))
}

/// Returns an error for another value under a key of the stored form.
pub(crate) fn wrong(key: &'static str, expected: impl Into<Cow<'static, str>>) -> Error {
    Error::invalid(vec![Value::text(key)], expected)
}

/// Returns the result, with an error within a key of the stored form.
#[inline]
pub(crate) fn at<T>(key: &'static str, read: Result<T, Error>) -> Result<T, Error> {
    read.map_err(|error| error.within(Value::text(key)))
}

#[inline]
pub(crate) fn read_name(node: Node<'_>) -> Result<Box<str>, Error> {
    let text = untagged::untag_text(node.into_value())?;
    utf8(text).map_err(|_| Error::expected("text"))
}

/// Reads the text of a map, which has no tags.
pub(crate) fn read_text(node: Node<'_>) -> Result<Box<str>, Error> {
    let text = node.into_text();
    text.map_err(|_| Error::expected("text"))
}

/// Refuses values that are too deep. A value of a map, a call or a result is a container around values that have the full
/// depth, wherever in the document it is.
pub(crate) fn check_depth(value: &Value) -> Result<(), Error> {
    match value.is_deeper_than(MAX_DEPTH + 1) {
        true => Err(Error::TooDeep { limit: MAX_DEPTH }),
        false => Ok(()),
    }
}

pub(crate) fn read_number(node: Node<'_>) -> Result<u64, Error> {
    node.as_count()
        .filter(|number| *number > 0)
        .ok_or_else(|| Error::expected("a positive integer"))
}

pub(crate) fn read_size(node: Node<'_>) -> Result<usize, Error> {
    let size = match node {
        Node::Value(Value::Int(size)) => usize::try_from(size).ok(),
        _ => None,
    };
    size.ok_or_else(|| Error::expected("a number that is not negative"))
}

/// Refuses unknown fields that are not JSON data.
pub(crate) fn check_unknown(fields: Map) -> Result<Map, Error> {
    untagged::check_unknown(&fields, MAX_DEPTH)?;
    Ok(fields)
}

impl<'a> DocumentFields<'a> {
    /// Returns the result, with an error within a key.
    #[inline]
    pub fn at<T>(&self, key: &'static str, read: Result<T, Error>) -> Result<T, Error> {
        read.map_err(|error| error.within(self.key(key)))
    }

    /// Reads the value of a key; without one, `read` gets `nil`.
    #[inline]
    pub fn read<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(Node<'a>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let node = self.take(key).unwrap_or(NIL);
        self.at(key, read(node))
    }

    /// Reads a value that may be missing.
    #[inline]
    pub fn read_given<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(Node<'a>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        match self.take_given(key) {
            None => Ok(None),
            Some(node) => self.at(key, read(node).map(Some)),
        }
    }

    /// Reads a value that may be missing in maps alone.
    #[inline]
    pub fn read_due<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(Node<'a>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        match self.form {
            Form::Stored(_) => self.read(key, read).map(Some),
            Form::Maps(_) => self.read_given(key, read),
        }
    }

    #[inline]
    pub fn take_list(&mut self, key: &'static str) -> Result<Option<Vec<Node<'a>>>, Error> {
        let not_a_list = |_| Error::expected("a list");
        self.read_due(key, |node| node.into_list().map_err(not_a_list))
    }

    /// Reads the elements of a list that may be absent.
    pub fn read_each<T>(
        &mut self,
        key: &'static str,
        read: impl FnMut(Node<'a>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        if !self.has(key) {
            return Ok(Vec::new());
        }
        let nodes = self.take_list(key)?.unwrap_or_default();
        self.at(key, each(nodes, read))
    }

    /// Returns the entries that nobody took, which must be JSON; maps may only have `known` fields.
    pub fn finish(self, known: &'static str) -> Result<Option<Map>, Error> {
        match self.form {
            Form::Stored(_) => self.keep_rest(),
            Form::Maps(_) => self.values.finish(known).map(|()| None),
        }
    }

    /// Returns the entries that nobody took, which must be JSON.
    #[inline]
    pub fn keep_rest(self) -> Result<Option<Map>, Error> {
        self.rest().map(check_unknown).transpose()
    }
}
