//! Values as JSON: most as one expects, what JSON lacks as an object with one key, its tag.
//!
//! | value | JSON |
//! |---|---|
//! | atom (but `nil`, `true`, `false`) | `{"$atom": "name"}` |
//! | tuple | `{"$tuple": [...]}` |
//! | integer beyond 64 bits | `{"$int": "123..."}`, in hexadecimal (`"0x..."`) beyond 4,300 digits |
//! | float that stores of JSON would change | `{"$float": "1e22"}` |
//! | bytes that are not text, or contain NUL | `{"$bytes": "<base64>"}` |
//! | map with keys that are neither text nor atoms | `{"$map": [[key, value], ...]}` |
//!
//! An atom key is `":name"`. A text key that begins with `:` or `$` gets one more `$` as a prefix: so
//! a key that begins with `$` and goes on with anything else is a tag, and nothing else is.

use std::borrow::Cow;

use base64::engine::general_purpose::STANDARD as BASE64;
use base64::Engine as _;
use num_bigint::BigInt;

use crate::error::{index, Error};
use crate::storage::trust::Structs;
use crate::value::builder::Json;
use crate::value::escape;
use crate::value::json::MAX_DIGITS;
use crate::value::{Map, Value, MAX_DEPTH};

/// Elements that a tuple may have: a VM that is made to build a larger one has a broken term.
const MAX_TUPLE: usize = (1 << 24) - 1;

const ATOM: &str = "$atom";
const TUPLE: &str = "$tuple";
const INT: &str = "$int";
const FLOAT: &str = "$float";
const BYTES: &str = "$bytes";
const MAP: &str = "$map";

/// An integer of so many bits has at most [`MAX_DIGITS`] digits.
const DECIMAL_BITS: u64 = 14_284;

/// A name that may be an atom's or a text.
pub enum Key<'a> {
    Atom(&'a str),
    Text(&'a str),
}

impl Key<'_> {
    /// The key of an object.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Atom(name) => Cow::Owned(format!(":{name}")),
            Self::Text(text) if text.starts_with([':', '$']) => Cow::Owned(format!("${text}")),
            Self::Text(text) => Cow::Borrowed(text),
        }
    }
}

/// The text of bytes that JSON and every store of JSON can hold; PostgreSQL's JSONB refuses NUL.
fn plain(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes)
        .ok()
        .filter(|text| memchr::memchr(0, text.as_bytes()).is_none())
}

/// A key that can be the key of an object.
fn plain_key(key: &Value) -> Option<Key<'_>> {
    match key {
        Value::Binary(bytes) => plain(bytes).map(Key::Text),
        other => {
            let name = other.as_name()?;
            plain(name.as_bytes()).map(Key::Atom)
        }
    }
}

/// Writes a tag with a string.
fn tagged(json: &mut Json, tag: &str, text: &str) {
    json.object(|json| json.key(tag).text(text));
}

/// Writes bytes that are mostly text.
pub fn text(json: &mut Json, bytes: &[u8]) {
    if escape::is_plain(bytes) {
        return json.plain(bytes);
    }
    match plain(bytes) {
        Some(text) => json.text(text),
        None => tagged(json, BYTES, &BASE64.encode(bytes)),
    }
}

/// A list or map whose elements are being written.
enum Writing<'a> {
    List(std::slice::Iter<'a, Value>),
    Tuple(std::slice::Iter<'a, Value>),
    Object(std::slice::Iter<'a, (Value, Value)>),
    /// The pairs, and what is next of the one that is open.
    Pairs(std::slice::Iter<'a, (Value, Value)>, Pair<'a>),
}

#[derive(Clone, Copy)]
enum Pair<'a> {
    None,
    Value(&'a Value),
    End,
}

/// Writes a value, with a stack of its own: schedulers' stacks are small.
pub fn value(json: &mut Json, of: &Value) {
    let mut open = Vec::new();
    let mut next = of;
    loop {
        match next {
            Value::List(items) => {
                json.raw("[");
                open.push(Writing::List(items.iter()));
            }
            Value::Tuple(items) => {
                json.raw("{").key(TUPLE).raw("[");
                open.push(Writing::Tuple(items.iter()));
            }
            Value::Map(map) if is_object(map) => {
                json.raw("{");
                open.push(Writing::Object(map.iter()));
            }
            Value::Map(map) => {
                json.raw("{").key(MAP).raw("[");
                open.push(Writing::Pairs(map.iter(), Pair::None));
            }
            other => scalar(json, other),
        }
        next = loop {
            let Some(level) = open.last_mut() else { return };
            match advance(json, level) {
                Some(next) => break next,
                None => open.pop(),
            };
        };
    }
}

/// The next element of what is being written; `None` at its end.
fn advance<'a>(json: &mut Json, level: &mut Writing<'a>) -> Option<&'a Value> {
    let next = match level {
        Writing::List(rest) | Writing::Tuple(rest) => rest.next().inspect(|_| json.separate()),
        Writing::Object(rest) => rest.next().map(|(key, of)| {
            let key = plain_key(key);
            json.key(key.as_ref().map_or("".into(), Key::text).as_ref());
            of
        }),
        Writing::Pairs(rest, pair) => match *pair {
            Pair::Value(of) => {
                *pair = Pair::End;
                json.raw(",");
                Some(of)
            }
            Pair::None | Pair::End => {
                if matches!(pair, Pair::End) {
                    json.raw("]");
                }
                rest.next().map(|(key, of)| {
                    *pair = Pair::Value(of);
                    json.separate();
                    json.raw("[");
                    key
                })
            }
        },
    };
    if next.is_none() {
        json.raw(match level {
            Writing::List(_) => "]",
            Writing::Tuple(_) | Writing::Pairs(..) => "]}",
            Writing::Object(_) => "}",
        });
    }
    next
}

