//! Terms as text, as the stored form of a conversation has them.

use crate::error::Error;
use crate::storage::limits::{LEVELS, NESTING};
use crate::storage::tagged;
use crate::storage::trust::Structs;
use crate::storage::untagged::untag;
use crate::value::builder::Json;
use crate::value::{json, Map, Value};

/// Writes a map as JSON text.
///
/// # Complexity
/// O(n)
#[must_use]
pub fn write_terms(terms: &Map) -> Vec<u8> {
    let mut json = Json::default();
    tagged::entries(&mut json, terms);
    json.0
}

/// Reads a map from the text that [`write_terms`] wrote.
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
        _ => Err(Error::invalid(Vec::new(), "a map")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn terms(value: Value) -> Map {
        Map::new(vec![(Value::atom("a"), value)])
    }

    #[test]
    fn what_json_lacks_is_read_again() {
        let pair = Value::Tuple(Box::new([Value::integer(1.into()), Value::atom("ok")]));
        let odd = Map::new(vec![(pair.clone(), Value::Float(1e22))]);
        for value in [
            pair,
            Value::Map(odd),
            Value::Binary(Box::new([255])),
            Value::Nil,
        ] {
            let terms = terms(value);
            assert_eq!(read_terms(&write_terms(&terms), Structs::Keep), Ok(terms));
        }
        assert_eq!(write_terms(&Map::default()), b"{}");
    }

    #[test]
    fn the_deepest_is_read_again_and_more_is_refused() {
        let nest = |levels: usize| {
            (0..levels).fold(Value::Nil, |inner, _| Value::List(vec![inner].into()))
        };
        let deepest = terms(nest(LEVELS - 1));
        assert_eq!(
            read_terms(&write_terms(&deepest), Structs::Keep),
            Ok(deepest)
        );
        let text = write_terms(&terms(nest(LEVELS + 1)));
        assert!(matches!(
            read_terms(&text, Structs::Keep),
            Err(Error::TooDeep { .. })
        ));
    }

    #[test]
    fn what_is_not_a_map_is_refused() {
        for text in ["", "[]", "1", r#"{"$atom": "a"}"#, r#"{"$other": 1}"#, "{"] {
            assert!(
                read_terms(text.as_bytes(), Structs::Keep).is_err(),
                "{text}"
            );
        }
    }
}
