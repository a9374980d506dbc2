//! Checks the claims of a summary against the text it replaces. A changed fact is in the summary between the words that
//! surround the right one, or in its line, so those are compared as well.

use std::collections::HashMap;
use std::hash::Hasher as _;

use crate::policy::fact_pieces::{self, each_ending, list_joined, list_keys, Part};
use crate::view::facts::{tokens, FactKind, Hash, Token};
use crate::view::verdict::NAMED;

/// How many words before and after a fact are compared, the most telling first.
const WINDOWS: [(usize, usize); 7] = [(3, 3), (2, 2), (1, 1), (3, 0), (0, 3), (2, 0), (0, 2)];

/// The first so many surroundings, and the two that begin here, are telling for paths and addresses as well.
const TELLING: usize = 3;
const BEFORE: usize = 4;

/// Hashes of the surroundings of a fact: its line and the windows, the most telling first.
type Surroundings = [Option<u64>; WINDOWS.len() + 1];

/// Signs of lines of code and data.
const CODE: &[u8] = b"\"'`=(<[{";

/// A fact that a summary states.
struct Claim<'a> {
    text: &'a str,
    key: u64,
    /// The keys of what it may be a piece or another form of.
    others: Vec<u64>,
    /// What it may be put together from.
    joined: Vec<Vec<Part>>,
    /// The keys of files' names from which it may differ in a letter of its ending.
    endings: Vec<u64>,
    /// `true` for a path and an address.
    is_long: bool,
    /// `true` for a size: a number that stands elsewhere proves nothing.
    is_size: bool,
    /// The key of the word that an ordinal counts.
    counted: Option<u64>,
    /// `true` if it may be the summary's own, such as the number of a list item: it is wrong only where the conversation has
    /// another one in the same surroundings.
    may_be_own: bool,
    surroundings: Surroundings,
}

/// All claims, and which of them are in the texts compared so far. They are kept by hash and not by claim: a fact that is
/// often in both would be compared as often as there are pairs.
pub(super) struct Claims<'a> {
    claims: Vec<Claim<'a>>,
    /// True for facts that are there.
    keys: HashMap<u64, bool>,
    /// True for pieces and other forms of facts that are there.
    pieces: HashMap<u64, bool>,
    /// True for names of files that are there, with a letter of the ending left open.
    endings: HashMap<u64, bool>,
    /// True for surroundings that are there.
    around: HashMap<u64, bool>,
    /// True for surroundings that are there with the same fact.
    whole: HashMap<(u64, u64), bool>,
}

impl<'a> Claims<'a> {
    /// Finds the claims of a summary.
    ///
    /// # Complexity
    /// O(text)
    pub fn new(text: &'a str) -> Self {
        let mut all = Self {
            claims: Vec::new(),
            keys: HashMap::new(),
            pieces: HashMap::new(),
            endings: HashMap::new(),
            around: HashMap::new(),
            whole: HashMap::new(),
        };
        let mut pieces: Vec<Token<'a>> = tokens(text).collect();
        let lists = list_numbers(text, &pieces);
        pieces.retain(|piece| lists.get(&piece.start) != Some(&ListNumber::Own));
        // The next line of a summary may come from elsewhere in the text.
        for line in pieces.chunk_by(|one, next| is_same_line(text, one, next)) {
            each(text, line, |position, piece, surroundings| {
                let key = piece.key();
                let others = list_keys(text, line, position);
                all.keys.insert(key, false);
                let joined = list_joined(piece.text);
                let parts = || joined.iter().flatten();
                all.keys.extend(parts().map(|part| (part.key, false)));
                let pieces = others.iter().copied().chain(parts().map(|part| part.piece));
                all.pieces.extend(pieces.map(|other| (other, false)));
                for around in surroundings.into_iter().flatten() {
                    all.around.insert(around, false);
                    let keys = std::iter::once(key).chain(others.iter().copied());
                    let keys = keys.chain(parts().map(|part| part.key));
                    all.whole.extend(keys.map(|key| ((around, key), false)));
                }
                let counted = fact_pieces::counted_word(line, position);
                all.pieces.extend(counted.map(|counted| (counted, false)));
                let is_quoted = lists.contains_key(&piece.start);
                let is_folder = is_folder(text, piece);
                let is_long = matches!(piece.kind(), Some(FactKind::Path | FactKind::Address));
                all.claims.push(Claim {
                    text: piece.text,
                    key,
                    others,
                    joined,
                    endings: Vec::new(),
                    is_long: is_long || is_folder,
                    is_size: fact_pieces::is_size(line, position),
                    counted,
                    may_be_own: is_quoted || piece.kind().is_none() && !is_folder,
                    surroundings,
                });
            });
            for (position, piece) in line.iter().enumerate() {
                all.add_name(line, position, piece);
            }
        }
        all
    }

