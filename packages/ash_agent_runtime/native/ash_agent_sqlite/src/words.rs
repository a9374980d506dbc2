//! The words of iterations, for the index of the search. FTS5 cuts a word further where it has separators beyond ASCII, and folds letters.

use rusqlite::functions::{Aggregate, Context};
use rusqlite::Result;

/// Characters of an iteration that the index has.
const LONGEST: usize = 100_000;

/// Slots of the first table: a power of two.
const SLOTS: usize = 1 << 13;

/// Slots in which a word may be, so that no text takes longer than others: beyond them, a word is there twice.
const TRIES: usize = 8;

/// Probes of a filter for each word. At half of the bits, a quarter of all words that a text has not seem to be in it.
const PROBES: u32 = 2;

/// Words of 64 bits of the largest filter: a power of two.
const LARGEST: usize = 512;

/// The size of a filter that has no bits, since its text may have any word.
const ANY: u8 = u8::MAX;

/// `index_of(place, document)`: what the index has of the iterations of a group, in bytes. First their words, most of them once, since
/// FTS5 has an entry of a word for each row, and takes longer to find that it has it; then filters, which tell which iterations of a
/// group may have a word (Bloom filters), each behind its place in the group and its size. Before both, the number of bytes of the words.
pub struct IndexOf;

impl Aggregate<Words, Vec<u8>> for IndexOf {
    fn init(&self, _: &mut Context<'_>) -> Result<Words> {
        Ok(Words::default())
    }

    fn step(&self, context: &mut Context<'_>, words: &mut Words) -> Result<()> {
        let place = context.get(0)?;
        let mut left = LONGEST;
        each_text(context.get_raw(1).as_str()?, &mut |text| {
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
        words.filter.write(place, &mut words.filters);
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, words: Option<Words>) -> Result<Vec<u8>> {
        let words = words.unwrap_or_default();
        let size = u64::try_from(words.text.len()).unwrap_or(u64::MAX);
        Ok([&size.to_le_bytes(), words.text.as_bytes(), &words.filters].concat())
    }
}

/// The words and the filters of a result of `index_of`.
fn parts_of(index: &[u8]) -> Option<(&str, &[u8])> {
    let (size, rest) = index.split_first_chunk()?;
    let size = usize::try_from(u64::from_le_bytes(*size)).ok()?;
    let (words, filters) = rest.split_at_checked(size)?;
    Some((std::str::from_utf8(words).ok()?, filters))
}

/// `words_of(index)`
pub fn words_of(context: &Context<'_>) -> Result<Option<String>> {
    let parts = parts_of(context.get_raw(0).as_blob()?);
    Ok(parts.map(|(words, _)| words.to_owned()))
}

/// `filters_of(index)`
pub fn filters_of(context: &Context<'_>) -> Result<Option<Vec<u8>>> {
    let parts = parts_of(context.get_raw(0).as_blob()?);
    Ok(parts.map(|(_, filters)| filters.to_owned()))
}

/// `places_of(filters, query)`: the places in a group, as a JSON array, of the iterations that may have all words of a query.
pub fn places_of(context: &Context<'_>) -> Result<String> {
    let words = context.get_raw(1).as_str()?.split(['"', ' ']);
    // A filter has words of ASCII letters alone.
    let keys: Vec<u64> = words
        .filter(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric()))
        .map(|word| key_of(word.as_bytes(), word.len()))
        .collect();
    let mut places = Vec::new();
    let mut rest = context.get_raw(0).as_blob()?;
    while let Some(([place, size], more)) = rest.split_first_chunk() {
        let bytes = 1_usize.checked_shl((*size).into()).unwrap_or_default();
        let (bits, more) = more.split_at_checked(bytes).unwrap_or((more, &[]));
        if *size == ANY || keys.iter().all(|key| has_bits(bits, *key)) {
            places.push(place.to_string());
        }
        rest = more;
    }
    Ok(format!("[{}]", places.join(",")))
}

/// The bits of a word in a filter of 2^16 bits. Smaller ones have them folded.
fn bits_of(key: u64) -> impl Iterator<Item = usize> {
    let mixed = mix(key);
    (0..PROBES).map(move |probe| (mixed >> (16 * probe + 16) & 0xFFFF) as usize)
}

fn has_bits(filter: &[u8], key: u64) -> bool {
    let last = filter.len().saturating_mul(8).saturating_sub(1);
    bits_of(key).map(|bit| bit & last).all(|bit| {
        let byte = filter.get(bit / 8).copied().unwrap_or_default();
        byte >> (bit % 8) & 1 == 1
    })
}

/// The filter of a text that is read.
struct Filter {
    bits: [u64; LARGEST],
    has_any: bool,
}

impl Filter {
    fn put(&mut self, word: &str, key: u64) {
        if key & HIGH == 0 || word.is_ascii() {
            return self.set(key);
        }
        // FTS5 cuts it further at some of the others, and two of them are the same letter as one in ASCII.
        self.has_any |= word.contains(['\u{17F}', '\u{212A}']);
        for part in word.split(|char: char| !char.is_ascii()) {
            if !part.is_empty() {
                self.set(key_of(part.as_bytes(), part.len()));
            }
        }
    }

