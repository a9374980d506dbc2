//! Takes what stands under a key of a document, and says where something else stands.

use crate::error::Error;
use crate::storage::node::{DocumentFields, Node};
use crate::storage::trust::Trust;
use crate::storage::untagged;
use crate::value::fields::utf8;
use crate::value::time::Time;
use crate::value::{Map, Value, MAX_DEPTH};

/// Holds what the elements of an object are read from where there are none.
pub(crate) const NIL: Node<'static> = Node::Value(Value::Nil);

#[inline]
pub(crate) fn fields<'a>(
    node: Node<'a>,
    expected: &'static str,
) -> Result<DocumentFields<'a>, Error> {
    DocumentFields::of(node).ok_or_else(|| Error::invalid(Vec::new(), expected))
}

/// Returns what nobody took, which must be JSON.
#[inline]
pub(crate) fn rest(fields: DocumentFields<'_>) -> Result<Option<Map>, Error> {
    let Some(unknown) = fields.rest() else {
        return Ok(None);
    };
    let unknown = Value::Map(unknown);
    untagged::check_unknown(&unknown, MAX_DEPTH)?;
    match unknown {
        Value::Map(map) => Ok(Some(map)),
        _ => Ok(None),
    }
}

/// Something else was expected under a key.
pub(crate) fn wrong(
    key: &'static str,
    expected: impl Into<std::borrow::Cow<'static, str>>,
) -> Error {
    Error::invalid(vec![Value::text(key)], expected)
}

/// The result, or its error within a key.
#[inline]
pub(crate) fn at<T>(key: &'static str, read: Result<T, Error>) -> Result<T, Error> {
    read.map_err(|error| error.within(Value::text(key)))
}

#[inline]
pub(crate) fn take_name(
    fields: &mut DocumentFields<'_>,
    key: &'static str,
) -> Result<Box<str>, Error> {
    read_name(fields.take(key).unwrap_or(NIL))
}

#[inline]
pub(crate) fn read_name(node: Node<'_>) -> Result<Box<str>, Error> {
    let text = untagged::untag_text(node.into_value())?;
    utf8(text).map_err(|_| Error::invalid(Vec::new(), "text"))
}

#[inline]
pub(crate) fn take_time(fields: &mut DocumentFields<'_>, key: &'static str) -> Result<Time, Error> {
    read_time(&fields.take(key).unwrap_or(NIL))
}

/// A time that may be absent.
pub(crate) fn take_given_time(
    fields: &mut DocumentFields<'_>,
    key: &'static str,
) -> Result<Option<Time>, Error> {
    let time = fields.take_given(key).as_ref().map(read_time);
    at(key, time.transpose())
}

#[inline]
pub(crate) fn read_time(node: &Node<'_>) -> Result<Time, Error> {
    node.as_time()
        .ok_or_else(|| Error::invalid(Vec::new(), "ISO 8601 text with an offset"))
}

pub(crate) fn read_number(node: Node<'_>) -> Result<u64, Error> {
    node.as_count()
        .filter(|number| *number > 0)
        .ok_or_else(|| Error::invalid(Vec::new(), "a positive integer"))
}

#[inline]
pub(crate) fn take_list<'a>(
    fields: &mut DocumentFields<'a>,
    key: &'static str,
) -> Result<Vec<Node<'a>>, Error> {
    let list = fields.take(key).unwrap_or(NIL).into_list();
    list.map_err(|_| Error::invalid(Vec::new(), "a list"))
}

/// A map of values under a key.
#[inline]
pub(crate) fn take_map(
    fields: &mut DocumentFields<'_>,
    key: &'static str,
    trust: Trust,
) -> Result<Option<Map>, Error> {
    match take_term(fields, key, trust)? {
        None => Ok(None),
        Some(Value::Map(map)) => Ok(Some(map)),
        Some(_) => Err(wrong(key, "a map")),
    }
}

#[inline]
pub(crate) fn take_term(
    fields: &mut DocumentFields<'_>,
    key: &'static str,
    trust: Trust,
) -> Result<Option<Value>, Error> {
    let term = fields.take_given(key);
    let term = term.map(|node| node.into_term(trust.structs));
    at(key, term.transpose())
}
