//! What people make of a fact when they say it again: the end of a path, the start of a hash, a number of a range, a rounded
//! size, an ordinal. Such a piece is cut where a word of the fact ends, so a changed letter is in none.

use std::hash::Hasher as _;

use crate::view::facts::{key, FactKind, Hash, Token};

/// A piece has at most so many words of its fact, so that a long one takes linear time; its beginning may have more.
const WORDS: usize = 16;

/// The ending of a file's name has at most so many letters.
const ENDING: usize = 5;

/// The fewest bytes of a piece with letters, and of one with digits alone out of a fact with letters.
const LETTERS: usize = 3;
const DIGITS: usize = 4;

/// The bytes of a hash from which one is shortened, and those of its shortened form.
const HASH: usize = 16;
const SHORT: std::ops::Range<usize> = 7..HASH;

/// A word within so many bytes of a number belongs to it.
const NEAR: usize = 3;

/// The units of sizes, with their thousands.
const UNITS: [(&str, i32); 3] = [("k", 1), ("m", 2), ("g", 3)];

/// A number after one of these words is rounded.
const ABOUT: &str = " about around roughly approximately nearly almost some ";

/// A number beside one of these words is a size: a listing of files has the month after it.
const SIZES: &str =
    " b byte bytes size filesize length content-length characters chars tokens jan feb mar apr may jun jul aug sep oct nov dec ";

/// A name within so many words of a size is the name of what has it.
const OWNER: usize = 6;

/// A month begins so, and an ordinal after one is a date.
const MONTHS: &str = " jan feb mar apr may jun jul aug sep oct nov dec ";

/// An ordinal before one of these words counts nothing: it is a date, or a word is left out.
const LINKS: &str =
    " a after an and are as at be been before but by for from had has have he i if in instead into is it its not of on or \
     over she since so than that the then they this to until was we were when where which who will with would you ";

