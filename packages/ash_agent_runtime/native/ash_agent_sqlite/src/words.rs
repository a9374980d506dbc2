//! The words of iterations, for the index of the search. FTS5 cuts a word further where it has separators beyond ASCII, and folds letters.

use rusqlite::functions::{Aggregate, Context};
use rusqlite::Result;

/// Characters of an iteration that the index has.
const LONGEST: usize = 100_000;

/// Slots of the first table: a power of two.
const SLOTS: usize = 1 << 13;

/// Slots in which a word may be, so that no text takes longer than others: beyond them, a word is there twice.
const TRIES: usize = 8;

/// `words_of(document)`: the words of the iterations of a group, most of them once, since FTS5 has an entry of a word for each row, and
/// takes longer to find that it has it.
pub struct WordsOf;

impl Aggregate<Words, String> for WordsOf {
    fn init(&self, _: &mut Context<'_>) -> Result<Words> {
        Ok(Words::default())
    }

    fn step(&self, context: &mut Context<'_>, words: &mut Words) -> Result<()> {
        let mut left = LONGEST;
        each_text(context.get_raw(0).as_str()?, &mut |text| {
            let size = text.chars().count();
            let end = if size > left {
                text.char_indices().nth(left)
            } else {
                None
            };
            words.cut(end.map_or(text, |(end, _)| text.split_at(end).0));
            // A separator comes behind each text.
            left = left.saturating_sub(size.saturating_add(1));
        });
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, words: Option<Words>) -> Result<String> {
        Ok(words.unwrap_or_default().text)
    }
}

pub struct Words {
    /// A space comes behind each.
    text: String,
    /// A hash table of the keys of words; 0 is free.
    keys: Vec<u64>,
    /// Where the word of a key is in the text.
    places: Vec<u32>,
    found: usize,
}

impl Default for Words {
    fn default() -> Self {
        Self {
            text: String::new(),
            keys: vec![0; SLOTS],
            places: vec![0; SLOTS],
            found: 0,
        }
    }
}

/// The same for each of eight bytes.
const fn each(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// The bit that small letters and digits have, and capital letters have not.
const SMALL: u64 = each(0x20);

/// The bit that only bytes beyond ASCII have.
const HIGH: u64 = each(0x80);

const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

const fn is_from(bytes: u64, byte: u8) -> u64 {
    bytes.wrapping_add(each(0x80 - byte))
}

/// Returns the high bit of each byte that belongs to a word: ASCII letters, digits, and whatever is not ASCII.
const fn letters(eight: u64) -> u64 {
    let (digits, small) = (eight & !HIGH, (eight | SMALL) & !HIGH);
    let is_digit = is_from(digits, b'0') & !is_from(digits, b'9' + 1);
    let is_letter = is_from(small, b'a') & !is_from(small, b'z' + 1);
    (is_digit | is_letter | eight) & HIGH
}

/// Returns the size of the word at the beginning, and its key, which is the same for words that differ in the case of ASCII letters. No other
/// word has a key without high bits.
fn first_word(text: &[u8]) -> (usize, u64) {
    let mut size = 0_usize;
    let mut key = 0_u64;
    loop {
        let rest = text.get(size..).unwrap_or_default();
        let mut eight = [0; 8];
        match rest.first_chunk() {
            Some(chunk) => eight = *chunk,
            None => eight
                .iter_mut()
                .zip(rest)
                .for_each(|(to, from)| *to = *from),
        }
        let eight = u64::from_le_bytes(eight);
        let after = (!letters(eight) & HIGH).trailing_zeros() & !7;
        let of_word = (eight | SMALL) & !u64::MAX.checked_shl(after).unwrap_or_default();
        if size == 0 {
            key = of_word;
        } else if after > 0 {
            key = (key.wrapping_mul(MIX).rotate_left(32) ^ of_word) | 1 << 63;
        }
        size = size.saturating_add(after as usize / 8);
        if after < 64 {
            return (size, key);
        }
    }
}

impl Words {
    fn cut(&mut self, text: &str) {
        let mut rest = text;
        loop {
            let (size, key) = first_word(rest.as_bytes());
            let Some((word, more)) = rest.split_at_checked(size) else {
                return;
            };
            if size > 0 {
                self.put(word, key);
            }
            let Some(after) = more.get(1..) else { return };
            rest = after;
        }
    }

    fn put(&mut self, word: &str, key: u64) {
        let mut free = None;
        for slot in slots_of(key, self.keys.len()) {
            match self.keys.get(slot) {
                Some(0) => {
                    free = Some(slot);
                    break;
                }
                Some(other) if *other == key && (key & HIGH == 0 || self.has(slot, word)) => return,
                _ => {}
            }
        }
        if let (Some(slot), Ok(place)) = (free, u32::try_from(self.text.len())) {
            self.set(slot, key, place);
            self.found = self.found.saturating_add(1);
        }
        self.text.push_str(word);
        self.text.push(' ');
        if self.found > self.keys.len() / 2 {
            self.grow();
        }
    }

    fn has(&self, slot: usize, word: &str) -> bool {
        let place = self.places.get(slot).map_or(0, |place| *place as usize);
        let text = self.text.get(place..).unwrap_or_default();
        let other = text.split_once(' ').map_or(text, |(other, _)| other);
        other.eq_ignore_ascii_case(word)
    }

    fn set(&mut self, slot: usize, key: u64, place: u32) {
        if let (Some(keys), Some(places)) = (self.keys.get_mut(slot), self.places.get_mut(slot)) {
            (*keys, *places) = (key, place);
        }
    }

    fn grow(&mut self) {
        let size = self.keys.len().saturating_mul(2);
        let keys = std::mem::replace(&mut self.keys, vec![0; size]);
        let places = std::mem::replace(&mut self.places, vec![0; size]);
        for (key, place) in keys.into_iter().zip(places).filter(|(key, _)| *key != 0) {
            let free = slots_of(key, size).find(|slot| self.keys.get(*slot) == Some(&0));
            if let Some(slot) = free {
                self.set(slot, key, place);
            }
        }
    }
}

fn slots_of(key: u64, size: usize) -> impl Iterator<Item = usize> {
    let first = (key ^ (key >> 32)).wrapping_mul(MIX) >> 40;
    (first as usize..)
        .take(TRIES)
        .map(move |slot| slot & size.saturating_sub(1))
}

/// What the values of a part of an iteration are.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Iteration,
    Messages,
    Message,
    Content,
    Call,
    /// A call's name, arguments or result.
    Texts,
    Other,
}