fn scalar(json: &mut Json, of: &Value) {
    match of {
        Value::Nil => json.value(&()),
        Value::Bool(flag) => json.value(flag),
        Value::Int(integer) => json.value(integer),
        Value::BigInt(integer) => tagged(json, INT, &int_text(integer)),
        Value::Float(float) if is_safe(*float) => json.value(float),
        Value::Float(float) => tagged(json, FLOAT, &format!("{float:?}")),
        Value::Atom(name) => json.object(|json| text(json.key(ATOM), name.as_bytes())),
        Value::Binary(bytes) => text(json, bytes),
        Value::List(_) | Value::Tuple(_) | Value::Map(_) => {}
    }
}

fn is_object(map: &impl HasEntries) -> bool {
    map.entries().all(|(key, _)| plain_key(key).is_some())
}

/// What has the entries of a map.
pub trait HasEntries {
    fn entries(&self) -> impl Iterator<Item = (&Value, &Value)>;
}

impl HasEntries for Map {
    fn entries(&self) -> impl Iterator<Item = (&Value, &Value)> {
        self.iter().map(|(key, value)| (key, value))
    }
}

impl HasEntries for crate::log::metadata::Metadata {
    fn entries(&self) -> impl Iterator<Item = (&Value, &Value)> {
        self.iter()
    }
}

/// Writes a map.
pub fn entries(json: &mut Json, map: &impl HasEntries) {
    if is_object(map) {
        json.object(|json| {
            for (key, of) in map.entries() {
                let key = plain_key(key);
                value(
                    json.key(key.as_ref().map_or("".into(), Key::text).as_ref()),
                    of,
                );
            }
        });
    } else {
        json.object(|json| {
            json.key(MAP).list(map.entries(), |json, (key, of)| {
                json.list([key, of], value);
            });
        });
    }
}

/// Whether a float stays what it is in every store of JSON. JSON libraries write a round one as
/// `1.0e3`, which JSONB makes 1000, an integer; they have no negative zero.
fn is_safe(float: f64) -> bool {
    float.fract() != 0.0 || (float.abs() < 1000.0 && !(float == 0.0 && float.is_sign_negative()))
}

fn int_text(integer: &BigInt) -> String {
    if integer.bits() <= DECIMAL_BITS {
        return integer.to_string();
    }
    let sign = match integer.sign() {
        num_bigint::Sign::Minus => "-",
        _ => "",
    };
    format!("{sign}0x{}", integer.magnitude().to_str_radix(16))
}

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

fn refuse(expected: &'static str) -> Error {
    Error::invalid(Vec::new(), expected)
}

/// The value that a part of a document stands for, in its place, with the structs that it may have.
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
enum Reading {
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

/// What to do next.
enum Next {
    Read(Value),
    Done(Value),
    Open(Reading),
}

/// With a stack of its own: schedulers' stacks are small, and overflowing one ends the VM.
fn walk(
    document: Value,
    levels: usize,
    structs: Structs,
    open: &mut Vec<Reading>,
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
        Value::Atom(_) | Value::Tuple(_) => Err(refuse("JSON data")),
        Value::List(items) => Ok(Next::Open(Reading::items(items, false))),
        Value::Map(map) => match map.iter().find(|(key, _)| is_tag_key(key)) {
            None => Ok(Next::Open(Reading::Object {
                read: Vec::with_capacity(map.len()),
                rest: map.into_entries().into_iter(),
                key: Value::Nil,
            })),
            Some((tag, _)) => {
                let tag = tag.clone();
                let read = match <[(Value, Value); 1]>::try_from(map.into_entries()) {
                    Ok([(_, of)]) => read_tagged(&tag, of),
                    Err(_) => Err(refuse("a tag alone in its object")),
                };
                read.map_err(|error| error.within(tag))
            }
        },
        scalar => Ok(Next::Done(scalar)),
    }
}

