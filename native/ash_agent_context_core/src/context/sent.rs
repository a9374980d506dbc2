//! The note of a request that was sent: digests and a version, in words with a space between them.

use std::str::Split;

use crate::value::Value;

pub(crate) struct SentNote<'a> {
    /// The digest of the whole request.
    pub whole: &'a str,
    /// The version that made it. The oldest notes have neither this nor the following words.
    pub version: Option<&'a str>,
    /// The digest of its view.
    pub view: Option<&'a str>,
    /// Digests of the messages and results that the request before did not have.
    pub pieces: Split<'a, char>,
}

impl<'a> SentNote<'a> {
    pub fn read(note: &'a Value) -> Option<Self> {
        let mut words = note.as_str()?.split(' ');
        Some(Self {
            whole: words.next()?,
            version: words.next(),
            view: words.next(),
            pieces: words,
        })
    }
}
