//! Encodings that are made once and kept beside what they encode.

use std::sync::OnceLock;

/// Encodings one message keeps. Whoever asks for more kinds (a new model name every turn) gets
/// them made anew each time instead of growing memory without bound.
const LIMIT: usize = 12;

/// An append-only list of encodings by key. Nobody waits for an encoding that another thread
/// makes: both make it and one is kept.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    first: OnceLock<Box<Link>>,
}

#[derive(Debug)]
struct Link {
    key: u64,
    piece: Piece,
    next: OnceLock<Box<Link>>,
}

/// The elements that a message or an iteration adds to a request's list, each with a comma in
/// front.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    /// JSON text; empty when nothing is added.
    pub bytes: Box<[u8]>,
    /// Where a cache breakpoint can be put in, the last such place.
    pub mark: Option<usize>,
    /// Whether the first element is the model's.
    pub begins_with_model: bool,
    /// Whether the last element is the model's.
    pub ends_with_model: bool,
    /// Whether the last element is as it was imported, so that it may hold the messages behind it.
    pub ends_imported: bool,
}

impl Pieces {
    /// The encoding kept under this key.
    pub fn get(&self, key: u64) -> Option<&Piece> {
        let mut slot = &self.first;
        while let Some(link) = slot.get() {
            if link.key == key {
                return Some(&link.piece);
            }
            slot = &link.next;
        }
        None
    }

    /// The encoding kept under this key, made by `encode` when there is none yet.
    /// `Err` is an encoding for which there was no room.
    pub fn get_or_make(&self, key: u64, encode: impl Fn() -> Piece) -> Result<&Piece, Piece> {
        let mut made = None;
        let mut slot = &self.first;
        for _ in 0..LIMIT {
            if slot.get().is_none() {
                let link = Link {
                    key,
                    piece: made.take().unwrap_or_else(&encode),
                    next: OnceLock::new(),
                };
                made = slot.set(Box::new(link)).err().map(|lost| lost.piece);
            }
            let Some(link) = slot.get() else { break };
            if link.key == key {
                return Ok(&link.piece);
            }
            slot = &link.next;
        }
        Err(made.unwrap_or_else(encode))
    }
}

impl Clone for Pieces {
    /// A changed copy needs encodings of its own.
    fn clone(&self) -> Self {
        Self::default()
    }
}
