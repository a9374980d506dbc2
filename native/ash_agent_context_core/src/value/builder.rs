//! JSON text, written field by field.

use serde::Serialize;

use crate::value::escape;

/// JSON text in the making.
#[derive(Default)]
pub(crate) struct Json(pub Vec<u8>);

impl Json {
    /// Text that is JSON already.
    pub fn raw(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Any value.
    pub fn value(&mut self, value: &(impl Serialize + ?Sized)) {
        // Writing to memory does not fail, and our map keys are strings.
        if serde_json::to_writer(&mut self.0, value).is_err() {
            self.raw("null");
        }
    }

    /// A string.
    pub fn text(&mut self, text: &str) {
        escape::write(&mut self.0, text);
    }

    /// A value as an element of a list.
    pub fn element(&mut self, value: &(impl Serialize + ?Sized)) {
        self.comma();
        self.value(value);
    }

    /// A comma, unless a list or an object begins here.
    pub fn separate(&mut self) {
        if !matches!(self.0.last(), Some(b'[' | b'{')) {
            self.raw(",");
        }
    }

    fn comma(&mut self) {
        if !matches!(self.0.last(), None | Some(b'[' | b':')) {
            self.raw(",");
        }
    }

    /// An object as an element of a list or as a field's value.
    pub fn object(&mut self, fill: impl FnOnce(&mut Object<'_>)) {
        self.comma();
        self.bare_object(fill);
    }

    /// An object whose comma is written already, or that needs none.
    pub fn bare_object(&mut self, fill: impl FnOnce(&mut Object<'_>)) {
        self.raw("{");
        fill(&mut Object(self));
        self.raw("}");
    }
}

/// An object that is being written.
pub(crate) struct Object<'a>(&'a mut Json);

impl Object<'_> {
    fn key(&mut self, key: &str) {
        if self.0 .0.last() != Some(&b'{') {
            self.0.raw(",");
        }
        self.0.value(key);
        self.0.raw(":");
    }

    /// A field with any value.
    pub fn field(&mut self, key: &str, value: &(impl Serialize + ?Sized)) -> &mut Self {
        self.key(key);
        self.0.value(value);
        self
    }

    /// A field with a string, which may be long.
    pub fn text(&mut self, key: &str, text: &str) -> &mut Self {
        self.key(key);
        self.0.text(text);
        self
    }

    /// A field whose value is JSON text already.
    pub fn raw(&mut self, key: &str, json: &str) -> &mut Self {
        self.key(key);
        self.0.raw(json);
        self
    }

    /// A field with an object.
    pub fn object(&mut self, key: &str, fill: impl FnOnce(&mut Object<'_>)) -> &mut Self {
        self.key(key);
        self.0.object(fill);
        self
    }

    /// A field with a list of what `fill` writes.
    pub fn list(&mut self, key: &str, fill: impl FnOnce(&mut Json)) -> &mut Self {
        self.key(key);
        self.0.raw("[");
        fill(self.0);
        self.0.raw("]");
        self
    }
}