impl Part {
    fn at(self, key: &str) -> Self {
        match (self, key) {
            (Self::Iteration, "messages") => Self::Messages,
            (Self::Message, "content") => Self::Content,
            (Self::Message, "tool_calls") => Self::Call,
            (Self::Call, "name" | "arguments" | "result") => Self::Texts,
            (Self::Call, _) => Self::Call,
            (Self::Content, "type") | (Self::Content | Self::Texts, "$blob") => Self::Other,
            (Self::Content | Self::Texts, _) => self,
            _ => Self::Other,
        }
    }

    fn item(self) -> Self {
        if self == Self::Messages {
            Self::Message
        } else {
            self
        }
    }
}

/// Finds the strings of an iteration that a search looks into.
fn each_text(document: &str, take: &mut impl FnMut(&str)) {
    let mut open = Vec::new();
    let mut part = Part::Iteration;
    let mut key = None;
    let mut rest = document;
    while let Some(at) = rest.find(['"', '{', '[', '}', ']', ',']) {
        let mut chars = rest.split_at(at).1.chars();
        let mark = chars.next();
        rest = chars.as_str();
        match mark {
            Some('"') => {
                let (text, after) = string(rest);
                rest = after;
                if rest.trim_start().starts_with(':') {
                    key = Some(text);
                    continue;
                }
                match key.map_or(part, |key| part.at(key)) {
                    Part::Content | Part::Texts if text.contains('\\') => take(&unescape(text)),
                    Part::Content | Part::Texts => take(text),
                    _ => {}
                }
            }
            Some('{' | '[') => {
                open.push(part);
                part = key.map_or(part.item(), |key| part.at(key));
            }
            Some('}' | ']') => part = open.pop().unwrap_or(Part::Other),
            _ => {}
        }
        key = None;
    }
}

/// A string from behind its first quote, and what comes after it.
fn string(text: &str) -> (&str, &str) {
    let mut end = 0;
    while let Some(more) = text.get(end..).and_then(|rest| rest.find('"')) {
        end = end.saturating_add(more);
        let before = text.get(..end).unwrap_or_default();
        let after = text.get(end.saturating_add(1)..).unwrap_or_default();
        let escapes = before.bytes().rev().take_while(|byte| *byte == b'\\');
        if escapes.count() % 2 == 0 {
            return (before, after);
        }
        end = end.saturating_add(1);
    }
    (text, "")
}

/// The text that a string stands for, with other separators.
fn unescape(text: &str) -> String {
    let mut units: Vec<u16> = Vec::new();
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        if !before.is_empty() && !units.is_empty() {
            plain.push_str(&String::from_utf16_lossy(&units));
            units.clear();
        }
        plain.push_str(before);
        let unit = escape
            .strip_prefix('u')
            .and_then(|code| code.get(..4))
            .and_then(|code| u16::from_str_radix(code, 16).ok());
        let size = if unit.is_some() { 5 } else { 1 };
        units.push(unit.unwrap_or(32));
        rest = escape.get(size..).unwrap_or_default();
    }
    plain.push_str(&String::from_utf16_lossy(&units));
    plain.push_str(rest);
    plain
}
