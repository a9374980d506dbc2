//! The bytes of a request, in pieces.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::log::piece::Piece;

/// A run of a request's bytes.
#[derive(Debug)]
pub enum Segment<'a> {
    /// A part of an imported text in the context.
    Lent(&'a [u8]),
    /// Part of an encoding that is kept.
    Kept(KeptBytes),
    /// Made for this request.
    Made(Cow<'static, [u8]>),
}

/// Bytes of a kept encoding. They live as long as this value, even if the context drops the encoding.
#[derive(Debug, Clone)]
pub struct KeptBytes {
    pub(crate) piece: Arc<Piece>,
    pub(crate) range: Range<usize>,
}

impl Segment<'_> {
    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Lent(bytes) => bytes,
            Self::Kept(kept) => kept.bytes(),
            Self::Made(bytes) => bytes,
        }
    }
}

impl KeptBytes {
    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.piece
            .bytes()
            .get(self.range.clone())
            .unwrap_or_default()
    }
}
