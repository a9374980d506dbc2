//! JSON text: reading it into values, and the JSON that stands for a value.
//!
//! Reading is [`jiter`]'s: it keeps integers of any size exact (serde_json turns those beyond 64
//! bits into floats) and lets us hold nesting on a stack of our own. Writing is serde_json's.

use std::borrow::Cow;
use std::collections::HashSet;

use jiter::{Jiter, JiterErrorType, JsonErrorType, NumberAny, NumberInt, Peek};
use num_bigint::BigInt;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::error::Error;
use crate::value::{letters, structs};
use crate::value::{Map, Value};

/// Decimal digits up to which an integer is written as a JSON number; reading accepts no more
/// (jiter's limit, and Python's). Converting between bases is not linear, so there must be one.
pub(crate) const MAX_DIGITS: u64 = 4300;

/// Integers of up to so many bits have at most [`MAX_DIGITS`] digits: `14_280 * log10(2) < 4300`.
const MAX_BITS: u64 = 14_280;

/// The result of reading a text: values, or nodes of a document.
pub(crate) trait Tree: Sized {
    /// In strict trees an empty container takes a level like any other, and a number has to fit into a float.
    const IS_STRICT: bool;

    fn scalar(value: Value) -> Self;
    fn list(items: Vec<Self>) -> Self;
    /// Makes an object. Returns true beside it if a key came twice.
    fn object(entries: Vec<(Box<str>, Self)>) -> (Self, bool);
}

impl Tree for Value {
    const IS_STRICT: bool = true;

    fn scalar(value: Value) -> Self {
        value
    }

    fn list(items: Vec<Self>) -> Self {
        Self::List(items.into_boxed_slice())
    }

    fn object(entries: Vec<(Box<str>, Self)>) -> (Self, bool) {
        let given = entries.len();
        let entry = |(key, value): (Box<str>, Self)| (Self::Binary(key.into_boxed_bytes()), value);
        let map = Map::new(entries.into_iter().map(entry).collect());
        let is_doubled = map.len() != given;
        (Self::Map(map), is_doubled)
    }
}

enum Container<T> {
    Array(Vec<T>),
    Object(Vec<(Box<str>, T)>, Box<str>),
}

/// Reads one JSON document: objects become maps with string keys; of duplicate keys the last one counts.
///
/// # Errors
/// [`Error::Invalid`] that says where the text is not JSON, [`Error::TooDeep`] beyond `limit` levels.
///
/// # Complexity
/// O(n), nesting included.
pub fn read(text: &[u8], limit: usize) -> Result<Value, Error> {
    let explain = |error: ParseError| error.explain(text);
    read_tree(text, limit)
        .map(|(value, _)| value)
        .map_err(explain)
}

/// Like [`read`], for texts that others wrote: half a character in an escape is a replacement character.
///
/// # Errors
/// As [`read`].
pub fn read_foreign(text: &[u8], limit: usize) -> Result<Value, Error> {
    read_noting(text, limit).map(|(value, _)| value)
}

/// Like [`read_foreign`]; returns true beside the value if an object had a key twice.
pub(crate) fn read_noting(text: &[u8], limit: usize) -> Result<(Value, bool), Error> {
    read_whole(text, limit).map(|(value, doubled, _)| (value, doubled))
}

/// Like [`read_noting`]; returns the text that was read as well. Half a character in an escape, which many programs write and
/// none reads, is a replacement character in both.
pub(crate) fn read_whole(text: &[u8], limit: usize) -> Result<(Value, bool, Cow<'_, [u8]>), Error> {
    let error = match read_tree(text, limit) {
        Ok((value, doubled)) => return Ok((value, doubled, Cow::Borrowed(text))),
        Err(error) => error,
    };
    let repaired = std::str::from_utf8(text).map(replace_halves);
    let repaired = repaired.unwrap_or_default().into_bytes();
    match repaired != text {
        true => match read_tree(&repaired, limit) {
            Ok((value, doubled)) => Ok((value, doubled, Cow::Owned(repaired))),
            Err(_) => Err(error.explain(text)),
        },
        false => Err(error.explain(text)),
    }
}

/// Returns the text with a replacement character for each escaped half of a character without its other half.
pub(crate) fn replace_halves(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        let second = escape.get(6..).and_then(unit);
        let (length, is_half) = match (unit(escape), second) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => (12, false),
            (Some(0xD800..=0xDFFF), _) => (6, true),
            // In valid JSON, the escape's letter is one byte.
            _ => (1 + escape.chars().nth(1).map_or(0, char::len_utf8), false),
        };
        let (kept, after) = escape.split_at(length);
        out.push_str(before);
        out.push_str(if is_half { "\\ufffd" } else { kept });
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Returns the number of an escape such as `\u00e9` at the beginning of a text.
fn unit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u32::from_str_radix(digits, 16).ok()
}

