//! What is noted of a request that was sent: words with a space between them.

use crate::value::Value;

/// The note of a request that was sent.
pub(crate) struct SentNote<'a> {
    /// The digest of all of it.
    pub whole: &'a str,
    /// The version that made it. The oldest notes have neither this nor what follows.
    pub version: Option<&'a str>,
    /// The digest of its view.
    pub view: Option<&'a str>,
    /// Those of each message and result that the request before it had not.
    pub pieces: Vec<&'a str>,
}

impl<'a> SentNote<'a> {
    pub fn read(note: &'a Value) -> Option<Self> {
        let mut words = note.as_str()?.split(' ');
        Some(Self {
            whole: words.next()?,
            version: words.next(),
            view: words.next(),
            pieces: words.collect(),
        })
    }

    pub fn write(&self) -> Value {
        let head = [Some(self.whole), self.version, self.view];
        let words = head.into_iter().flatten();
        let words: Vec<&str> = words.chain(self.pieces.iter().copied()).collect();
        Value::text(&words.join(" "))
    }
}