    /// Adds a word that is no fact by its shape, but may be the name of a file with a changed ending.
    fn add_name(&mut self, line: &[Token<'a>], position: usize, piece: &Token<'a>) {
        let mut endings = Vec::new();
        if piece.kind().is_none() {
            each_ending(piece.text, |key| endings.push(key));
        }
        if endings.is_empty() {
            return;
        }
        let (key, others) = (piece.key(), list_keys("", line, position));
        self.endings.extend(endings.iter().map(|key| (*key, false)));
        self.keys.insert(key, false);
        self.pieces
            .extend(others.iter().map(|other| (*other, false)));
        self.claims.push(Claim {
            text: piece.text,
            key,
            others,
            joined: Vec::new(),
            endings,
            is_long: false,
            is_size: false,
            counted: None,
            may_be_own: true,
            surroundings: Surroundings::default(),
        });
    }

    /// Compares the claims with a text that the summary stands for.
    ///
    /// # Complexity
    /// O(text)
    pub fn compare(&mut self, text: &str) {
        if self.claims.is_empty() {
            return;
        }
        let pieces: Vec<Token<'_>> = tokens(text).collect();
        for (position, piece) in pieces.iter().enumerate() {
            if let Some(is_seen) = self.keys.get_mut(&piece.key()) {
                *is_seen = true;
            }
            if !self.endings.is_empty() && piece.kind() == Some(FactKind::Path) {
                each_ending(piece.text, |key| {
                    if let Some(is_seen) = self.endings.get_mut(&key) {
                        *is_seen = true;
                    }
                });
            }
            fact_pieces::each(&pieces, position, |key| {
                if let Some(is_seen) = self.pieces.get_mut(&key) {
                    *is_seen = true;
                }
            });
        }
        each(text, &pieces, |position, piece, surroundings| {
            for around in surroundings.into_iter().flatten() {
                if let Some(is_there) = self.around.get_mut(&around) {
                    *is_there = true;
                    let mut find = |key| {
                        if let Some(is_same) = self.whole.get_mut(&(around, key)) {
                            *is_same = true;
                        }
                    };
                    find(piece.key());
                    fact_pieces::each(&pieces, position, find);
                }
            }
        });
    }

    /// Returns those that are not there, each once.
    pub fn wrong(self) -> Vec<Box<str>> {
        let mut wrong: Vec<Box<str>> = Vec::new();
        for claim in &self.claims {
            let is_piece = |key: &u64| self.pieces.get(key) == Some(&true);
            let needs_more = claim.is_size || claim.counted.iter().any(is_piece);
            let is_there = !needs_more && self.keys.get(&claim.key) == Some(&true);
            let mut endings = claim.endings.iter();
            let is_changed = endings.any(|key| self.endings.get(key) == Some(&true));
            let is_own = claim.may_be_own && !is_changed;
            let is_part =
                |part: &Part| is_piece(&part.piece) || self.keys.get(&part.key) == Some(&true);
            let is_joined = || claim.joined.iter().any(|parts| parts.iter().all(is_part));
            let is_known = is_own || is_there || claim.others.iter().any(is_piece) || is_joined();
            let is_right = is_known && self.stands_there(claim);
            if !is_right && wrong.len() < NAMED && !wrong.iter().any(|one| **one == *claim.text) {
                wrong.push(claim.text.into());
            }
        }
        wrong
    }

    /// Returns true if a claim holds: its most telling surroundings that are in the texts decide.
    fn stands_there(&self, claim: &Claim<'_>) -> bool {
        // A word or two beside a path say little: many are read in, or moved to.
        let most = if claim.is_long { TELLING } else { usize::MAX };
        let surroundings = claim.surroundings.into_iter().enumerate();
        let telling =
            surroundings.filter(|(at, _)| *at < most || *at == BEFORE || *at == BEFORE + 1);
        let mut surroundings = telling.filter_map(|(_, around)| around);
        let decided = surroundings.find(|around| self.around.get(around) == Some(&true));
        let keys = std::iter::once(claim.key).chain(claim.others.iter().copied());
        let mut keys = keys.chain(claim.joined.iter().flatten().map(|part| part.key));
        decided.is_none_or(|around| keys.any(|key| self.whole.get(&(around, key)) == Some(&true)))
    }
}

/// Calls a function with the position of each fact among the pieces of a text, the shortest codes included, with the fact and
/// its surroundings.
fn each<'a>(
    text: &str,
    pieces: &[Token<'a>],
    mut take: impl FnMut(usize, &Token<'a>, Surroundings),
) {
    let words: Vec<u64> = pieces.iter().map(Token::word_key).collect();
    let lines = lines_around(text, pieces);
    for (position, (piece, line)) in pieces.iter().zip(lines).enumerate() {
        let is_code =
            || piece.text.is_ascii() && piece.text.bytes().any(|byte| byte.is_ascii_digit());
        if piece.kind().is_none() && !is_code() && !is_folder(text, piece) {
            continue;
        }
        let mut windows = WINDOWS.map(|reach| words_around(&words, position, reach));
        // A few words on one side stand beside other things as well, which such a fact is not changed from.
        let weak = windows.iter_mut().skip(BEFORE - 1).flatten();
        weak.for_each(|window| *window ^= shape(text, piece));
        let mut surroundings = Surroundings::default();
        let all = std::iter::once(line).chain(windows);
        let pairs = surroundings.iter_mut().zip(all);
        pairs.for_each(|(to, one)| *to = one);
        take(position, piece, surroundings);
    }
}

/// Returns a key of what a fact has in common with those that it may be changed from: a path has all but its digits.
fn shape(text: &str, piece: &Token<'_>) -> u64 {
    let kind = piece.kind();
    if !matches!(kind, Some(FactKind::Path | FactKind::Address)) && !is_folder(text, piece) {
        return kind.map_or(0, |kind| (kind as u64 + 1) << 32);
    }
    let mut hash = Hash::default();
    for byte in piece.text.bytes() {
        hash.byte(if byte.is_ascii_digit() { b'0' } else { byte });
    }
    hash.finish()
}

/// Returns true for two names with a slash between that are marked as a path: by a slash after them, or as code. Others may be
/// words such as "and/or".
fn is_folder(text: &str, piece: &Token<'_>) -> bool {
    let bytes = text.as_bytes();
    let at = |at: usize| bytes.get(at).copied();
    let is_joined = piece.text.is_ascii() && piece.text.contains('/');
    let end = piece.end();
    let is_code = || {
        let before = piece.start.checked_sub(1).and_then(at);
        before == Some(b'`') && at(end) == Some(b'`')
    };
    is_joined && (at(end) == Some(b'/') || is_code())
}

/// Returns a hash of so many words on either side of a piece; `None` at the ends of a text.
fn words_around(words: &[u64], position: usize, (before, after): (usize, usize)) -> Option<u64> {
    let start = position.checked_sub(before)?;
    let end = position.checked_add(1)?;
    let mut hash = Hash::default();
    hash.byte(before as u8);
    hash.byte(after as u8);
    let before = words.get(start..position)?;
    let after = words.get(end..end + after)?;
    for word in before.iter().chain(after) {
        hash.write(&word.to_le_bytes());
    }
    Some(hash.finish())
}

/// Returns a hash of each piece's line without the piece, from the first piece of the line to its last.
fn lines_around(text: &str, pieces: &[Token<'_>]) -> Vec<Option<u64>> {
    let mut around = Vec::with_capacity(pieces.len());
    for line in pieces.chunk_by(|one, next| is_same_line(text, one, next)) {
        add_line(text.as_bytes(), line, &mut around);
    }
    around
}

fn is_same_line(text: &str, one: &Token<'_>, next: &Token<'_>) -> bool {
    let between = text.as_bytes().get(one.end()..next.start);
    memchr::memchr(b'\n', between.unwrap_or_default()).is_none()
}

/// Adds these hashes of one line. They grow from either end of it, so that a line of thousands of numbers is read twice and
/// not thousands of times.
fn add_line(bytes: &[u8], line: &[Token<'_>], around: &mut Vec<Option<u64>>) {
    let (Some(first), Some(last)) = (line.first(), line.last()) else {
        return;
    };
    let has_letter = |piece: &Token<'_>| piece.text.bytes().any(|byte| !byte.is_ascii_digit());
    let lettered = line.iter().filter(|piece| has_letter(piece)).count();
    let whole = bytes.get(first.start..last.end()).unwrap_or_default();
    // A line of prose with a single word beside its number, such as "Step 2", says the same of many things.
    let is_code = || whole.iter().any(|byte| CODE.contains(byte));
    let tells_much = line.len() > 2 || is_code() || line.iter().any(Token::is_name);
    let mut hash = Hash::default();
    let mut at = last.end();
    let mut after: Vec<u64> = Vec::with_capacity(line.len());
    for piece in line.iter().rev() {
        let behind = bytes.get(piece.end()..at).unwrap_or_default();
        behind.iter().rev().for_each(|byte| hash.byte(*byte));
        after.push(hash.finish());
        let own = piece.text.bytes().rev();
        own.for_each(|byte| hash.byte(byte));
        at = piece.start;
    }
    hash = Hash::default();
    for (piece, after) in line.iter().zip(after.into_iter().rev()) {
        hash.write(bytes.get(at..piece.start).unwrap_or_default());
        let mut line = hash;
        line.write(&after.to_le_bytes());
        let others = lettered - usize::from(has_letter(piece));
        around.push((tells_much && others > 0).then(|| line.finish()));
        hash.write(piece.text.as_bytes());
        at = piece.end();
    }
}

/// A number at the beginning of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListNumber {
    /// The summary numbers its own lines: from 1, and another one follows.
    Own,
    /// It may come from the text.
    Quoted,
}

/// Returns the numbers of lists, by their places in the text.
fn list_numbers(text: &str, pieces: &[Token<'_>]) -> HashMap<usize, ListNumber> {
    let mut numbers = HashMap::new();
    // The last number of each list that goes on, with its place, by how many bytes stand before it.
    let mut open: HashMap<usize, (u16, usize)> = HashMap::new();
    for piece in pieces {
        let Some((indent, number)) = list_number(text, piece) else {
            continue;
        };
        let before = open.get(&indent).copied();
        let before = before.filter(|(before, _)| before + 1 == number);
        let fate = before.map_or(ListNumber::Quoted, |_| ListNumber::Own);
        if let Some((_, first)) = before {
            numbers.insert(first, fate);
        }
        numbers.insert(piece.start, fate);
        match before.is_some() || number == 1 {
            true => open.insert(indent, (number, piece.start)),
            false => open.remove(&indent),
        };
    }
    numbers
}

/// Returns the number at the beginning of a line, and how many bytes are before it.
fn list_number(text: &str, piece: &Token<'_>) -> Option<(usize, u16)> {
    let after = text.as_bytes().get(piece.end())?;
    let number = piece.text.parse().ok().filter(|_| piece.text.len() <= 3)?;
    let before = text.get(..piece.start)?;
    // Only the bytes that may come before such a number are looked at, not the whole line.
    let is_sign =
        |letter: char| letter.is_whitespace() && letter != '\n' || "#*>-".contains(letter);
    let rest = before.trim_end_matches(is_sign);
    let is_first = rest.is_empty() || rest.ends_with('\n');
    (is_first && b".)".contains(after)).then_some((before.len() - rest.len(), number))
}
