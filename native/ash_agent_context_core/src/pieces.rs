//! Encodings that are made once and kept beside what they encode.

#![expect(dead_code, reason = "the projection of requests uses it")]

use std::sync::OnceLock;

/// Encodings one message keeps. Whoever asks for more kinds (a new model name every turn) gets
/// them made anew each time instead of growing memory without bound.
const LIMIT: usize = 12;

/// An append-only list of encodings by key. Nobody waits for an encoding that another thread
/// makes: both make it and one is kept.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    first: OnceLock<Box<Piece>>,
}

#[derive(Debug)]
struct Piece {
    key: u64,
    bytes: Box<[u8]>,
    next: OnceLock<Box<Piece>>,
}

impl Pieces {
    /// The encoding kept under this key, made by `encode` when there is none yet.
    /// `Err` is an encoding for which there was no room.
    pub fn get_or_make(&self, key: u64, encode: impl Fn() -> Vec<u8>) -> Result<&[u8], Box<[u8]>> {
        let mut made = None;
        let mut slot = &self.first;
        for _ in 0..LIMIT {
            if slot.get().is_none() {
                let piece = Piece {
                    key,
                    bytes: made.take().unwrap_or_else(|| encode().into_boxed_slice()),
                    next: OnceLock::new(),
                };
                made = slot.set(Box::new(piece)).err().map(|lost| lost.bytes);
            }
            let Some(piece) = slot.get() else { break };
            if piece.key == key {
                return Ok(&piece.bytes);
            }
            slot = &piece.next;
        }
        Err(made.unwrap_or_else(|| encode().into_boxed_slice()))
    }
}
