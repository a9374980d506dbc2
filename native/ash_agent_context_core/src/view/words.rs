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

/// A word is like another one that contains it from so many bytes on, and like one with another letter, one more or less, or
/// two in the other order, from [`ALIKE`] bytes on; with two such mistakes from twice as many on.
const PART: usize = 3;
const ALIKE: usize = 4;

/// Longer words are only compared as a whole.
const LONG: usize = 48;

impl Default for Words {
    fn default() -> Self {
        Self {
            words: Vec::new(),
            may_be: [false; FILTER],
        }
    }
}

impl Words {
    /// Takes the words of a text, at most so many.
    pub fn new(text: &str, most: usize) -> Self {
        let mut all = Self::default();
        each(text.as_bytes(), |hash, start, end| {
            let word = text.as_bytes().get(start..end).unwrap_or_default();
            let word: Box<[u8]> = word.to_ascii_lowercase().into();
            if all.len() < most && !all.words.contains(&word) {
                all.put(hash, &word);
            }
        });
        all
    }

    pub fn len(&self) -> usize {
        self.words.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.words.iter().map(|word| &**word)
    }

    /// Adds other words.
    pub fn add(&mut self, others: Self) {
        self.words.extend(others.words);
        let both = self.may_be.iter_mut().zip(others.may_be);
        both.for_each(|(own, other)| *own |= other);
    }

    /// Adds the words of a text that are written like some others, up to so many in all.
    pub fn add_like(&mut self, text: &str, others: &[&[u8]], most: usize) {
        each(text.as_bytes(), |hash, start, end| {
            let word = text.as_bytes().get(start..end).unwrap_or_default();
            if self.len() < most
                && others.iter().any(|other| is_like(other, word))
                && self.position(hash, word).is_none()
            {
                self.put(hash, word);
            }
        });
    }

    fn put(&mut self, hash: usize, word: &[u8]) {
        if let Some(slot) = self.may_be.get_mut(hash % FILTER) {
            *slot = true;
        }
        self.words.push(word.to_ascii_lowercase().into());
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

/// Returns true if a text's word contains one that is asked for, or is written nearly the same. `asked` is in lower case.
fn is_like(asked: &[u8], word: &[u8]) -> bool {
    if asked.len() < PART || asked.len().max(word.len()) > LONG {
        return false;
    }
    let is_part = |piece: &[u8]| piece.eq_ignore_ascii_case(asked);
    let mistakes = asked.len() / ALIKE;
    word.windows(asked.len()).any(is_part)
        || asked.len().abs_diff(word.len()) <= mistakes.min(2)
            && count_mistakes(asked, word) <= mistakes.min(2)
}

/// Counts letters that differ, are missing or too many, and pairs in the other order.
fn count_mistakes(asked: &[u8], word: &[u8]) -> usize {
    let mut rows = [[0_usize; LONG + 1]; 3];
    let [before, above, row] = &mut rows;
    above
        .iter_mut()
        .enumerate()
        .for_each(|(at, count)| *count = at);
    let (mut before, mut above, mut row) = (before, above, row);
    let mut last = 0;
    for (line, letter) in word.iter().map(u8::to_ascii_lowercase).enumerate() {
        let mut left = line + 1;
        let mut last_asked = 0;
        for (at, own) in asked.iter().enumerate() {
            let count = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(LONG);
            let mut best = (left + 1).min(count(above, at + 1) + 1);
            best = best.min(count(above, at) + usize::from(*own != letter));
            if line > 0 && at > 0 && *own == last && last_asked == letter {
                best = best.min(count(before, at - 1) + 1);
            }
            if let Some(to) = row.get_mut(at + 1) {
                *to = best;
            }
            (left, last_asked) = (best, *own);
        }
        if let Some(first) = row.first_mut() {
            *first = line + 1;
        }
        last = letter;
        (before, above, row) = (above, row, before);
    }
    above.get(asked.len()).copied().unwrap_or(LONG)
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
