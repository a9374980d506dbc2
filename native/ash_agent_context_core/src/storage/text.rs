//! JSON text in the making.

use serde::Serialize;

use crate::value::escape;

/// JSON text, written from front to back.
pub struct Json(Vec<u8>);

impl Json {
    /// Text that will have about so many bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// An object.
    pub fn object(&mut self, fill: impl FnOnce(&mut Self)) {
        self.0.push(b'{');
        fill(self);
        self.0.push(b'}');
    }

    /// A list.
    pub fn list<T>(&mut self, items: impl IntoIterator<Item = T>, write: impl Fn(&mut Self, T)) {
        self.0.push(b'[');
        for (position, item) in items.into_iter().enumerate() {
            if position > 0 {
                self.0.push(b',');
            }
            write(self, item);
        }
        self.0.push(b']');
    }

    /// The key of the next field of an object.
    pub fn key(&mut self, key: &str) -> &mut Self {
        self.comma();
        self.string(key);
        self.0.push(b':');
        self
    }

    /// JSON text that is written already.
    pub fn raw(&mut self, text: &str) -> &mut Self {
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// A comma, unless a list or an object begins here.
    pub fn comma(&mut self) {
        if !matches!(self.0.last(), Some(b'[' | b'{')) {
            self.0.push(b',');
        }
    }

    /// A number, a flag, nothing, or anything else that serde_json writes without fail.
    pub fn value(&mut self, value: &impl Serialize) {
        if serde_json::to_writer(&mut self.0, value).is_err() {
            self.0.extend_from_slice(b"null");
        }
    }

    /// A string.
    pub fn string(&mut self, text: &str) {
        escape::write(&mut self.0, text);
    }
}