/// The next element of the innermost level, or that level itself when it has no more.
fn next_step(open: &mut Vec<Reading>, structs: Structs) -> Result<Next, Error> {
    let next = match open.last_mut() {
        None => None,
        Some(Reading::List { rest, .. }) => rest.next(),
        Some(Reading::Object { rest, key, .. }) => match rest.next() {
            None => None,
            Some((name @ Value::Binary(_), of)) => {
                *key = name;
                Some(of)
            }
            Some(_) => return Err(refuse("string keys")),
        },
        Some(Reading::Pairs { rest, value, .. }) => match value.take() {
            Some(value) => Some(value),
            None => match rest.next() {
                None => None,
                Some(pair) => {
                    let pair = match pair {
                        Value::List(items) => <[Value; 2]>::try_from(items.into_vec()).ok(),
                        _ => None,
                    };
                    let [key, of] = pair.ok_or_else(|| refuse("lists of a key and a value"))?;
                    *value = Some(of);
                    Some(key)
                }
            },
        },
    };
    if let Some(next) = next {
        return Ok(Next::Read(next));
    }
    let ended = open.pop();
    Ok(Next::Done(
        ended.map_or(Value::Nil, |level| level.close(structs)),
    ))
}

impl Reading {
    fn items(items: Box<[Value]>, is_tuple: bool) -> Self {
        Self::List {
            read: Vec::with_capacity(items.len()),
            rest: items.into_vec().into_iter(),
            is_tuple,
        }
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

    /// An error, seen from around this level.
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

/// Whether a key is a tag: a text that looks like one has one more `$` as a prefix.
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

/// What the key of an object stands for.
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
    let done = match (tag.as_str(), of) {
        (Some(TUPLE), Value::List(items)) if items.len() <= MAX_TUPLE => {
            return Ok(Next::Open(Reading::items(items, true)))
        }
        (Some(TUPLE), _) => Err(refuse("a list of at most 16777215 elements")),
        (Some(MAP), Value::List(pairs)) => {
            return Ok(Next::Open(Reading::Pairs {
                read: Vec::with_capacity(pairs.len()),
                rest: pairs.into_vec().into_iter(),
                key: None,
                value: None,
            }))
        }
        (Some(MAP), _) => Err(refuse("a list of pairs")),
        (Some(ATOM), name) => untag_text(name)?
            .as_str()
            .map(Value::atom)
            .ok_or_else(|| refuse("the name of an atom")),
        (Some(INT), text) => text
            .as_str()
            .and_then(read_int)
            .ok_or_else(|| refuse("an integer as text, in hexadecimal beyond 4300 digits")),
        (Some(FLOAT), text) => text
            .as_str()
            .and_then(read_float)
            .ok_or_else(|| refuse("a finite float as text")),
        (Some(BYTES), Value::Binary(text)) => BASE64
            .decode(&text)
            .ok()
            .map(|bytes| Value::Binary(bytes.into_boxed_slice()))
            .ok_or_else(|| refuse("base64 text")),
        (Some(BYTES), _) => Err(refuse("base64 text")),
        _ => Err(refuse(
            "one of the tags $atom, $tuple, $int, $float, $bytes, $map",
        )),
    };
    done.map(Next::Done)
}

/// Text or tagged bytes; any other value stays as it is.
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

/// An atom or a text, as it stands for itself in the place of a key.
pub fn untag_key(value: Value) -> Result<Value, Error> {
    let key = untag_text(value)?;
    if is_tag_key(&key) {
        return Err(refuse("text, or a colon followed by the name of an atom"));
    }
    Ok(unescape_key(key))
}

fn below(levels: usize) -> Result<usize, Error> {
    levels
        .checked_sub(1)
        .ok_or(Error::TooDeep { limit: MAX_DEPTH })
}

/// Checks fields that nobody knows: they are kept, and they must be what JSON can hold.
///
/// # Errors
/// [`Error::Invalid`], [`Error::TooDeep`] beyond so many levels.
pub fn check_unknown(value: &Value, levels: usize) -> Result<(), Error> {
    match value {
        Value::Nil | Value::Bool(_) | Value::Int(_) | Value::BigInt(_) | Value::Float(_) => Ok(()),
        Value::Binary(_) if value.as_str().is_some() => Ok(()),
        Value::Binary(_) => Err(refuse("UTF-8 text")),
        Value::Atom(_) | Value::Tuple(_) => Err(refuse("JSON data")),
        Value::List(items) => {
            let levels = below(levels)?;
            for (position, item) in items.iter().enumerate() {
                check_unknown(item, levels).map_err(|error| error.within(index(position)))?;
            }
            Ok(())
        }
        Value::Map(map) => {
            let levels = below(levels)?;
            for (key, value) in map.iter() {
                if key.as_str().is_none() || !matches!(key, Value::Binary(_)) {
                    return Err(refuse("string keys"));
                }
                check_unknown(value, levels).map_err(|error| error.within(key.clone()))?;
            }
            Ok(())
        }
    }
}