/// Returns the bytes of a JSON text that are in no string, each with its index.
pub(crate) fn signs(text: &[u8]) -> impl Iterator<Item = (usize, u8)> + '_ {
    let (mut is_within, mut is_escaped) = (false, false);
    text.iter().copied().enumerate().filter(move |(_, byte)| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_within = !is_within,
            _ => return !is_within,
        }
        false
    })
}

pub(crate) enum ParseError {
    TooDeep(usize),
    Number(usize),
    Syntax(jiter::JiterError),
}

impl From<jiter::JiterError> for ParseError {
    fn from(error: jiter::JiterError) -> Self {
        Self::Syntax(error)
    }
}

impl ParseError {
    fn explain(self, text: &[u8]) -> Error {
        let (what, index) = match self {
            Self::TooDeep(limit) => return Error::TooDeep { limit },
            Self::Number(index) => ("a number that a float can hold".to_owned(), index),
            Self::Syntax(error) => {
                let what = match error.error_type {
                    JiterErrorType::JsonError(JsonErrorType::NumberOutOfRange) => {
                        format!("an integer of at most {MAX_DIGITS} digits")
                    }
                    other => format!("JSON ({other})"),
                };
                (what, error.index)
            }
        };
        let position = Jiter::new(text).error_position(index);
        let (line, column) = (position.line, position.column);
        Error::expected(format!("{what}, at line {line} column {column}"))
    }
}

/// Reads one document into any tree; returns true beside it if an object had a key twice.
pub(crate) fn read_tree<T: Tree>(text: &[u8], limit: usize) -> Result<(T, bool), ParseError> {
    let mut jiter = Jiter::new(text);
    let read = read_value(&mut jiter, limit)?;
    jiter.finish()?;
    Ok(read)
}

fn read_value<T: Tree>(jiter: &mut Jiter<'_>, limit: usize) -> Result<(T, bool), ParseError> {
    let mut doubled = false;
    let mut open: Vec<Container<T>> = Vec::new();
    let mut peek = jiter.peek()?;
    loop {
        // One value: a scalar, an empty container, or the opening of one more level.
        let is_full = open.len() >= limit;
        if is_full && T::IS_STRICT && matches!(peek, Peek::Array | Peek::Object) {
            return Err(ParseError::TooDeep(limit));
        }
        let container = match peek {
            Peek::Array => match jiter.known_array()? {
                None => Err(T::list(Vec::new())),
                Some(first) => {
                    peek = first;
                    Ok(Container::Array(Vec::new()))
                }
            },
            Peek::Object => match jiter.known_object()?.map(Box::from) {
                None => Err(T::object(Vec::new()).0),
                Some(key) => {
                    peek = jiter.peek()?;
                    Ok(Container::Object(Vec::new(), key))
                }
            },
            _ => Err(T::scalar(read_scalar(jiter, peek, T::IS_STRICT)?)),
        };
        let mut value = match container {
            Ok(_) if is_full => return Err(ParseError::TooDeep(limit)),
            Ok(container) => {
                open.push(container);
                continue;
            }
            Err(value) => value,
        };
        // Hand it to the level around it; close every level that ends here.
        loop {
            match open.pop() {
                None => return Ok((value, doubled)),
                Some(Container::Array(mut items)) => {
                    items.push(value);
                    if let Some(next) = jiter.array_step()? {
                        open.push(Container::Array(items));
                        peek = next;
                        break;
                    }
                    value = T::list(items);
                }
                Some(Container::Object(mut entries, key)) => {
                    entries.push((key, value));
                    if let Some(key) = jiter.next_key()? {
                        open.push(Container::Object(entries, key.into()));
                        peek = jiter.peek()?;
                        break;
                    }
                    let (object, is_doubled) = T::object(entries);
                    doubled |= is_doubled;
                    value = object;
                }
            }
        }
    }
}

fn read_scalar(jiter: &mut Jiter<'_>, peek: Peek, strict: bool) -> Result<Value, ParseError> {
    Ok(match peek {
        Peek::Null => {
            jiter.known_null()?;
            Value::Nil
        }
        Peek::True | Peek::False => Value::Bool(jiter.known_bool(peek)?),
        Peek::String => Value::text(jiter.known_str()?),
        _ => {
            let index = jiter.current_index();
            match jiter.known_number(peek)? {
                NumberAny::Int(NumberInt::Int(small)) => Value::Int(small),
                NumberAny::Int(NumberInt::BigInt(big)) => Value::integer(big),
                NumberAny::Float(float) => {
                    if strict && !float.is_finite() {
                        return Err(ParseError::Number(index));
                    }
                    Value::Float(float)
                }
            }
        }
    })
}

