//! Reading values from their stored form, see `tagged.rs` for the tags.

use base64::engine::general_purpose::STANDARD as BASE64;
use base64::Engine as _;
use num_bigint::BigInt;

use crate::error::{each, index, Error};
use crate::storage::limits::{LEVELS, NESTING};
use crate::storage::tagged::{ATOM, BYTES, FLOAT, INT, MAP, TUPLE};
use crate::storage::trust::Structs;
use crate::value::json::{self, MAX_DIGITS};
use crate::value::node::{Named, Node};
use crate::value::{Map, Value, MAX_DEPTH};

/// A tuple may have so many elements: a VM that is made to build a larger one has a broken term.
const MAX_TUPLE: usize = (1 << 24) - 1;

fn read_int(text: &str) -> Option<Value> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (num_bigint::Sign::Minus, digits),
        None => (num_bigint::Sign::Plus, text),
    };
    let (digits, radix) = match digits.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        // Converting from decimal is not linear.
        None if digits.len() as u64 <= MAX_DIGITS => (digits, 10),
        None => return None,
    };
    let all_digits = !digits.is_empty() && digits.chars().all(|digit| digit.is_digit(radix));
    let magnitude = num_bigint::BigUint::parse_bytes(digits.as_bytes(), radix);
    let integer = BigInt::from_biguint(sign, magnitude.filter(|_| all_digits)?);
    Some(Value::integer(integer))
}

fn read_float(text: &str) -> Option<Value> {
    let numeric = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    let float: f64 = text.parse().ok()?;
    (float.is_finite() && text.bytes().all(numeric)).then_some(Value::Float(float))
}

fn read_bytes(text: &Value) -> Option<Value> {
    let Value::Binary(text) = text else {
        return None;
    };
    Some(Value::Binary(BASE64.decode(text).ok()?.into_boxed_slice()))
}

/// Replaces a part of a document by its value, with the structs that are allowed.
///
/// # Errors
/// [`Error::Invalid`], [`Error::TooDeep`] beyond so many levels.
///
/// # Complexity
/// O(n log n) for the keys of a map, else O(n).
pub fn untag(value: &mut Value, levels: usize, structs: Structs) -> Result<(), Error> {
    if matches!(value, Value::Binary(_) | Value::Nil) {
        return Ok(());
    }
    let mut open = Vec::new();
    let document = std::mem::replace(value, Value::Nil);
    *value = walk(document, levels, structs, &mut open).map_err(|error| {
        open.iter()
            .rev()
            .fold(error, |error, level| level.locate(error))
    })?;
    Ok(())
}

/// A list or map whose elements are being read.
enum OpenLevel {
    List {
        rest: std::vec::IntoIter<Value>,
        read: Vec<Value>,
        is_tuple: bool,
    },
    Object {
        rest: std::vec::IntoIter<(Value, Value)>,
        read: Vec<(Value, Value)>,
        key: Value,
    },
    Pairs {
        rest: std::vec::IntoIter<Value>,
        read: Vec<(Value, Value)>,
        key: Option<Value>,
        value: Option<Value>,
    },
}

enum Next {
    Read(Value),
    Done(Value),
    Open(OpenLevel),
}

/// Reads with a stack of its own: schedulers' stacks are small, and overflowing one ends the VM.
fn walk(
    document: Value,
    levels: usize,
    structs: Structs,
    open: &mut Vec<OpenLevel>,
) -> Result<Value, Error> {
    let mut step = Next::Read(document);
    loop {
        step = match step {
            Next::Read(value) => begin(value)?,
            Next::Open(_) if open.len() >= levels => {
                return Err(Error::TooDeep { limit: MAX_DEPTH });
            }
            Next::Open(level) => {
                open.push(level);
                next_step(open, structs)?
            }
            Next::Done(value) => match open.last_mut() {
                None => return Ok(value),
                Some(level) => {
                    level.accept(value);
                    next_step(open, structs)?
                }
            },
        };
    }
}

fn begin(value: Value) -> Result<Next, Error> {
    match value {
        Value::Atom(_) | Value::Tuple(_) => Err(Error::expected("JSON data")),
        Value::List(items) => Ok(Next::Open(OpenLevel::items(items, false))),
        Value::Map(map) => match map.iter().find(|(key, _)| is_tag_key(key)) {
            None => Ok(Next::Open(OpenLevel::Object {
                read: Vec::with_capacity(map.len()),
                rest: map.into_entries().into_iter(),
                key: Value::Nil,
            })),
            Some((tag, _)) => {
                let tag = tag.clone();
                let read = match <[(Value, Value); 1]>::try_from(map.into_entries()) {
                    Ok([(_, of)]) => read_tagged(&tag, of),
                    Err(_) => Err(Error::expected("a tag alone in its object")),
                };
                read.map_err(|error| error.within(tag))
            }
        },
        scalar => Ok(Next::Done(scalar)),
    }
}