/// Calls a function with the keys of the pieces and of the other forms of a fact.
///
/// # Complexity
/// O(the fact)
pub(super) fn each(pieces: &[Token<'_>], position: usize, mut take: impl FnMut(u64)) {
    let Some(piece) = pieces.get(position) else {
        return;
    };
    let has_letter = piece.text.bytes().any(|byte| byte.is_ascii_alphabetic());
    let number = number(piece.text);
    if number.is_none() {
        each_piece(piece.text.as_bytes(), has_letter, &mut take);
    }
    let besides = beside(pieces, position);
    if let Some(number) = number.filter(|number| *number >= 1_000.0) {
        if besides.iter().flatten().any(|word| is_in(SIZES, word)) {
            each_size(number, 0, &owners(pieces, position), &mut take);
        }
    }
    if let Some((number, power, _)) = size(pieces, position) {
        let owners = owners(pieces, position);
        each_size(number * 1_000_f64.powi(power), power, &owners, &mut take);
        (0..3).for_each(|decimals| take(sized("1024", number, decimals, power)));
    }
    if let Some(number) = number {
        let decimals = piece.text.split_once('.').map_or(0, |(_, of)| of.len());
        (0..decimals.min(4)).for_each(|decimals| take(rounded(&format!("{number:.decimals$}"))));
        take(rounded(piece.text));
        each_round(number, |number| take(rounded(&format!("{number:.0}"))));
    }
    if let Some(number) = number.map(|_| piece.text).or(ordinal_number(piece.text)) {
        for word in besides.iter().flatten() {
            take(ordinal(number, word));
            take(counted(word));
        }
    }
}

/// Returns the keys of what a word of a summary may be a piece or another form of.
pub(super) fn list_keys(text: &str, pieces: &[Token<'_>], position: usize) -> Vec<u64> {
    let Some(piece) = pieces.get(position) else {
        return Vec::new();
    };
    let mut keys = Vec::new();
    if let Some((number, power, ending)) = size(pieces, position) {
        let decimals = piece.text.split_once('.').map_or(0, |(_, of)| {
            of.bytes().take_while(u8::is_ascii_digit).count()
        });
        if ending != "ib" {
            keys.push(sized("1000", number, decimals, power));
        }
        // In units of 1,024 many a wrong size is that of another thing, so one in few digits has to stand beside its name.
        let of_1024 = sized("1024", number, decimals, power);
        let of_owners = owners(pieces, position).into_iter();
        keys.extend(of_owners.map(|owner| owned(of_1024, owner)));
        if ending != "b" || decimals > 1 || decimals == 1 && number >= 10.0 {
            keys.push(of_1024);
        }
    }
    if is_size(pieces, position) {
        return keys;
    }
    keys.push(key(&["piece", piece.text]));
    // People begin a path within a project with a slash.
    let within = piece.text.strip_prefix('/');
    keys.extend(within.map(|within| key(&["piece", within])));
    let is_share = text.as_bytes().get(piece.end()) == Some(&b'%');
    let [before, _] = beside(pieces, position);
    let is_about = piece.text.starts_with('~') || before.is_some_and(|word| is_in(ABOUT, word));
    if is_share || is_about || piece.text.contains('.') {
        keys.push(rounded(
            &piece.text.trim_start_matches('~').replace(',', ""),
        ));
    }
    if let Some(number) = ordinal_number(piece.text) {
        // The word before it is mostly an article.
        let [before, after] = beside(pieces, position);
        keys.extend(after.or(before).map(|word| ordinal(number, word)));
    }
    keys
}

/// Returns what a word may be put together from, each time all of its parts: both ends of a range of codes, names with slashes
/// between, or a path that goes on with the folder where another one ends.
pub(super) fn list_joined(text: &str) -> Vec<Vec<Part>> {
    let parts = |of: &[&str]| of.iter().map(|text| Part::new(text)).collect();
    let mut joined = Vec::new();
    if let Some((from, to)) = text.split_once('-') {
        let stem = |code: &str| {
            code.trim_end_matches(|letter: char| letter.is_ascii_digit())
                .len()
        };
        let number = |code: &str| code.get(stem(code)..)?.parse::<u64>().ok();
        let is_code =
            (1..from.len()).contains(&stem(from)) && from.get(..stem(from)) == to.get(..stem(to));
        if is_code && number(from) < number(to) {
            joined.push(parts(&[from, to]));
        }
    }
    let names: Vec<&str> = text.split('/').take(WORDS + 1).collect();
    if !(2..=WORDS).contains(&names.len()) {
        return joined;
    }
    let is_word =
        |name: &&str| name.len() >= LETTERS && name.bytes().all(|byte| byte.is_ascii_alphabetic());
    let is_name = |name: &&str| {
        Token {
            text: name,
            start: 0,
        }
        .is_name()
    };
    if names.iter().all(is_word) && names.iter().any(is_name) {
        joined.push(parts(&names));
    }
    // The folder between is in both.
    let mut start = 0;
    for name in &names {
        let end = start + name.len();
        if let (Some(head), Some(tail)) = (text.get(..end), text.get(start..)) {
            if head.contains('/') && end < text.len() && !name.is_empty() {
                joined.push(parts(&[head, tail]));
            }
        }
        start = end + 1;
    }
    joined
}

/// A part of a word that is put together, with its keys as a word and as a piece of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub key: u64,
    pub piece: u64,
}

impl Part {
    fn new(text: &str) -> Self {
        let piece = key(&["piece", text]);
        let key = Token { text, start: 0 }.key();
        Self { key, piece }
    }
}

/// Returns the key of the word that an ordinal of a summary counts. If the conversation counts it too, the ordinal proves
/// nothing where it stands beside another word.
pub(super) fn counted_word(pieces: &[Token<'_>], position: usize) -> Option<u64> {
    let piece = pieces.get(position)?;
    ordinal_number(piece.text)?;
    let [before, after] = beside(pieces, position);
    let is_month = |word: &Token<'_>| {
        let text = word.text.get(..3).unwrap_or_default();
        is_in(MONTHS, &Token { text, ..*word })
    };
    let after = after.filter(|word| word.start == piece.end() + 1 && !is_in(LINKS, word));
    after.filter(|_| !before.is_some_and(is_month)).map(counted)
}

/// Calls a function with the key of each run of words of a fact, and of each short form of a hash.
fn each_piece(bytes: &[u8], has_letter: bool, take: &mut impl FnMut(u64)) {
    let is_sign = |at: usize| {
        bytes
            .get(at)
            .is_some_and(|byte| b"/.-_:=@?&#~".contains(byte))
    };
    let starts = (0..bytes.len()).filter(|at| *at == 0 || is_sign(at - 1));
    for start in starts {
        let mut hash = Hash::default();
        b"piece\xff".iter().for_each(|byte| hash.byte(*byte));
        let (mut words, mut has_letters, mut is_hash) = (0, false, true);
        for (at, byte) in bytes.iter().enumerate().skip(start) {
            hash.byte(*byte);
            has_letters |= !byte.is_ascii_digit();
            is_hash &= byte.is_ascii_hexdigit();
            let length = at + 1 - start;
            let is_end = at + 1 == bytes.len() || is_sign(at + 1) && !is_sign(at);
            let is_short = is_hash && SHORT.contains(&length) && is_hash_at(bytes, start);
            let least = match (has_letters, has_letter) {
                (true, _) => LETTERS,
                (false, true) => DIGITS,
                (false, false) => 1,
            };
            if is_short || is_end && length >= least && length < bytes.len() {
                let mut whole = hash;
                whole.byte(0xff);
                take(whole.finish());
            }
            words += usize::from(is_end);
            if words == WORDS && start > 0 {
                break;
            }
        }
    }
}

/// Calls a function with the keys of a file's name with any letter of its ending left open, if it has one.
pub(super) fn each_ending(text: &str, mut take: impl FnMut(u64)) {
    let name = text.rsplit('/').next().unwrap_or(text);
    let Some((stem, ending)) = name.rsplit_once('.') else {
        return;
    };
    let is_ending = ending.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_ending && !stem.is_empty() && (2..=ENDING).contains(&ending.len()) {
        for at in 0..ending.len() {
            if let (Some(before), Some(after)) = (ending.get(..at), ending.get(at + 1..)) {
                take(key(&["ending", stem, before, after]));
            }
        }
    }
}

fn is_hash_at(bytes: &[u8], start: usize) -> bool {
    let hash = bytes.get(start..start + HASH).unwrap_or_default();
    hash.len() == HASH && hash.iter().all(u8::is_ascii_hexdigit)
}

/// Returns the value of digits with commas and a point.
fn number(text: &str) -> Option<f64> {
    let is_number = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b",.".contains(&byte));
    is_number.then(|| text.replace(',', "").parse().ok())?
}

