//! Finding texts by their words, by a scan: 2.4 MB take a few milliseconds, and nothing has to be kept.
//!
//! Whoever asks may not know how a word is written: where no text has one, the words that contain it or are written nearly the
//! same are looked for, too.
//!
//! Texts are ranked by BM25. Those that have the words as they were asked for, one after the other, come first.

use std::borrow::Cow;
use std::cmp::Ordering;

use memchr::memmem::Finder;

use crate::view::words::Words;

/// The usual values of BM25: how fast more of the same word counts less, and how much longer texts count less.
const K: f64 = 1.2;
const B: f64 = 0.75;

/// A text with the words in the order of the question scores so much more: it comes before all others.
const AS_ASKED: f64 = 1_000.0;

/// So many words of a question are looked for.
const MOST_WORDS: usize = 32;

/// Bytes of a excerpt on either side of a match.
const AROUND: usize = 120;

/// A search, fed with one text after the other.
pub(crate) struct Search {
    asked: String,
    finder: Finder<'static>,
    words: Words,
    texts: usize,
    length: usize,
    found: Vec<CountedText>,
}

struct CountedText {
    counts: Box<[u32]>,
    length: usize,
    is_as_asked: bool,
}

/// A match, by its number among the texts that [`Search::read`] took.
pub(crate) struct FoundText {
    pub text: usize,
    pub score: f64,
}

impl Search {
    pub fn new(asked: &str) -> Self {
        let asked = asked.trim().to_owned();
        let words = Words::new(&asked, MOST_WORDS);
        Self {
            finder: Finder::new(&asked).into_owned(),
            asked,
            words,
            texts: 0,
            length: 0,
            found: Vec::new(),
        }
    }

    /// Returns a search for words like those that no text had as well; `None` if all were found, or nothing is like them.
    ///
    /// # Complexity
    /// O(texts)
    pub fn widen<'t>(&self, texts: impl Iterator<Item = Cow<'t, str>>) -> Option<Self> {
        let has = |word: usize| self.found.iter().any(|one| one.counts.get(word) > Some(&0));
        let unknown: Vec<&[u8]> = self
            .words
            .iter()
            .enumerate()
            .filter_map(|(at, word)| (!has(at)).then_some(word))
            .collect();
        if unknown.is_empty() || self.found.iter().any(|one| one.is_as_asked) {
            return None;
        }
        let mut like = Words::default();
        for text in texts {
            like.add_like(&text, &unknown, MOST_WORDS);
        }
        (like.len() > 0).then(|| {
            let mut wider = Self::new(&self.asked);
            wider.words.add(like);
            wider
        })
    }

    /// Reads a text. Returns true if it has any of the words.
    pub fn read(&mut self, text: &str) -> bool {
        let mut counts = vec![0; self.words.len()];
        let length = self.words.count(text.as_bytes(), &mut counts);
        self.texts += 1;
        self.length += length;
        let all = counts.iter().all(|count| *count > 0);
        // The question may be a piece of a word, as it mostly is in Chinese.
        let is_piece = !self.asked.is_empty() && self.finder.find(text.as_bytes()).is_some();
        let is_as_asked = is_piece || (all && find(text, &self.asked).is_some());
        let has_any = is_as_asked || counts.iter().any(|count| *count > 0);
        if has_any {
            self.found.push(CountedText {
                counts: counts.into(),
                length,
                is_as_asked,
            });
        }
        has_any
    }

    /// Returns the best matches, at most so many.
    pub fn rank(&self, most: usize) -> Vec<FoundText> {
        let texts = self.texts as f64;
        let average = (self.length as f64 / texts.max(1.0)).max(1.0);
        let weights = (0..self.words.len()).map(|word| {
            let has = |one: &&CountedText| one.counts.get(word).is_some_and(|count| *count > 0);
            let having = self.found.iter().filter(has).count() as f64;
            ((texts - having + 0.5) / (having + 0.5)).ln_1p()
        });
        let weights: Vec<f64> = weights.collect();
        let score = |one: &CountedText| -> f64 {
            let room = K * (1.0 - B + B * one.length as f64 / average);
            let words = one.counts.iter().zip(&weights).map(|(count, weight)| {
                let count = f64::from(*count);
                weight * count * (K + 1.0) / (count + room)
            });
            words.sum::<f64>() + if one.is_as_asked { AS_ASKED } else { 0.0 }
        };
        let found = self.found.iter().enumerate();
        let mut found: Vec<FoundText> = found
            .map(|(text, one)| FoundText {
                text,
                score: score(one),
            })
            .collect();
        // Of equals the newest comes first: it is likelier to be true still.
        found.sort_by(|a, b| {
            let scores = b.score.partial_cmp(&a.score).unwrap_or(Ordering::Equal);
            scores.then(b.text.cmp(&a.text))
        });
        found.truncate(most);
        found
    }

    /// Returns the piece of a text around the question's words together, or around one of them, on one line.
    pub fn excerpt(&self, text: &str) -> String {
        let found = find(text, &self.asked).map(|start| (start, start + self.asked.len()));
        let (start, end) = found.or_else(|| self.words.find(text)).unwrap_or((0, 0));
        let from = text.floor_char_boundary(start.saturating_sub(AROUND));
        let to = text.ceil_char_boundary((end.min(start + AROUND) + AROUND).min(text.len()));
        let words: Vec<&str> = text
            .get(from..to)
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let before = if from > 0 { "…" } else { "" };
        let after = if to < text.len() { "…" } else { "" };
        format!("{before}{}{after}", words.join(" "))
    }
}

/// Returns the range of another text in this one, whatever the case of ASCII letters.
fn find(text: &str, other: &str) -> Option<usize> {
    if other.is_empty() {
        return None;
    }
    text.find(other).or_else(|| {
        let first = other.as_bytes().first()?.to_ascii_lowercase();
        let upper = first.to_ascii_uppercase();
        let mut starts = memchr::memchr2_iter(first, upper, text.as_bytes());
        let is_same = |start: &usize| {
            let piece = text.as_bytes().get(*start..start + other.len());
            piece.is_some_and(|piece| piece.eq_ignore_ascii_case(other.as_bytes()))
        };
        starts.find(is_same)
    })
}
