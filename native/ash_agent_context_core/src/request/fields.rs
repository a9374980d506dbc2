//! The caller's fields of a request, checked and encoded once for all requests that have them.

use std::collections::HashSet;

use crate::error::Error;
use crate::value::builder::Json;
use crate::value::json::AsJson;
use crate::value::{numbers, structs, Map, Value};

/// The fields of a body beside the messages.
#[derive(Debug, Default)]
pub struct Fields(Vec<Field>);

/// One of them with its JSON.
#[derive(Debug)]
pub(super) struct Field {
    key: Box<str>,
    json: Vec<u8>,
    /// The object that it is, which an id may have to go into.
    object: Option<Map>,
}

impl Fields {
    /// Encodes fields. Of two with one name, the first counts.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a ready-made one is not JSON, or when a number is more than a float can hold.
    pub fn new(body: &Map) -> Result<Self, Error> {
        let mut seen = HashSet::new();
        let named = body.iter().filter_map(|(key, value)| {
            let key = key.as_name().filter(|key| seen.insert(*key))?;
            Some(Field::new(key, value))
        });
        named.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the bytes that a request has of them.
    #[must_use]
    pub fn count_bytes(&self) -> usize {
        self.0
            .iter()
            .map(|field| field.key.len() + field.json.len())
            .sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Field> {
        self.0.iter()
    }
}

impl Field {
    fn new(key: &str, value: &Value) -> Result<Self, Error> {
        let mut json = Json::default();
        match fragment(value).map(structs::ready) {
            None => json.value(&AsJson(value)),
            Some(Some(ready)) => drop(json.raw(ready.get())),
            // The fragment could have fields of its own.
            Some(None) => {
                let path = vec![Value::text(key), Value::text("text")];
                return Err(Error::invalid(path, "the text of one JSON value"));
            }
        }
        if !numbers::find(&json.0).is_empty() {
            let path = numbers::find_path(value, vec![Value::text(key)]);
            return Err(Error::invalid(path, "a number that a float can hold"));
        }
        let object = value
            .as_map()
            .filter(|map| structs::fragment(map).is_none());
        Ok(Self {
            key: key.into(),
            json: json.into_bytes(),
            object: object.cloned(),
        })
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// Returns a container that the caller describes without its id, with the id: each request has to name the container's skills.
    pub fn with_id(&self, id: &str) -> Option<Value> {
        let map = self.object.as_ref()?;
        if map.get_named("id").is_some_and(|id| *id != Value::Nil) {
            return None;
        }
        let others = map.iter().filter(|(key, _)| key.as_name() != Some("id"));
        let mut entries: Vec<_> = others.cloned().collect();
        if entries.is_empty() {
            return Some(Value::text(id));
        }
        entries.push((Value::text("id"), Value::text(id)));
        Some(Value::Map(Map::new(entries)))
    }
}

/// Returns the text of a field that is ready-made.
fn fragment(field: &Value) -> Option<&[u8]> {
    match field {
        Value::Map(map) => structs::fragment(map),
        _ => None,
    }
}
