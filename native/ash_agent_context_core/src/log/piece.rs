//! Encodings of messages and iterations for requests, kept beside what they are made of.
//!
//! A piece has the elements of one message, of one iteration, or of several that follow each other. A larger piece replaces
//! the smaller ones, which are freed when nobody reads them any more.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::log::hints::Ttl;
use crate::log::memo::Memo;
use crate::value::digest::Digest;

/// The elements that messages or iterations add to a request's list, each after a comma.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    /// JSON text; empty when nothing is added.
    bytes: Box<[u8]>,
    /// The end of each part, and how it fits to its neighbours. A piece of several has several iterations, and none
    /// of its neighbours join.
    parts: Box<[(usize, Shape)]>,
    /// Cache breakpoints that were set by hand; a piece of several has none.
    pub by_hand: Vec<ByHand>,
    /// Bytes of the longest result in it, where it has several iterations.
    pub longest: usize,
    /// The digest of the bytes, made on first use.
    digest: OnceLock<Digest>,
}

/// How elements fit to those before and after them.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Shape {
    /// The last place where a cache breakpoint can be put.
    pub mark: Option<usize>,
    /// The last such place before the model's last message; `None` where nothing stands before that.
    pub asked: Option<usize>,
    /// The model has a message in it.
    pub has_model: bool,
    /// The first element is the model's.
    pub begins_with_model: bool,
    /// The first element is the model's and calls tools.
    pub begins_with_calls: bool,
    /// The last element is the model's.
    pub ends_with_model: bool,
}

/// A cache breakpoint that was set by hand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByHand {
    pub at: usize,
    pub ttl: Ttl,
}

impl Piece {
    pub fn new(bytes: Vec<u8>, shape: Shape, by_hand: Vec<ByHand>) -> Self {
        let parts = vec![(bytes.len(), shape)];
        Self {
            by_hand,
            ..Self::of(bytes, parts, 0)
        }
    }

    /// Makes a piece of several iterations: each with its end and its shape. `longest` is the longest result of all.
    pub fn of(bytes: Vec<u8>, parts: Vec<(usize, Shape)>, longest: usize) -> Self {
        Self {
            digest: OnceLock::new(),
            bytes: bytes.into_boxed_slice(),
            parts: parts.into_boxed_slice(),
            by_hand: Vec::new(),
            longest,
        }
    }

    /// Joins pieces into one.
    pub fn join<'p>(pieces: impl Iterator<Item = &'p Self> + Clone, longest: usize) -> Self {
        let len = pieces.clone().map(|piece| piece.bytes.len()).sum();
        let mut bytes = Vec::with_capacity(len);
        let mut parts = Vec::with_capacity(pieces.clone().map(Self::count).sum());
        for piece in pieces {
            let start = bytes.len();
            bytes.extend_from_slice(&piece.bytes);
            parts.extend(piece.parts.iter().map(|(end, shape)| {
                let [mark, asked] = [shape.mark, shape.asked].map(|at| Some(start + at?));
                let shape = Shape {
                    mark,
                    asked,
                    ..*shape
                };
                (start + end, shape)
            }));
        }
        Self::of(bytes, parts, longest)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn digest(&self) -> Digest {
        *self.digest.get_or_init(|| Digest::of(&self.bytes))
    }

    pub fn count(&self) -> usize {
        self.parts.len()
    }

    pub fn shape(&self, part: usize) -> Shape {
        self.parts
            .get(part)
            .map_or_else(Shape::default, |(_, shape)| *shape)
    }

    /// Returns the range of bytes of some parts.
    pub fn range(&self, parts: &Range<usize>) -> Range<usize> {
        let end = |count: usize| {
            let last = count.checked_sub(1).and_then(|last| self.parts.get(last));
            last.map_or(0, |(end, _)| *end)
        };
        end(parts.start)..end(parts.end)
    }
}

/// An encoding: one part of a piece.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub piece: Arc<Piece>,
    pub part: usize,
}

impl Kept {
    pub fn alone(piece: Piece) -> Self {
        Self {
            piece: Arc::new(piece),
            part: 0,
        }
    }
}

/// A place for an encoding, which may be empty.
#[derive(Debug)]
pub(crate) struct Slot(Mutex<Option<Kept>>);

/// Encodings by the options that decide them.
pub(crate) type Pieces = Memo<Slot>;

impl Slot {
    /// Calls a function with the encoding under the lock; never one that takes long.
    fn with<T>(&self, then: impl FnOnce(&mut Option<Kept>) -> T) -> T {
        then(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Pieces {
    /// Returns the encoding under a key.
    pub fn find(&self, key: u64) -> Option<Kept> {
        self.get(key)?.with(|kept| kept.clone())
    }

    /// Returns the encoding under a key, made by `make` when there is none. Nobody waits for a piece that another thread
    /// makes: both make it, and one is kept.
    pub fn find_or_make(&self, key: u64, make: impl FnOnce() -> Piece) -> Kept {
        if let Some(kept) = self.find(key) {
            return kept;
        }
        self.keep(key, Kept::alone(make()))
    }

    /// Keeps an encoding, unless there is one; returns the one that is kept.
    pub fn keep(&self, key: u64, made: Kept) -> Kept {
        match self.get_or_make(key, || Slot(Mutex::default())) {
            Ok(slot) => slot.with(|kept| kept.get_or_insert(made).clone()),
            // There is no room for another kind.
            Err(_) => made,
        }
    }

    /// Puts a larger piece in the place of one, if that is still there.
    pub fn replace(&self, key: u64, old: &Arc<Piece>, new: Kept) -> bool {
        let Some(slot) = self.get(key) else {
            return false;
        };
        slot.with(|kept| match kept {
            Some(known) if Arc::ptr_eq(&known.piece, old) => {
                *known = new;
                true
            }
            _ => false,
        })
    }

    /// Drops the encoding under a key: a larger piece has it.
    pub fn forget(&self, key: u64) {
        if let Some(slot) = self.get(key) {
            slot.with(Option::take);
        }
    }
}
