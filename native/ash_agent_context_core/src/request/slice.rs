//! The slices that a request is put together from: runs of elements.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use crate::log::hints::Ttl;
use crate::log::piece::{Piece, Shape};
use crate::request::segment::{KeptBytes, Segment};
use crate::value::digest::Digest;
use crate::value::json::signs;

/// A place where a cache breakpoint may stand.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    /// The slice; `None` for the system prompt beside the list.
    pub slice: Option<usize>,
    pub at: usize,
    /// The number of the iteration.
    pub number: u64,
    /// The time to keep it, if it was set by hand.
    pub by_hand: Option<Ttl>,
    /// The side of the iteration's last message of the model.
    pub side: Side,
}

/// Where a place is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The model has no message there.
    Apart,
    /// At the end of an iteration with a message of the model.
    Behind,
    /// Before that message, where the request for it ended.
    Before,
}

/// Some elements, or all bytes but their beginning or end.
pub(crate) struct Slice<'a> {
    /// The bytes that it is from, if they are those of an imported text.
    lent: &'a [u8],
    /// The piece that it is from, and which parts.
    kept: Option<(Arc<Piece>, Range<usize>)>,
    pub start: usize,
    pub end: usize,
    /// The number of the iteration that they belong to, or of the first of several.
    pub number: u64,
    /// How they fit to others.
    pub shape: Shape,
    /// True if it was imported and asks for its continuation.
    pub is_prefix: bool,
    /// True if it stands before the list begins, for a provider whose list begins after the system messages.
    pub is_before: bool,
    /// True if a row of the user's has to stand before it.
    pub follows_user: bool,
}

impl<'a> Slice<'a> {
    /// Returns some parts of a piece.
    pub fn of(piece: Arc<Piece>, parts: Range<usize>, number: u64) -> Self {
        let range = piece.range(&parts);
        let last = piece.shape(parts.end.saturating_sub(1));
        Self {
            start: range.start,
            end: range.end,
            shape: Shape {
                ends_with_model: last.ends_with_model,
                ..piece.shape(parts.start)
            },
            kept: Some((piece, parts)),
            ..Self::lend(&[], Shape::default(), number)
        }
    }

    pub fn lend(bytes: &'a [u8], shape: Shape, number: u64) -> Self {
        Self {
            start: 0,
            end: bytes.len(),
            number,
            shape,
            is_prefix: false,
            is_before: false,
            follows_user: false,
            lent: bytes,
            kept: None,
        }
    }

    pub fn constant(text: &'static str) -> Self {
        Self::lend(text.as_bytes(), Shape::default(), 0)
    }

    pub fn bytes(&self) -> &[u8] {
        let kept = self.kept.as_ref();
        kept.map_or(self.lent, |(piece, _)| piece.bytes())
    }

    /// Returns the bytes that are sent.
    pub fn shown_bytes(&self) -> &[u8] {
        self.bytes().get(self.start..self.end).unwrap_or_default()
    }

    /// Returns the digest of these bytes.
    pub fn digest(&self) -> Digest {
        match self.whole() {
            Some(piece) => piece.digest(),
            None => Digest::of(self.shown_bytes()),
        }
    }

    /// Returns the number of these bytes.
    pub fn len(&self) -> u64 {
        self.end.saturating_sub(self.start) as u64
    }

    /// Returns the piece, if this is the whole of one.
    pub fn whole(&self) -> Option<&Arc<Piece>> {
        let (piece, _) = self.kept.as_ref()?;
        ((self.start, self.end) == (0, piece.bytes().len())).then_some(piece)
    }

    pub fn begins_with(&self, byte: u8) -> bool {
        self.bytes().first() == Some(&byte)
    }