/// Returns the next element of the innermost level, or that level itself when it has no more.
fn next_step(open: &mut Vec<OpenLevel>, structs: Structs) -> Result<Next, Error> {
    match open.last_mut().and_then(OpenLevel::next) {
        Some(next) => next.map(Next::Read),
        None => {
            let ended = open.pop().map(|level| level.close(structs));
            Ok(Next::Done(ended.unwrap_or(Value::Nil)))
        }
    }
}

fn read_pair(value: Value) -> Option<[Value; 2]> {
    match value {
        Value::List(items) => items.into_vec().try_into().ok(),
        _ => None,
    }
}

impl OpenLevel {
    fn items(items: Box<[Value]>, is_tuple: bool) -> Self {
        Self::List {
            read: Vec::with_capacity(items.len()),
            rest: items.into_vec().into_iter(),
            is_tuple,
        }
    }

    /// Returns the next element; `None` when there are no more.
    fn next(&mut self) -> Option<Result<Value, Error>> {
        Some(match self {
            Self::List { rest, .. } => Ok(rest.next()?),
            Self::Object { rest, key, .. } => match rest.next()? {
                (name @ Value::Binary(_), of) => {
                    *key = name;
                    Ok(of)
                }
                _ => Err(Error::expected("string keys")),
            },
            Self::Pairs { rest, value, .. } => match value.take() {
                Some(value) => Ok(value),
                None => match read_pair(rest.next()?) {
                    Some([key, of]) => {
                        *value = Some(of);
                        Ok(key)
                    }
                    None => Err(Error::expected("lists of a key and a value")),
                },
            },
        })
    }

    fn accept(&mut self, value: Value) {
        match self {
            Self::List { read, .. } => read.push(value),
            Self::Object { read, key, .. } => {
                let key = std::mem::replace(key, Value::Nil);
                read.push((unescape_key(key), value));
            }
            Self::Pairs { read, key, .. } => match key.take() {
                Some(key) => read.push((key, value)),
                None => *key = Some(value),
            },
        }
    }

    fn close(self, structs: Structs) -> Value {
        match self {
            Self::List {
                read,
                is_tuple: true,
                ..
            } => Value::Tuple(read.into_boxed_slice()),
            Self::List { read, .. } => Value::List(read.into_boxed_slice()),
            Self::Object { read, .. } | Self::Pairs { read, .. } => {
                Value::Map(structs.admit(Map::new(read)))
            }
        }
    }

    /// Returns an error as the level around this one has it.
    fn locate(&self, error: Error) -> Error {
        match self {
            Self::List { read, is_tuple, .. } => {
                let error = error.within(index(read.len()));
                match is_tuple {
                    true => error.within(Value::text(TUPLE)),
                    false => error,
                }
            }
            Self::Object {
                key: Value::Nil, ..
            } => error,
            Self::Object { key, .. } => error.within(key.clone()),
            Self::Pairs { read, key, .. } => error
                .within(index(usize::from(key.is_some())))
                .within(index(read.len()))
                .within(Value::text(MAP)),
        }
    }
}

/// Returns true if a key is a tag: a text that looks like one has one more `$` as a prefix.
pub fn is_tag(key: &[u8]) -> bool {
    match key {
        [b'$', b':' | b'$', ..] => false,
        [b'$', ..] => true,
        _ => false,
    }
}

fn is_tag_key(key: &Value) -> bool {
    matches!(key, Value::Binary(bytes) if is_tag(bytes))
}

/// Returns the key of a map for the key of an object.
pub fn unescape(key: &str) -> Value {
    match key.split_at_checked(1) {
        Some((":", name)) => Value::atom(name),
        Some(("$", text)) => Value::text(text),
        _ => Value::text(key),
    }
}

fn unescape_key(key: Value) -> Value {
    match &key {
        Value::Binary(bytes) => match &**bytes {
            [b':', ..] => key.as_str().map(unescape).unwrap_or(key),
            [b'$', text @ ..] => Value::Binary(text.into()),
            _ => key,
        },
        _ => key,
    }
}