/// The JSON of a value in the form that models and providers get.
///
/// Atoms and dates are strings, tuples arrays, keyword lists objects, structs objects without
/// their name; invalid UTF-8 is replaced. Keys stand in an order that no VM decides.
#[derive(Debug, Clone, Copy)]
pub struct AsJson<'a>(pub &'a Value);

/// Returns the JSON text of a value.
#[must_use]
pub fn write(value: &Value) -> String {
    to_string(&AsJson(value))
}

/// Writes with serde_json into a string, for types whose serialisation cannot fail.
pub(crate) fn to_string(value: &impl Serialize) -> String {
    // A map key that is not a string would be serde_json's only error here; we write none.
    serde_json::to_string(value).unwrap_or_default()
}

impl Serialize for AsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Nil => serializer.serialize_unit(),
            Value::Bool(flag) => serializer.serialize_bool(*flag),
            Value::Int(integer) => serializer.serialize_i64(*integer),
            Value::BigInt(integer) => serialize_big(integer, serializer),
            Value::Float(float) => serializer.serialize_f64(*float),
            Value::Atom(name) => serializer.serialize_str(name),
            Value::Binary(bytes) => serializer.serialize_str(&letters::utf8(bytes)),
            Value::Tuple(items) => serializer.collect_seq(items.iter().map(AsJson)),
            Value::List(items) => match keyword(items) {
                Some(entries) => serialize_entries(entries.into_iter(), true, serializer),
                None => serializer.collect_seq(items.iter().map(AsJson)),
            },
            Value::Map(map) => {
                if let Some(ready) = structs::fragment(map).and_then(structs::ready) {
                    return ready.serialize(serializer);
                }
                match structs::struct_text(map) {
                    Some(text) => serializer.serialize_str(&text),
                    None => AsObject(map).serialize(serializer),
                }
            }
        }
    }
}

/// The JSON object of a map, whatever struct it may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AsObject<'a>(pub &'a Map);

impl Serialize for AsObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_name = |key: &Value| matches!(key, Value::Atom(name) if &**name == "__struct__");
        let entries = self.0.iter().map(|(key, value)| (key, value));
        let entries = entries.filter(|(key, _)| !is_name(key));
        serialize_entries(entries, !differ_as_text(self.0), serializer)
    }
}

/// Of keys with the same text the first one counts.
fn serialize_entries<'a, S: Serializer>(
    entries: impl Iterator<Item = (&'a Value, &'a Value)>,
    may_repeat: bool,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut seen = HashSet::new();
    let mut object = serializer.serialize_map(None)?;
    for (key, value) in entries {
        let key = key_text(key);
        if !may_repeat || seen.insert(key.clone()) {
            object.serialize_entry(&*key, &AsJson(value))?;
        }
    }
    object.end()
}

/// Returns true if different keys surely have different texts: all of them are atoms, or all are UTF-8.
fn differ_as_text(map: &Map) -> bool {
    let is_atom = |key: &Value| matches!(key, Value::Atom(_) | Value::Nil | Value::Bool(_));
    map.iter().all(|(key, _)| is_atom(key)) || map.iter().all(|(key, _)| key.as_str().is_some())
}

fn key_text(key: &Value) -> Cow<'_, str> {
    match key {
        Value::Binary(bytes) => letters::utf8(bytes),
        other => match other.as_name() {
            Some(name) => Cow::Borrowed(name),
            // Levels of keys within keys would be written and escaped again and again.
            None if other.is_deeper_than(1) => Cow::Borrowed("(nested key)"),
            None => Cow::Owned(write(other).replace(['"', '\\'], "'")),
        },
    }
}

/// Returns the entries of a keyword list.
fn keyword(items: &[Value]) -> Option<Vec<(&Value, &Value)>> {
    fn entry(item: &Value) -> Option<(&Value, &Value)> {
        match item {
            Value::Tuple(pair) => match &**pair {
                [key @ (Value::Atom(_) | Value::Nil | Value::Bool(_)), value] => Some((key, value)),
                _ => None,
            },
            _ => None,
        }
    }
    let entries: Option<Vec<_>> = items.iter().map(entry).collect();
    entries.filter(|entries| !entries.is_empty())
}

fn serialize_big<S: Serializer>(integer: &BigInt, serializer: S) -> Result<S::Ok, S::Error> {
    if integer.bits() > MAX_BITS {
        return serializer.serialize_str(&format!("{integer:#x}"));
    }
    serialize_digits(integer, serializer)
}

/// Writes all digits of an integer, however many there are.
pub(crate) fn serialize_digits<S: Serializer>(
    integer: &BigInt,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match serde_json::value::RawValue::from_string(integer.to_string()) {
        Ok(raw) => raw.serialize(serializer),
        Err(_) => serializer.serialize_str(&integer.to_string()),
    }
}
