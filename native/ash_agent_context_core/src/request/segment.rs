//! A request in pieces.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use crate::error::Error;
use crate::log::piece::Piece;
use crate::value::{numbers, MAX_DEPTH};

/// Levels that a request may have: those of its own around values.
const DEPTH: usize = 2 * MAX_DEPTH;

/// A stretch of a request's bytes.
#[derive(Debug)]
pub enum Segment<'a> {
    /// Part of what was imported, in the context.
    Lent(&'a [u8]),
    /// Part of an encoding that is kept.
    Kept(KeptBytes),
    /// Made for this request.
    Made(Cow<'static, [u8]>),
}

/// Bytes of an encoding, which live as long as somebody has them: the context may let go of them.
#[derive(Debug, Clone)]
pub struct KeptBytes {
    pub(crate) piece: Arc<Piece>,
    pub(crate) range: Range<usize>,
}

impl Segment<'_> {
    /// The bytes.
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
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.piece
            .bytes()
            .get(self.range.clone())
            .unwrap_or_default()
    }
}

/// Looks for a number that JSON readers refuse, in no more than so many bytes.
///
/// # Errors
/// [`Error::Invalid`] with the way to it; [`Error::TooMuchWork`].
pub(crate) fn check_numbers(segments: &[Segment<'_>], most: usize) -> Result<(), Error> {
    let length = segments.iter().map(|segment| segment.bytes().len()).sum();
    most.checked_sub(length).ok_or(Error::TooMuchWork)?;
    let bytes = segments.iter().flat_map(Segment::bytes).copied();
    match numbers::find(&bytes.collect::<Vec<_>>(), DEPTH) {
        Some(path) => Err(Error::invalid(path, "a number that a float can hold")),
        None => Ok(()),
    }
}
