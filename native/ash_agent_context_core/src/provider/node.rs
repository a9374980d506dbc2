//! JSON that a provider sends, read in place.

use serde::{Serialize, Serializer};

use crate::fault::Fault;
use crate::value::json::{self, AsJson, ParseError};
use crate::value::letters;
use crate::value::scan::Scan;
use crate::value::steps;
use crate::value::{Map, Value};

pub(crate) use crate::value::node::Node;

/// The most levels of nesting that are read.
pub(crate) const DEPTH: usize = 200;

/// Reads one document.
///
/// # Errors
/// [`Fault::TooDeep`], [`Fault::NotJson`]
///
/// # Complexity
/// O(n)
pub(crate) fn read<T>(
    bytes: &[u8],
    then: impl FnOnce(&Node<'_>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    steps::count(bytes.len());
    if let Some(node) = Scan::whole(bytes) {
        return then(&node);
    }
    // The input is rare or invalid.
    let wrong = match json::read_tree::<Node<'_>>(bytes, DEPTH) {
        Ok((node, _)) => return then(&node),
        Err(ParseError::TooDeep(limit)) => return Err(Fault::TooDeep { limit }),
        Err(ParseError::Number(at)) => ("number out of range".to_owned(), at),
        Err(ParseError::Syntax(error)) => (error.error_type.to_string(), error.index),
    };
    // Servers cut texts within a character: in its bytes, or between its two escapes.
    let repaired = json::replace_halves(&letters::utf8(bytes));
    if repaired.as_bytes() != bytes {
        if let Ok((node, _)) = json::read_tree::<Node<'_>>(repaired.as_bytes(), DEPTH) {
            return then(&node);
        }
    }
    let (problem, byte) = wrong;
    let problem = problem.into();
    Err(Fault::NotJson { problem, byte })
}

/// Returns the value of a key. `null` counts as missing; if a key is there twice, the last counts.
pub(crate) fn get<'n, 'a>(node: &'n Node<'a>, key: &str) -> Option<&'n Node<'a>> {
    let Node::Object(entries) = node else {
        return None;
    };
    let (_, value) = entries.iter().rev().find(|(name, _)| name == key)?;
    (!value.is_nil()).then_some(value)
}

/// Returns the value at the end of a path of keys.
pub(crate) fn dig<'n, 'a>(node: &'n Node<'a>, path: &[&str]) -> Option<&'n Node<'a>> {
    path.iter().try_fold(node, |node, key| get(node, key))
}

pub(crate) fn text<'n>(node: &'n Node<'_>, key: &str) -> Option<&'n str> {
    get(node, key)?.as_str()
}

/// Returns the text under a key, unless it is empty.
pub(crate) fn filled_text<'n>(node: &'n Node<'_>, key: &str) -> Option<&'n str> {
    text(node, key).filter(|text| !text.is_empty())
}

/// Returns the number under a key, unless it is negative.
pub(crate) fn number(node: &Node<'_>, key: &str) -> Option<u64> {
    get(node, key)?.as_count()
}

/// Returns whether `true` stands under a key.
pub(crate) fn is_true(node: &Node<'_>, key: &str) -> bool {
    matches!(get(node, key), Some(Node::Value(Value::Bool(true))))
}

/// Returns the elements of a list under a key, or none if there is no list.
pub(crate) fn list<'n, 'a>(node: &'n Node<'a>, key: &str) -> &'n [Node<'a>] {
    get(node, key).map_or(&[], as_list)
}

pub(crate) fn as_list<'n, 'a>(node: &'n Node<'a>) -> &'n [Node<'a>] {
    match node {
        Node::List(items) => items,
        _ => &[],
    }
}

/// Returns whether a value is anything but an empty one of its kind, or an object of empty ones.
pub(crate) fn says(node: &Node<'_>) -> bool {
    let is_empty = |node: &Node<'_>| match node {
        Node::List(items) => items.is_empty(),
        Node::Object(entries) => entries.is_empty(),
        node => node.is_nil() || node.as_str() == Some(""),
    };
    match node {
        Node::Object(entries) => !entries.iter().all(|(_, value)| is_empty(value)),
        node => !is_empty(node),
    }
}

/// Returns whether a value is an object that is not empty.
pub(crate) fn is_filled_object(node: &Node<'_>) -> bool {
    matches!(node, Node::Object(entries) if !entries.is_empty())
}

/// Returns the value as the conversation keeps it.
///
/// # Errors
/// [`Fault::Unreadable`] for a number that does not fit into a float.
pub(crate) fn to_value(node: &Node<'_>) -> Result<Value, Fault> {
    let value = node.to_value();
    value.ok_or_else(|| Fault::unreadable("a number that does not fit into a float"))
}

/// Returns an object as the conversation keeps it, or an empty map for anything else.
///
/// # Errors
/// As [`to_value`].
pub(crate) fn to_map(node: &Node<'_>) -> Result<Map, Fault> {
    let object = matches!(node, Node::Object(_)).then(|| to_value(node));
    Ok(match object.transpose()? {
        Some(Value::Map(map)) => map,
        _ => Map::default(),
    })
}

/// Returns the value as JSON text without white space, with keys in their order.
pub(crate) fn to_text(node: &Node<'_>) -> String {
    crate::value::json::to_string(&AsText(node))
}

struct AsText<'n, 'a>(&'n Node<'a>);

impl Serialize for AsText<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Node::Text(text) => serializer.serialize_str(&letters::utf8(text)),
            Node::List(items) => serializer.collect_seq(items.iter().map(AsText)),
            Node::Object(entries) => {
                serializer.collect_map(entries.iter().map(|(key, node)| (key, AsText(node))))
            }
            Node::Value(Value::BigInt(number)) => json::serialize_digits(number, serializer),
            Node::Value(value) => AsJson(value).serialize(serializer),
            Node::Taken => serializer.serialize_unit(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{json, read, to_text, to_value, Node, DEPTH};

    /// Most documents are read by our own scanner, and rare forms by jiter.
    #[test]
    fn both_readers_read_the_same() {
        let deep = "[".repeat(70) + &"]".repeat(70);
        for json in [
            r#"{"a":1,"a":[true,false,null,-1,0.5,1e3,-0,"\u00e9\n\"é"],"b":{"c":{}}} "#,
            "123456789012345678901234567890",
            "1e999",
            "[9223372036854775807,9223372036854775808,-9223372036854775808]",
            &deep,
        ] {
            let slow = json::read_tree::<Node<'_>>(json.as_bytes(), DEPTH);
            let (slow, _) = slow.ok().unwrap();
            let fast = read(json.as_bytes(), |node| Ok((to_text(node), to_value(node))));
            assert_eq!(fast, Ok((to_text(&slow), to_value(&slow))), "{json}");
        }
        for json in ["", "01", "[1,]", "{\"a\":1", "tru", "\"\n\"", "1 2", "'a'"] {
            assert!(read(json.as_bytes(), |_| Ok(())).is_err(), "{json}");
        }
    }
}
