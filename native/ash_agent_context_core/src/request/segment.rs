//! The bytes of a request, in pieces.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Error;
use crate::log::piece::Piece;
use crate::value::{numbers, MAX_DEPTH};

/// The most levels of a request: its own, and those of values in it.
const DEPTH: usize = 2 * MAX_DEPTH;

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

/// Refuses a number that JSON readers refuse, looking at no more than `most` bytes.
///
/// # Errors
/// [`Error::Invalid`] with the path to it; [`Error::TooMuchWork`].
pub(crate) fn check_numbers(segments: &[Segment<'_>], most: usize) -> Result<(), Error> {
    let length = segments.iter().map(|segment| segment.bytes().len()).sum();
    most.checked_sub(length).ok_or(Error::TooMuchWork)?;
    let bytes = segments.iter().flat_map(Segment::bytes).copied();
    match numbers::find(&bytes.collect::<Vec<_>>(), DEPTH) {
        Some(path) => Err(Error::invalid(path, "a number that a float can hold")),
        None => Ok(()),
    }
}