fn read_tagged(tag: &Value, of: Value) -> Result<Next, Error> {
    let (read, expected) = match (tag.as_str(), of) {
        (Some(TUPLE), Value::List(items)) if items.len() <= MAX_TUPLE => {
            return Ok(Next::Open(OpenLevel::items(items, true)))
        }
        (Some(TUPLE), _) => (None, "a list of at most 16777215 elements"),
        (Some(MAP), Value::List(pairs)) => {
            return Ok(Next::Open(OpenLevel::Pairs {
                read: Vec::with_capacity(pairs.len()),
                rest: pairs.into_vec().into_iter(),
                key: None,
                value: None,
            }))
        }
        (Some(MAP), _) => (None, "a list of pairs"),
        (Some(ATOM), name) => (
            untag_text(name)?.as_str().map(Value::atom),
            "the name of an atom",
        ),
        (Some(INT), text) => (
            text.as_str().and_then(read_int),
            "an integer as text, in hexadecimal beyond 4300 digits",
        ),
        (Some(FLOAT), text) => (text.as_str().and_then(read_float), "a finite float as text"),
        (Some(BYTES), text) => (read_bytes(&text), "base64 text"),
        _ => (
            None,
            "one of the tags $atom, $tuple, $int, $float, $bytes, $map",
        ),
    };
    read.map(Next::Done)
        .ok_or_else(|| Error::expected(expected))
}

/// Reads text or tagged bytes; any other value stays as it is.
pub fn untag_text(value: Value) -> Result<Value, Error> {
    let Value::Map(map) = &value else {
        return Ok(value);
    };
    match (map.len(), map.get(&Value::text(BYTES))) {
        (1, Some(of)) => match read_tagged(&Value::text(BYTES), of.clone()) {
            Ok(Next::Done(bytes)) => Ok(bytes),
            Ok(_) => Ok(value),
            Err(error) => Err(error.within(Value::text(BYTES))),
        },
        _ => Ok(value),
    }
}

/// Reads an atom or a text in the form of a key.
pub fn untag_key(value: Value) -> Result<Value, Error> {
    let key = untag_text(value)?;
    if is_tag_key(&key) {
        return Err(Error::expected(
            "text, or a colon followed by the name of an atom",
        ));
    }
    Ok(unescape_key(key))
}

/// Checks unknown fields: they are kept, so they must be JSON data.
///
/// # Errors
/// [`Error::Invalid`], [`Error::TooDeep`] beyond so many levels.
pub fn check_unknown(fields: &Map, levels: usize) -> Result<(), Error> {
    let levels = below(levels)?;
    for (key, value) in fields.iter() {
        if key.as_str().is_none() {
            return Err(Error::expected("string keys"));
        }
        check_data(value, levels).map_err(|error| error.within(key.clone()))?;
    }
    Ok(())
}

fn check_data(value: &Value, levels: usize) -> Result<(), Error> {
    match value {
        Value::Nil | Value::Bool(_) | Value::Int(_) | Value::BigInt(_) | Value::Float(_) => Ok(()),
        Value::Binary(_) if value.as_str().is_some() => Ok(()),
        Value::Binary(_) => Err(Error::expected("UTF-8 text")),
        Value::Atom(_) | Value::Tuple(_) => Err(Error::expected("JSON data")),
        Value::List(items) => {
            let levels = below(levels)?;
            each(items, |item| check_data(item, levels)).map(|_| ())
        }
        Value::Map(map) => check_unknown(map, levels),
    }
}

fn below(levels: usize) -> Result<usize, Error> {
    levels
        .checked_sub(1)
        .ok_or(Error::TooDeep { limit: MAX_DEPTH })
}

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
        untag(&mut value, LEVELS, structs)?;
        Ok(value)
    }

    fn has_no_tag(&self) -> bool {
        match self {
            Self::Text(_) | Self::Taken => true,
            Self::List(items) => items.iter().all(Self::has_no_tag),
            Self::Object(entries) => entries
                .iter()
                .all(|(key, node)| !is_tag(key.as_bytes()) && node.has_no_tag()),
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
                let entry = |(key, node): Named<'_>| (unescape(&key), node.into_untagged(structs));
                Value::Map(structs.admit(Map::new(entries.map(entry).collect())))
            }
            other => other.into_value(),
        }
    }
}

/// Reads a map from the text that `write_terms` wrote.
///
/// # Errors
/// [`Error::Invalid`], [`Error::TooDeep`].
///
/// # Complexity
/// O(n log n) for the keys of a map, else O(n).
pub fn read_terms(text: &[u8], structs: Structs) -> Result<Map, Error> {
    let mut value = json::read(text, NESTING)?;
    untag(&mut value, LEVELS, structs)?;
    match value {
        Value::Map(terms) => Ok(terms),
        _ => Err(Error::expected("a map")),
    }
}
