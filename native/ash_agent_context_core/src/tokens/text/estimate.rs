//! Estimates the tokens of a text from its bytes alone: no vocabulary, no allocation, one pass.
//!
//! A tokenizer cuts a text into words, up to three digits, runs of punctuation and white space, and has a token for most words
//! that are short or common. So the cost of a byte depends on its kind and the byte before it: the start of a word costs most,
//! the next letters nothing, and letters far into a long word part of a token again. A character outside of ASCII has the usual
//! cost of its script, which its first byte tells.

/// The cost of one token.
const TOKEN: u64 = 100;

/// The cost of each byte of a character after the first.
const REST: u64 = 10;

/// The kind of character that a byte starts, or that it continues one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LetterKind {
    Lower,
    Upper,
    Digit,
    Space,
    Line,
    Mark,
    Rest,
    Latin,
    Cyrillic,
    Alphabet,
    Indic,
    Symbol,
    Kana,
    Ideograph,
    Hangul,
    Emoji,
}

use LetterKind::*;

const KINDS: [LetterKind; 16] = [
    Lower, Upper, Digit, Space, Line, Mark, Rest, Latin, Cyrillic, Alphabet, Indic, Symbol, Kana,
    Ideograph, Hangul, Emoji,
];

impl LetterKind {
    const fn of(byte: u8) -> Self {
        match byte {
            b'a'..=b'z' => Lower,
            b'A'..=b'Z' => Upper,
            b'0'..=b'9' => Digit,
            b' ' | b'\t' => Space,
            b'\n' | b'\r' => Line,
            ..0x80 => Mark,
            0x80..0xC0 => Rest,
            0xC0..0xCA => Latin,
            0xD0 | 0xD1 => Cyrillic,
            0xCA..0xE0 => Alphabet, // Greek, Hebrew, Arabic
            0xE0 | 0xE1 => Indic,   // and Thai, Georgian, the Vietnamese part of Latin
            0xE3 => Kana,
            0xE4..0xEA => Ideograph,
            0xEA..0xEE => Hangul,
            0xE2 | 0xEE | 0xEF => Symbol,
            0xF0.. => Emoji,
        }
    }
}

/// Returns the cost of a byte. `run`: the letters or spaces before it, up to 15; `same`: it is the same as the one before.
const fn cost(before: LetterKind, run: usize, kind: LetterKind, same: bool) -> u8 {
    match (before, kind) {
        (Lower, Upper) if run < 2 => 185, // scrambled letters, such as base64
        (Lower, Upper) => 45,
        (Upper, Upper) => 20,
        (Upper, Lower) if run > 0 => 120, // the last capital starts a word
        (Lower | Upper, Lower) => match run {
            0..3 => 0,
            3..8 => 27,
            _ => 47,
        },
        (Space, Lower | Upper) => 70,
        (Digit, Lower | Upper) => 115,
        (Line | Mark, Lower | Upper) => 54,
        (_, Lower | Upper) => 0,
        (Digit, Digit) => 25,
        (Space, Digit) => 190, // only a word takes the space before it
        (_, Digit) => 100,
        (Mark, Mark) if same => 6,
        (Mark, Mark) => 40,
        (_, Mark) => 70,
        (Space, Space) if run == 0 => 73,
        (Space, Space) => 1,
        (_, Space) => 0,
        (Line, Line) => 2,
        (_, Line) => 95,
        (_, Rest) => 0,
        (_, Latin) => 145,
        (_, Cyrillic) => 23,
        (_, Alphabet) => 31,
        (_, Indic) => 22,
        (_, Symbol) => 20,
        (_, Kana) => 45,
        (_, Ideograph) => 66,
        (_, Hangul) => 57,
        (_, Emoji) => 160,
    }
}

/// Returns whether the next kind is of the same word or the same white space.
const fn goes_on(before: LetterKind, kind: LetterKind) -> bool {
    matches!(
        (before, kind),
        (Lower | Upper, Lower) | (Upper, Upper) | (Space, Space)
    )
}

const KIND: [u8; 256] = {
    let mut kinds = [0; 256];
    let mut byte = 0;
    while byte < kinds.len() {
        #[allow(clippy::indexing_slicing, reason = "at compile time")]
        {
            kinds[byte] = LetterKind::of(byte as u8) as u8;
        }
        byte += 1;
    }
    kinds
};

/// Indexed by [`pair`] of kinds: all bits if the run continues.
const GOES_ON: [u32; 256] = {
    let mut all = [0; 256];
    let mut pair = 0;
    while pair < all.len() {
        #[allow(clippy::indexing_slicing, reason = "at compile time")]
        if goes_on(KINDS[pair >> 4], KINDS[pair & 15]) {
            all[pair] = u32::MAX;
        }
        pair += 1;
    }
    all
};

/// Indexed by whether the byte is the same as the one before, by the pair of kinds, and by the run.
const COST: [u8; 8192] = {
    let mut costs = [0; 8192];
    let mut at = 0;
    while at < costs.len() {
        #[allow(clippy::indexing_slicing, reason = "at compile time")]
        {
            let (before, kind) = (KINDS[at >> 8 & 15], KINDS[at >> 4 & 15]);
            costs[at] = cost(before, at & 15, kind, at >> 12 == 1);
        }
        at += 1;
    }
    costs
};

/// Returns an estimate of the number of tokens.
pub(super) fn tokens(text: &[u8]) -> u64 {
    let (mut before, mut last, mut run) = (Line as usize, 0, 0_u32);
    let mut sum = 0;
    for &byte in text {
        let kind = usize::from(at(&KIND, usize::from(byte)));
        if kind == Rest as usize {
            sum += REST;
            continue;
        }
        let pair = before << 4 | kind;
        let same = usize::from(byte == last);
        let cost = at(&COST, same << 12 | pair << 4 | run.min(15) as usize);
        sum += u64::from(cost);
        run = run.wrapping_add(1) & at(&GOES_ON, pair);
        (before, last) = (kind, byte);
    }
    sum.div_ceil(TOKEN)
}

/// Returns an entry. All indices are within the tables; the compiler sees that and leaves out the check.
fn at<T: Copy + Default, const N: usize>(table: &[T; N], index: usize) -> T {
    table.get(index % N).copied().unwrap_or_default()
}
