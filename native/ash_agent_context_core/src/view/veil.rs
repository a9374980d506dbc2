//! Texts that were made of a conversation may repeat words that a mask hides there, without the context by which the mask
//! finds them. So they are compared with the conversation, piece by piece.

use std::collections::HashSet;

use crate::log::message::Message;
use crate::log::part::{Content, PartKind};
use crate::value::letters;
use crate::view::facts::{key, tokens};

/// A piece has at least so many letters. Shorter ones stand in too many words.
const PIECE: usize = 6;

/// A fact of so many letters is a piece of its own.
const FACT: usize = 4;

/// The text in the place of a piece.
const MASKED: &str = "[masked]";

/// Pieces of texts, by their keys.
#[derive(Debug, Clone, Default)]
pub(crate) struct Veil {
    pieces: HashSet<u64>,
}

impl Veil {
    /// Returns all pieces of texts.
    ///
    /// # Complexity
    /// O(texts)
    pub fn of<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let mut pieces = HashSet::new();
        for text in texts {
            each(text, |_, key| {
                pieces.insert(key);
            });
        }
        Self { pieces }
    }

    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Adds the pieces that a text has in common with others.
    pub fn add_common(&mut self, others: &Self, text: &str) {
        each(text, |_, key| {
            if others.pieces.contains(&key) {
                self.pieces.insert(key);
            }
        });
    }

    fn extend(&mut self, other: Self) {
        self.pieces.extend(other.pieces);
    }

    fn is_within(&self, other: &Self) -> bool {
        self.pieces.is_subset(&other.pieces)
    }

    /// Removes the pieces of a text.
    pub fn lift(&mut self, text: &str) {
        if !self.is_empty() {
            each(text, |_, key| {
                self.pieces.remove(&key);
            });
        }
    }

    /// Returns a text without these pieces; `None` if it has none.
    pub fn cut(&self, text: &str) -> Option<String> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        if !self.is_empty() {
            each(text, |range, key| {
                if self.pieces.contains(&key) {
                    found.push(range);
                }
            });
        }
        found.sort_unstable();
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for (start, end) in found {
            match ranges.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => ranges.push((start, end)),
            }
        }
        let mut cut = String::new();
        let mut from = 0;
        for (start, end) in &ranges {
            let piece = text.get(*start..*end)?;
            let (before, after) = (count_signs(piece.chars()), count_signs(piece.chars().rev()));
            let (before, after) = match before + after < piece.len() {
                true => (before, after),
                false => (0, 0),
            };
            cut.push_str(text.get(from..start + before)?);
            cut.push_str(MASKED);
            from = end - after;
        }
        cut.push_str(text.get(from..)?);
        (!ranges.is_empty()).then_some(cut)
    }

    /// Returns a message without these pieces; `None` if it has none.
    pub fn message(&self, message: &Message) -> Option<Message> {
        let mut is_cut = false;
        let mut cut = |bytes: &[u8]| -> Box<[u8]> {
            let text = self.cut(&letters::utf8(bytes));
            is_cut |= text.is_some();
            text.map_or_else(|| bytes.into(), |text| text.into_bytes().into())
        };
        let content = match &message.content {
            Content::None => Content::None,
            Content::Text(text) => Content::Text(cut(text)),
            Content::Parts(parts) => {
                let mut parts = parts.clone();
                for part in &mut parts {
                    if let Some(text) = part.kind.text().map(|text| cut(text)) {
                        part.kind = PartKind::Text(text);
                    }
                }
                Content::Parts(parts)
            }
        };
        let metadata = message.metadata.clone();
        is_cut.then(|| Message::new(message.role, content, message.calls.clone(), metadata))
    }
}

/// The pieces of texts that stand beside a conversation, and which of them this has within masked texts and outside of them.
/// Kept with the texts, so that a new message is compared with them alone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Compared {
    pub pieces: Veil,
    masked: Veil,
    shown: Veil,
}

impl Compared {
    /// # Complexity
    /// O(texts)
    pub fn of<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        Self {
            pieces: Veil::of(texts),
            ..Self::default()
        }
    }

    /// Returns it with more pieces that the conversation has within masked texts and outside of them; `None` if it has them.
    ///
    /// # Complexity
    /// O(pieces), and O(texts) if there are new ones
    pub fn with(&self, masked: Veil, shown: Veil) -> Option<Self> {
        let is_same = masked.is_within(&self.masked) && shown.is_within(&self.shown);
        (!is_same).then(|| {
            let mut next = self.clone();
            next.masked.extend(masked);
            next.shown.extend(shown);
            next
        })
    }

    /// Returns the pieces that are only there within masked texts.
    pub fn veil(&self) -> Veil {
        let masked = self.masked.pieces.difference(&self.shown.pieces);
        Veil {
            pieces: masked.copied().collect(),
        }
    }
}

/// Counts the bytes of the spaces and signs around words, which stay. [`PIECE`] of them would be a piece of their own.
fn count_signs(letters: impl Iterator<Item = char>) -> usize {
    let signs = letters.take_while(|letter| !letter.is_alphanumeric());
    signs.take(PIECE - 1).map(char::len_utf8).sum()
}

/// Calls a function with each piece of a text and its range.
fn each(text: &str, mut take: impl FnMut((usize, usize), u64)) {
    let starts = text.char_indices().map(|(at, _)| at);
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    let letters = starts.zip(ends.skip(PIECE));
    let facts = tokens(text).filter(|token| token.text.len() >= FACT && token.kind().is_some());
    for (start, end) in letters.chain(facts.map(|token| (token.start, token.end()))) {
        if let Some(piece) = text.get(start..end) {
            take((start, end), key(&[piece]));
        }
    }
}
