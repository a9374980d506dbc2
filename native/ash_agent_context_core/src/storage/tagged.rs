//! Values as JSON: most as one expects, and those that JSON lacks as an object with one key, its tag. `untagged.rs` reads
//! them.
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

use crate::value::builder::{Json, JsonObject};
use crate::value::escape;
use crate::value::json::AsJson;
use crate::value::{Map, Value};

pub(super) const ATOM: &str = "$atom";
pub(super) const TUPLE: &str = "$tuple";
pub(super) const INT: &str = "$int";
pub(super) const FLOAT: &str = "$float";
pub(super) const BYTES: &str = "$bytes";
pub(super) const MAP: &str = "$map";

/// An integer of so many bits has at most [`crate::value::json::MAX_DIGITS`] digits.
const DECIMAL_BITS: u64 = 14_284;

/// A name that may be an atom's or a text.
pub enum NameKey<'a> {
    Atom(&'a str),
    Text(&'a str),
}

impl<'a> NameKey<'a> {
    /// Returns the key of an object.
    pub fn text(self) -> Cow<'a, str> {
        match self {
            Self::Atom(name) => Cow::Owned(format!(":{name}")),
            Self::Text(text) if text.starts_with([':', '$']) => Cow::Owned(format!("${text}")),
            Self::Text(text) => Cow::Borrowed(text),
        }
    }
}

/// Returns the text of bytes that JSON and every store of JSON can hold; PostgreSQL's JSONB refuses NUL.
fn plain(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes)
        .ok()
        .filter(|text| memchr::memchr(0, text.as_bytes()).is_none())
}

/// Returns the name for a key that an object can have.
fn plain_key(key: &Value) -> Option<NameKey<'_>> {
    match key {
        Value::Binary(bytes) => plain(bytes).map(NameKey::Text),
        other => {
            let name = other.as_name()?;
            plain(name.as_bytes()).map(NameKey::Atom)
        }
    }
}

fn object_key(key: &Value) -> Cow<'_, str> {
    plain_key(key).map_or("".into(), NameKey::text)
}

/// Writes a tag with a string.
fn write_tagged(json: &mut Json, tag: &str, text: &str) {
    json.object(|json| json.key(tag).text(text));
}

/// Writes bytes that are mostly text.
pub fn text(json: &mut Json, bytes: &[u8]) {
    if escape::is_plain(bytes) {
        return json.plain(bytes);
    }
    match plain(bytes) {
        Some(text) => json.text(text),
        None => write_tagged(json, BYTES, &BASE64.encode(bytes)),
    }
}

/// A list or map whose elements are being written.
enum TaggedLevel<'a> {
    /// The elements of a list or a tuple, and the end of its text.
    Items(std::slice::Iter<'a, Value>, &'static str),
    Object(std::slice::Iter<'a, (Value, Value)>),
    /// The pairs of a map, and the state of the open one.
    Pairs(std::slice::Iter<'a, (Value, Value)>, Pair<'a>),
}

#[derive(Clone, Copy)]
enum Pair<'a> {
    None,
    Value(&'a Value),
    End,
}

/// Writes a value.
pub fn value(json: &mut Json, of: &Value) {
    write(json, of, true);
}

/// Writes JSON data as it is, however deep: a document has more levels than the value that it stands for.
pub fn data(json: &mut Json, of: &Value) {
    write(json, of, false);
}

/// Writes a value, with tags or without, and with a stack of its own: schedulers' stacks are small.
fn write(json: &mut Json, of: &Value, tags: bool) {
    let mut open = Vec::new();
    let mut next = of;
    loop {
        match next {
            Value::List(items) => {
                json.raw("[");
                open.push(TaggedLevel::Items(items.iter(), "]"));
            }
            Value::Tuple(items) => {
                json.raw("{").key(TUPLE).raw("[");
                open.push(TaggedLevel::Items(items.iter(), "]}"));
            }
            Value::Map(map) if !tags || is_object(map) => {
                json.raw("{");
                open.push(TaggedLevel::Object(map.iter()));
            }
            Value::Map(map) => {
                json.raw("{").key(MAP).raw("[");
                open.push(TaggedLevel::Pairs(map.iter(), Pair::None));
            }
            other if tags => scalar(json, other),
            other => json.value(&AsJson(other)),
        }
        next = loop {
            let Some(level) = open.last_mut() else { return };
            match advance(json, level, tags) {
                Some(next) => break next,
                None => open.pop(),
            };
        };
    }
}

/// Returns the next element of the open level; `None` at its end.
fn advance<'a>(json: &mut Json, level: &mut TaggedLevel<'a>, tags: bool) -> Option<&'a Value> {
    let next = match level {
        TaggedLevel::Items(rest, _) => rest.next().inspect(|_| json.separate()),
        TaggedLevel::Object(rest) => rest.next().map(|(key, of)| {
            if tags {
                json.key(&object_key(key));
            } else {
                json.separate();
                json.value(&AsJson(key));
                json.raw(":");
            }
            of
        }),
        TaggedLevel::Pairs(rest, pair) => match *pair {
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
            TaggedLevel::Items(_, end) => end,
            TaggedLevel::Pairs(..) => "]}",
            TaggedLevel::Object(_) => "}",
        });
    }
    next
}

fn scalar(json: &mut Json, of: &Value) {
    match of {
        Value::Nil => json.value(&()),
        Value::Bool(flag) => json.value(flag),
        Value::Int(integer) => json.value(integer),
        Value::BigInt(integer) => write_tagged(json, INT, &int_text(integer)),
        Value::Float(float) if is_safe(*float) => json.value(float),
        Value::Float(float) => write_tagged(json, FLOAT, &format!("{float:?}")),
        Value::Atom(name) => json.object(|json| text(json.key(ATOM), name.as_bytes())),
        Value::Binary(bytes) => text(json, bytes),
        Value::List(_) | Value::Tuple(_) | Value::Map(_) => {}
    }
}

fn is_object(map: &impl HasEntries) -> bool {
    map.entries().all(|(key, _)| plain_key(key).is_some())
}

/// A map, by its entries.
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
    json.object(|json| fields(json, map));
}

/// Writes the entries of a map into an object.
pub fn fields(json: &mut JsonObject<'_>, map: &impl HasEntries) {
    if is_object(map) {
        for (key, of) in map.entries() {
            value(json.key(&object_key(key)), of);
        }
    } else {
        json.key(MAP).list(map.entries(), |json, (key, of)| {
            json.list([key, of], value);
        });
    }
}

/// Returns true if a float stays the same in every store of JSON. JSON libraries write a round one as `1.0e3`, which JSONB
/// makes 1000, an integer; and they have no negative zero.
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

/// Writes a map as JSON text.
///
/// # Complexity
/// O(n)
#[must_use]
pub fn write_terms(terms: &Map) -> Vec<u8> {
    let mut json = Json::default();
    entries(&mut json, terms);
    json.0
}
