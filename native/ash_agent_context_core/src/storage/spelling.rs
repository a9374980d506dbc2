//! The text of a call's arguments without a copy of them: stored are the order of its keys and whether it has spaces, for
//! texts that a usual writer makes of the arguments. JSON stores may change the order of an object, but of no list.

use crate::value::builder::Json;
use crate::value::json::AsJson;
use crate::value::{Map, Value};

/// Bytes of a text from which its spelling is stored: less would save nothing, and versions that do not know it have the text.
const LONG: usize = 64;

/// How a text writes its value.
pub(super) struct Spelling {
    /// The keys of its objects as they come; none if each object has the order of our map.
    pub keys: Vec<Box<str>>,
    /// A space stands behind each comma and colon.
    pub spaced: bool,
}

enum Level<'a> {
    Items(std::slice::Iter<'a, Value>),
    Object(&'a Map, std::slice::Iter<'a, (Value, Value)>),
}

impl Spelling {
    /// Returns the spelling with which [`Spelling::write`] makes this text of its value.
    pub fn of(text: &str, value: &Value) -> Option<Self> {
        if text.len() < LONG {
            return None;
        }
        let (keys, spaced) = keys(text);
        let by_map = Self {
            keys: Vec::new(),
            spaced,
        };
        if by_map.makes(text, value) {
            return Some(by_map);
        }
        let keys = keys.into_iter().map(Box::from).collect();
        let given = Self { keys, spaced };
        given.makes(text, value).then_some(given)
    }

    fn makes(&self, text: &str, value: &Value) -> bool {
        self.write(value)
            .is_some_and(|made| *made == *text.as_bytes())
    }

    /// Returns the text. None means that the value has other keys.
    pub fn write(&self, value: &Value) -> Option<Box<[u8]>> {
        let (comma, colon) = if self.spaced {
            (", ", ": ")
        } else {
            (",", ":")
        };
        let mut keys = self.keys.iter();
        let mut json = Json::default();
        let mut open = Vec::new();
        let mut next = value;
        loop {
            match next {
                Value::Map(map) => {
                    json.raw("{");
                    open.push(Level::Object(map, map.iter()));
                }
                Value::List(items) => {
                    json.raw("[");
                    open.push(Level::Items(items.iter()));
                }
                other => json.value(&AsJson(other)),
            }
            next = loop {
                let (key, found, end) = match open.last_mut() {
                    None => return keys.next().is_none().then(|| json.0.into()),
                    Some(Level::Items(items)) => (None, items.next(), "]"),
                    Some(Level::Object(map, entries)) => match entries.next() {
                        None => (None, None, "}"),
                        Some((key, of)) if self.keys.is_empty() => {
                            (Some(key.as_str()?), Some(of), "}")
                        }
                        Some(_) => {
                            let key = keys.next()?;
                            (Some(&**key), Some(map.get(&Value::text(key))?), "}")
                        }
                    },
                };
                let Some(found) = found else {
                    json.raw(end);
                    open.pop();
                    continue;
                };
                if !matches!(json.0.last(), Some(b'[' | b'{')) {
                    json.raw(comma);
                }
                if let Some(key) = key {
                    json.text(key);
                    json.raw(colon);
                }
                break found;
            };
        }
    }
}

/// Returns the keys of a JSON text, which are the strings before a colon, and whether a space comes behind one of these.
fn keys(text: &str) -> (Vec<&str>, bool) {
    let mut keys = Vec::new();
    let mut spaced = false;
    let mut rest = text;
    while let Some((_, string)) = rest.split_once('"') {
        let mut escaped = false;
        let end = string.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let (string, after) = string.split_at(end.unwrap_or(string.len()));
        rest = after.strip_prefix('"').unwrap_or_default();
        if let Some(after) = rest.strip_prefix(':') {
            keys.push(string);
            spaced |= after.starts_with(' ');
        }
    }
    (keys, spaced)
}
