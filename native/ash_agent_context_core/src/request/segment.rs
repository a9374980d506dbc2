//! A request in pieces.

use std::borrow::Cow;

/// A stretch of a request's bytes.
#[derive(Debug)]
pub enum Segment<'a> {
    /// Part of an encoding that the context keeps.
    Kept(&'a [u8]),
    /// Made for this request.
    Made(Cow<'static, [u8]>),
}

impl Segment<'_> {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Kept(bytes) => bytes,
            Self::Made(bytes) => bytes,
        }
    }
}
