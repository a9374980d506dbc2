//! JSON text, written from front to back.

use serde::Serialize;

use crate::value::escape;

#[derive(Default)]
pub(crate) struct Json(pub Vec<u8>);

impl Json {
    /// Starts a text that will have about so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Adds text that is JSON already.
    pub fn raw(&mut self, text: &str) -> &mut Self {
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// Adds any value.
    pub fn value(&mut self, value: &(impl Serialize + ?Sized)) {
        // Writing to memory does not fail, and our map keys are strings.
        if serde_json::to_writer(&mut self.0, value).is_err() {
            self.raw("null");
        }
    }

    /// Adds a string.
    pub fn text(&mut self, text: &str) {
        escape::write(&mut self.0, text);
    }

    /// Adds a string of bytes that are [`escape::is_plain`].
    pub fn plain(&mut self, bytes: &[u8]) {
        self.0.reserve(bytes.len() + 2);
        self.0.push(b'"');
        self.0.extend_from_slice(bytes);
        self.0.push(b'"');
    }

    /// Adds the key of the next field of an object.
    pub fn key(&mut self, key: &str) -> &mut Self {
        self.separate();
        self.text(key);
        self.raw(":")
    }

    /// Adds a value as an element of a list.
    pub fn element(&mut self, value: &(impl Serialize + ?Sized)) {
        self.comma();
        self.value(value);
    }

    /// Adds a list.
    pub fn list<T>(&mut self, items: impl IntoIterator<Item = T>, write: impl Fn(&mut Self, T)) {
        self.raw("[");
        for item in items {
            self.separate();
            write(self, item);
        }
        self.raw("]");
    }

    /// Adds a comma, unless a list or an object begins here.
    pub fn separate(&mut self) {
        if !matches!(self.0.last(), Some(b'[' | b'{')) {
            self.raw(",");
        }
    }

    /// Adds a comma, unless one stands here or nothing comes before.
    fn comma(&mut self) {
        if !matches!(self.0.last(), None | Some(b'[' | b':' | b',')) {
            self.raw(",");
        }
    }

    /// Adds an object as an element of a list or as a field's value.
    pub fn object(&mut self, fill: impl FnOnce(&mut JsonObject<'_>)) {
        self.comma();
        self.bare_object(fill);
    }

    /// Adds an object of strings.
    pub fn strings(&mut self, fields: &[(&str, &str)]) {
        self.object(|object| {
            for (key, text) in fields {
                object.text(key, text);
            }
        });
    }

    /// Adds an object whose comma is written already, or that needs none.
    pub fn bare_object(&mut self, fill: impl FnOnce(&mut JsonObject<'_>)) {
        self.raw("{");
        fill(&mut JsonObject(self));
        self.raw("}");
    }
}

pub(crate) struct JsonObject<'a>(&'a mut Json);

impl JsonObject<'_> {
    /// Adds the key of the next field.
    pub fn key(&mut self, key: &str) -> &mut Json {
        self.0.key(key)
    }

    /// Adds a field with any value.
    pub fn field(&mut self, key: &str, value: &(impl Serialize + ?Sized)) -> &mut Self {
        self.key(key).value(value);
        self
    }

    /// Adds a field, if it has a value.
    pub fn given(&mut self, key: &str, value: Option<impl Serialize>) -> &mut Self {
        if let Some(value) = value {
            self.field(key, &value);
        }
        self
    }

    /// Adds a field with a string, which may be long.
    pub fn text(&mut self, key: &str, text: &str) -> &mut Self {
        self.key(key).text(text);
        self
    }

    /// Adds a field whose value is JSON text already.
    pub fn raw(&mut self, key: &str, json: &str) -> &mut Self {
        self.key(key).raw(json);
        self
    }

    /// Adds a field with an object.
    pub fn object(&mut self, key: &str, fill: impl FnOnce(&mut JsonObject<'_>)) -> &mut Self {
        self.key(key).object(fill);
        self
    }

    /// Adds a field with an object of strings.
    pub fn strings(&mut self, key: &str, fields: &[(&str, &str)]) -> &mut Self {
        self.key(key).strings(fields);
        self
    }

    /// Adds a field with a list of objects.
    pub fn objects<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        mut fill: impl FnMut(&mut JsonObject<'_>, T),
    ) -> &mut Self {
        self.list(key, |json| {
            for item in items {
                json.object(|json| fill(json, item));
            }
        })
    }

    /// Adds a field with a list that `fill` writes.
    pub fn list(&mut self, key: &str, fill: impl FnOnce(&mut Json)) -> &mut Self {
        fill(self.key(key).raw("["));
        self.0.raw("]");
        self
    }
}
