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
        _ => Err(Error::expected("a map")),
    }
}