/// Returns the number of a size, the power of its unit and the ending of that: of `12KB`, or of `12` before `KB`.
fn size(pieces: &[Token<'_>], position: usize) -> Option<(f64, i32, &'static str)> {
    let piece = pieces.get(position)?;
    let digits = piece.text.trim_start_matches('~');
    let digits = digits.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let [_, after] = beside(pieces, position);
    let unit = match piece.text.trim_start_matches('~').get(digits.len()..)? {
        _ if digits.is_empty() => return None,
        "" => after?.text,
        unit => unit,
    };
    let unit = unit.to_ascii_lowercase();
    let ending = ["ib", "b"].into_iter().find(|end| unit.ends_with(end));
    let ending = ending.unwrap_or_default();
    let unit = unit.strip_suffix(ending)?;
    let (_, power) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Some((number(digits)?, *power, ending))
}

/// Calls a function with the keys of a size in thousands, in both senses, with up to two decimals. `least`: its own unit.
fn each_size(size: f64, least: i32, owners: &[u64], take: &mut impl FnMut(u64)) {
    for (_, power) in UNITS.iter().filter(|(_, power)| *power >= least) {
        for (base, unit, owners) in [("1000", 1_000_f64, &[][..]), ("1024", 1_024.0, owners)] {
            let number = size / unit.powi(*power);
            for decimals in (0..3).filter(|_| number >= 0.1) {
                let sized = sized(base, number, decimals, *power);
                take(sized);
                owners.iter().for_each(|owner| take(owned(sized, *owner)));
            }
        }
    }
}

fn sized(base: &str, number: f64, decimals: usize, power: i32) -> u64 {
    let number = format!("{number:.decimals$}");
    key(&["size", base, &number, &power.to_string()])
}

/// Returns the keys of the names near a size.
fn owners(pieces: &[Token<'_>], position: usize) -> Vec<u64> {
    let near = position.saturating_sub(OWNER)..(position + OWNER + 1).min(pieces.len());
    let is_name = |word: &Token<'_>| match word.kind() {
        Some(kind) => kind != FactKind::Number,
        None => word.is_name(),
    };
    let near = pieces.get(near).into_iter().flatten();
    near.filter(|word| is_name(word)).map(Token::key).collect()
}

fn owned(size: u64, owner: u64) -> u64 {
    size ^ owner.rotate_left(1)
}

/// Returns the key of a word that numbers stand beside.
fn counted(word: &Token<'_>) -> u64 {
    key(&["counted"]) ^ word.word_key()
}

fn rounded(number: &str) -> u64 {
    key(&["rounded", number])
}

/// Returns the number of an ordinal in digits, such as `3rd`.
fn ordinal_number(text: &str) -> Option<&str> {
    let endings = ["st", "nd", "rd", "th"].iter();
    let mut numbers = endings.filter_map(|ending| text.strip_suffix(ending));
    numbers.find(|number| number.parse::<u64>().is_ok())
}

fn ordinal(number: &str, word: &Token<'_>) -> u64 {
    let number = number.trim_start_matches('0');
    key(&["ordinal", number, &word.word_key().to_string()])
}

/// Calls a function with a number that is rounded to its first two and three digits.
fn each_round(number: f64, mut take: impl FnMut(f64)) {
    let mut unit = 1.0;
    while number / unit >= 100.0 {
        if number / unit < 10_000.0 {
            take((number / unit / 10.0).round() * unit * 10.0);
        }
        unit *= 10.0;
    }
}

fn is_in(words: &str, word: &Token<'_>) -> bool {
    word.text.len() < NEAR + HASH
        && words.contains(&format!(" {} ", word.text.to_ascii_lowercase()))
}

/// Returns true for a number with a unit, which says more than the number.
pub(super) fn is_size(pieces: &[Token<'_>], position: usize) -> bool {
    let is_unit = |word: &Token<'_>| word.text.ends_with(['b', 'B']);
    let [_, after] = beside(pieces, position);
    let own = pieces
        .get(position)
        .filter(|piece| number(piece.text).is_none());
    size(pieces, position).is_some() && own.or(after).is_some_and(is_unit)
}

/// Returns the words that stand right before and right after a piece.
fn beside<'p, 'a>(pieces: &'p [Token<'a>], position: usize) -> [Option<&'p Token<'a>>; 2] {
    let at = |position: Option<usize>| position.and_then(|at| pieces.get(at));
    let piece = at(Some(position));
    let is_near = |one: Option<&Token<'_>>, next: Option<&Token<'_>>| {
        let both = one.zip(next);
        both.is_some_and(|(one, next)| next.start.saturating_sub(one.end()) <= NEAR)
    };
    let (before, after) = (at(position.checked_sub(1)), at(position.checked_add(1)));
    [
        before.filter(|before| is_near(Some(before), piece)),
        after.filter(|after| is_near(piece, Some(after))),
    ]
}
