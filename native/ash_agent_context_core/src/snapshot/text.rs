//! JSON text in the making.
//!
//! serde_json looks at a string byte by byte; conversations are mostly long strings, and looking
//! at 32 bytes at a time is several times faster.

use serde::Serialize;

/// Bytes that are looked at together.
const CHUNK: usize = 32;

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
        self.0.push(b'"');
        let bytes = text.as_bytes();
        // Where the part begins that is not written yet.
        let mut from = 0;
        for (chunk, position) in bytes.chunks(CHUNK).zip((0..).step_by(CHUNK)) {
            // Without a branch in it, this becomes a few vector instructions.
            let found = |found, byte: &u8| found | is_special(*byte);
            if !chunk.iter().fold(false, found) {
                continue;
            }
            for (offset, byte) in chunk.iter().enumerate() {
                let escape = ESCAPES.get(usize::from(*byte)).copied().unwrap_or(0);
                if escape != 0 {
                    let at = position + offset;
                    self.0
                        .extend_from_slice(bytes.get(from..at).unwrap_or_default());
                    self.escape(*byte, escape);
                    from = at + 1;
                }
            }
        }
        self.0
            .extend_from_slice(bytes.get(from..).unwrap_or_default());
        self.0.push(b'"');
    }

    fn escape(&mut self, byte: u8, escape: u8) {
        if escape == b'u' {
            self.0
                .extend_from_slice(format!("\\u{byte:04x}").as_bytes());
        } else {
            self.0.extend_from_slice(&[b'\\', escape]);
        }
    }
}

/// What stands behind the backslash that escapes a byte; 0 for one that needs none.
#[expect(clippy::indexing_slicing, reason = "checked when it is compiled")]
const ESCAPES: [u8; 256] = {
    let mut escapes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        escapes[byte] = match byte as u8 {
            b'"' => b'"',
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0..0x20 => b'u',
            _ => 0,
        };
        byte += 1;
    }
    escapes
};

const fn is_special(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}
