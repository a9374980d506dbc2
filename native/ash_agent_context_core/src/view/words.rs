//! The words of texts: runs of letters and digits, whatever their case.

/// Each byte in lower case, 0 for one that is in no word. Bytes of letters beyond ASCII stay the same.
#[allow(clippy::indexing_slicing)] // evaluated when it is compiled
const LOWER: [u8; 256] = {
    let mut lower = [0; 256];
    let mut byte = 0_u8;
    loop {
        if byte.is_ascii_alphanumeric() || byte >= 0x80 {
            lower[byte as usize] = byte.to_ascii_lowercase();
        }
        if byte == u8::MAX {
            break lower;
        }
        byte += 1;
    }
};

fn lower(byte: u8) -> u8 {
    LOWER.get(usize::from(byte)).copied().unwrap_or(0)
}

/// A few words to look for in texts.
pub(crate) struct Words {
    words: Vec<Box<[u8]>>,
    /// A filter by hash: nearly all words of a text are not looked for.
    may_be: [bool; FILTER],
}

const FILTER: usize = 1 << 10;

impl Words {
    /// Takes the words of a text, at most so many.
    pub fn new(text: &str, most: usize) -> Self {
        let mut words: Vec<Box<[u8]>> = Vec::new();
        let mut may_be = [false; FILTER];
        each(text.as_bytes(), |hash, start, end| {
            let word = text.as_bytes().get(start..end).unwrap_or_default();
            let word: Box<[u8]> = word.to_ascii_lowercase().into();
            if words.len() < most && !words.contains(&word) {
                if let Some(slot) = may_be.get_mut(hash % FILTER) {
                    *slot = true;
                }
                words.push(word);
            }
        });
        Self { words, may_be }
    }

    pub fn len(&self) -> usize {
        self.words.len()
    }

    fn position(&self, hash: usize, word: &[u8]) -> Option<usize> {
        let may_be = self.may_be.get(hash % FILTER).is_some_and(|may_be| *may_be);
        let mut words = self.words.iter();
        may_be.then(|| words.position(|known| known.eq_ignore_ascii_case(word)))?
    }

    /// Counts these words in a text. Returns the number of all its words.
    pub fn count(&self, text: &[u8], counts: &mut [u32]) -> usize {
        let mut length = 0;
        each(text, |hash, start, end| {
            length += 1;
            let word = text.get(start..end).unwrap_or_default();
            if let Some(count) = self.position(hash, word).and_then(|at| counts.get_mut(at)) {
                *count += 1;
            }
        });
        length
    }

    /// Returns the range of the longest of these words that a text has.
    pub fn find(&self, text: &str) -> Option<(usize, usize)> {
        let mut best = None;
        each(text.as_bytes(), |hash, start, end| {
            let word = text.as_bytes().get(start..end).unwrap_or_default();
            let is_longer = best.is_none_or(|(start, end)| word.len() > end - start);
            if is_longer && self.position(hash, word).is_some() {
                best = Some((start, end));
            }
        });
        best
    }
}

/// Calls a function with each word's hash, start and end.
#[inline]
fn each(text: &[u8], mut word: impl FnMut(usize, usize, usize)) {
    let mut bytes = text.iter().enumerate();
    while let Some((start, first)) = bytes.find(|(_, byte)| lower(**byte) != 0) {
        let mut hash = u32::from(lower(*first));
        let mut end = text.len();
        for (at, byte) in bytes.by_ref() {
            let lower = lower(*byte);
            if lower == 0 {
                end = at;
                break;
            }
            hash = hash.rotate_left(5) ^ u32::from(lower);
        }
        // Tables use the low bits, which come from the last letters: the others are mixed in.
        word((hash ^ hash >> 10 ^ hash >> 20) as usize, start, end);
    }
}