    pub fn part(&self, start: usize, end: usize) -> Segment<'a> {
        match &self.kept {
            None => Segment::Lent(self.lent.get(start..end).unwrap_or_default()),
            Some((piece, _)) => Segment::Kept(KeptBytes {
                piece: piece.clone(),
                range: start..end,
            }),
        }
    }

    /// Returns whether it has cache breakpoints that were set by hand.
    pub fn is_marked(&self) -> bool {
        let kept = self.kept.as_ref();
        kept.is_some_and(|(piece, _)| !piece.by_hand.is_empty())
    }

    /// Returns the cache breakpoints in it that were set by hand, oldest first.
    pub fn by_hand(&self, slice: Option<usize>) -> impl Iterator<Item = Mark> + '_ {
        let marks = self.kept.iter().flat_map(|(piece, _)| &piece.by_hand);
        marks.map(move |mark| Mark {
            slice,
            at: mark.at,
            number: self.number,
            by_hand: Some(mark.ttl),
            side: Side::Apart,
        })
    }

    /// Returns its other places for a breakpoint up to an iteration, newest first.
    pub fn places(&self, slice: Option<usize>, until: u64) -> impl Iterator<Item = Mark> + '_ {
        self.kept.iter().flat_map(move |(piece, parts)| {
            let most = until.saturating_add(1).saturating_sub(self.number);
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            let end = parts.end.min(parts.start.saturating_add(most));
            (parts.start..end).rev().flat_map(move |part| {
                let shape = piece.shape(part);
                let last = match shape.has_model {
                    true => Side::Behind,
                    false => Side::Apart,
                };
                let places = [(shape.mark, last), (shape.asked, Side::Before)];
                places.into_iter().filter_map(move |(at, side)| {
                    let at = at?;
                    let is_taken = piece.by_hand.iter().any(|mark| mark.at == at);
                    (!is_taken).then(|| Mark {
                        slice,
                        at,
                        number: self.number + (part - parts.start) as u64,
                        by_hand: None,
                        side,
                    })
                })
            })
        })
    }

    /// Returns the places at the end of results before a place in its iteration, newest first.
    pub fn results(&self, mark: Mark, begin: &str) -> Vec<Mark> {
        let Some((piece, parts)) = &self.kept else {
            return Vec::new();
        };
        let part = parts.start + mark.number.saturating_sub(self.number) as usize;
        let range = piece.range(&(part..part + 1));
        let bytes = piece.bytes().get(range.clone()).unwrap_or_default();
        let ends = find_blocks(bytes, begin.as_bytes()).into_iter().rev();
        let ends = ends.map(|end| range.start + end);
        let is_free = |at: &usize| *at < mark.at && piece.by_hand.iter().all(|one| one.at != *at);
        let place = |at| Mark { at, ..mark };
        ends.filter(is_free).map(place).collect()
    }
}

/// Returns the ends, inside their braces, of the blocks of elements that begin so.
fn find_blocks(elements: &[u8], begin: &[u8]) -> Vec<usize> {
    // An element, its list, and a block.
    const DEPTH: usize = 3;
    let (mut depth, mut is_such) = (0_usize, false);
    let mut ends = Vec::new();
    for (at, byte) in signs(elements) {
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth == DEPTH {
                    is_such = elements.get(at..).is_some_and(|of| of.starts_with(begin));
                }
            }
            b'}' | b']' => {
                if depth == DEPTH && is_such {
                    ends.push(at);
                }
                depth = depth.saturating_sub(1);
            }
            _ => {}
        }
    }
    ends
}

/// Returns how many bytes two lists share from the start, and the iteration of the next byte.
pub(super) fn compare(before: &[Slice<'_>], next: &[Slice<'_>]) -> (u64, Option<u64>) {
    let (mut old, mut new) = (before.iter(), next.iter());
    let mut left: [&[u8]; 2] = [&[], &[]];
    let (mut same, mut number) = (0, None);
    loop {
        let [a, b] = &mut left;
        if a.is_empty() {
            match old.next() {
                Some(slice) => *a = slice.shown_bytes(),
                None => return (same, None),
            }
        }
        if b.is_empty() {
            match new.next() {
                Some(slice) => (*b, number) = (slice.shown_bytes(), Some(slice.number)),
                None => return (same, number),
            }
        }
        let len = a.len().min(b.len());
        let ((old_part, old_rest), (new_part, new_rest)) = (a.split_at(len), b.split_at(len));
        // Kept pieces are mostly the same memory.
        let is_one = std::ptr::eq(old_part.as_ptr(), new_part.as_ptr());
        if !is_one && old_part.cmp(new_part) != Ordering::Equal {
            let pairs = old_part.iter().zip(new_part);
            let shared = pairs.take_while(|(old, new)| old == new).count();
            return (same + shared as u64, number);
        }
        same += len as u64;
        (*a, *b) = (old_rest, new_rest);
    }
}