    fn set(&mut self, key: u64) {
        for bit in bits_of(key) {
            if let Some(bits) = self.bits.get_mut(bit / 64 % LARGEST) {
                *bits |= 1 << (bit % 64);
            }
        }
    }

    /// Appends a filter that is as small as it can be with half of its bits set, and begins anew.
    fn write(&mut self, place: u8, to: &mut Vec<u8>) {
        if self.has_any {
            to.extend([place, ANY]);
        } else {
            let mut bits = self.bits.to_vec();
            while bits.len() > 1 {
                let (one, other) = bits.split_at(bits.len() / 2);
                let half: Vec<u64> = one
                    .iter()
                    .zip(other)
                    .map(|(one, other)| one | other)
                    .collect();
                let ones: u32 = half.iter().map(|bits| bits.count_ones()).sum();
                if ones as usize > half.len() * 32 {
                    break;
                }
                bits = half;
            }
            let size = bits.len() * 8;
            to.extend([place, size.trailing_zeros() as u8]);
            to.extend(bits.iter().flat_map(|bits| bits.to_le_bytes()));
        }
        *self = Self::default();
    }
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            bits: [0; LARGEST],
            has_any: false,
        }
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
    /// Of the iteration that is read.
    filter: Filter,
    /// Of those before.
    filters: Vec<u8>,
}

impl Default for Words {
    fn default() -> Self {
        Self {
            text: String::new(),
            keys: vec![0; SLOTS],
            places: vec![0; SLOTS],
            found: 0,
            filter: Filter::default(),
            filters: Vec::new(),
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

/// Returns a bit for each of up to 64 bytes that belongs to a word.
fn letters_of(block: &[u8]) -> u64 {
    let mut eights = block.chunks_exact(8);
    let mut bits = 0;
    let mut at = 0_u32;
    let mut put = |eight: &[u8]| {
        // The high bits of eight bytes, behind each other.
        let high = letters(eight_of(eight)) >> 7;
        bits |= (high.wrapping_mul(0x0102_0408_1020_4080) >> 56) << at;
        at = at.saturating_add(8);
    };
    eights.by_ref().for_each(&mut put);
    if !eights.remainder().is_empty() {
        put(eights.remainder());
    }
    bits
}

/// The first eight bytes, with zeros behind fewer.
fn eight_of(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(eight) => u64::from_le_bytes(*eight),
        None => bytes
            .iter()
            .rev()
            .fold(0, |eight, byte| eight << 8 | u64::from(*byte)),
    }
}

/// Returns the key of the word that has the first bytes, so many. It is the same for words that differ in the case of ASCII letters, and
/// no other word of up to eight ASCII bytes has it. Filters in files have keys, so they stay as they are.
fn key_of(bytes: &[u8], size: usize) -> u64 {
    let of_word =
        |bytes, size: usize| (eight_of(bytes) | SMALL) & u64::MAX >> (64 - 8 * size.clamp(1, 8));
    let mut key = of_word(bytes, size);
    let mut at = 8;
    while at < size {
        let more = of_word(bytes.get(at..).unwrap_or_default(), size - at);
        key = (key.wrapping_mul(MIX).rotate_left(32) ^ more) | 1 << 63;
        at += 8;
    }
    key
}

const fn mix(key: u64) -> u64 {
    (key ^ (key >> 32)).wrapping_mul(MIX)
}

impl Words {
    fn cut(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let mut start = None;
        let mut take = |start: usize, end: usize| {
            if let (Some(word), Some(rest)) = (text.get(start..end), bytes.get(start..)) {
                self.put(word, key_of(rest, word.len()));
            }
        };
        let mut before = 0;
        for (number, block) in bytes.chunks(64).enumerate() {
            let letters = letters_of(block);
            // Where a word begins or ends.
            let mut edges = letters ^ (letters << 1 | before);
            before = letters >> 63;
            while edges != 0 {
                let at = number * 64 + edges.trailing_zeros() as usize;
                edges &= edges - 1;
                match start.take() {
                    Some(start) => take(start, at),
                    None => start = Some(at),
                }
            }
        }
        if let Some(start) = start {
            take(start, bytes.len());
        }
    }

    fn put(&mut self, word: &str, key: u64) {
        self.filter.put(word, key);
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
    let first = mix(key) >> 40;
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
