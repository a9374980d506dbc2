//! The facts of texts: things that a model cannot make up, found by their shape. Receipts, indexes and checks of summaries
//! all find them by this file, so they agree on which texts are facts.

use std::cmp::Reverse;
use std::hash::Hasher;

use crate::log::marks::{FactCounts, FactMark};
use crate::value::keys::KeySet;
use crate::value::steps;
use crate::value::word::words;

words! {
    /// The kinds of facts.
    pub enum FactKind {
        /// A path or the name of a file.
        Path = "path",
        /// The address of a page or of a person.
        Address = "address",
        /// Something with letters and digits, such as a key or a hash.
        Id = "id",
        /// A number, with the word beside it.
        Number = "number",
        /// A line that tells of an error.
        Error = "error",
        /// How a program ended.
        ExitCode = "exit_code",
        /// A name that a later call used.
        Name = "name",
        /// A person's wish, or their words about a call.
        Decision = "decision",
    }
}

/// A line that is a fact is cut after so many bytes.
const LINE: usize = 200;

/// Finding the facts of a text takes so many times as long as copying it.
pub(crate) const FACTS: usize = 30;

/// A word within so many bytes of a number belongs to it.
const NEAR: usize = 16;

/// Endings of the names of files; other words with a dot are names of functions, or ends of sentences.
const ENDINGS: &str =
    " bash c cc cfg conf cpp cs css csv diff dockerfile eex env erl ex exs fish gif go gz h heex hpp hs html ico ini \
     ipynb java jpeg jpg js json jsonl jsx key kt leex less livemd lock log lua m md mjs ml pdf pem php png proto ps1 py \
     rb rs rst sass scala scss sh sql sqlite svg swift tar tex toml ts tsv tsx txt vue wasm xlsx xml yaml yml zig zip zsh ";

/// Words that tell of an error.
const ERRORS: &str =
    " err error errors exception fail failed failure fatal panic panicked traceback segfault enoent eacces abort aborted ";

/// The facts of a text are counted in so many bytes, and told as at least so many where it is longer.
const COUNTED: usize = 64 * 1024;

/// So many kinds of facts are told.
const KINDS: usize = 3;

/// A piece of a text: a word, a number, a path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token<'a> {
    pub text: &'a str,
    /// The index of its first byte.
    pub start: usize,
}

/// A fact of a text, or a word that may be one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'a> {
    /// `None`: a word, which is a fact if a later call uses it.
    pub kind: Option<FactKind>,
    /// The text that is shown.
    pub text: &'a str,
    /// The piece itself: a number without its word.
    pub piece: &'a str,
    /// The key by which it is found again.
    pub key: u64,
    /// A second key: of a number with the word on its other side.
    pub other: Option<u64>,
}

impl<'a> Found<'a> {
    const fn new(kind: Option<FactKind>, text: &'a str, piece: &'a str, key: u64) -> Self {
        Self {
            kind,
            text,
            piece,
            key,
            other: None,
        }
    }
}

impl<'a> Token<'a> {
    pub fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// Returns the kind that its shape shows.
    pub fn kind(&self) -> Option<FactKind> {
        let text = self.text;
        // Most words.
        if text.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return None;
        }
        let digits = text.bytes().filter(u8::is_ascii_digit).count();
        let letters = text.bytes().filter(u8::is_ascii_alphabetic).count();
        // Searching a few bytes costs less so than with what finds a text.
        let has = |sign: u8| text.bytes().any(|byte| byte == sign);
        let has_scheme = has(b':') && text.contains("://");
        if has_scheme || has(b'@') && text.split_once('@').is_some_and(is_person) {
            return Some(FactKind::Address);
        }
        if (has(b'/') || has(b'.')) && is_path(text, letters) {
            return Some(FactKind::Path);
        }
        if digits == 0 {
            return None;
        }
        let starts = text.starts_with(|letter: char| letter.is_ascii_digit());
        if letters == 0 || starts && letters <= 2 && !text.contains(['-', '_']) && digits <= 9 {
            return Some(FactKind::Number);
        }
        (text.len() >= 4 && text.is_ascii()).then_some(FactKind::Id)
    }

    /// Returns true for a program's name, which joins parts together as no word of a language does.
    pub fn is_name(&self) -> bool {
        let inner = self.text.bytes().zip(self.text.bytes().skip(1));
        let has_hump = inner
            .clone()
            .any(|(a, b)| a.is_ascii_lowercase() && b.is_ascii_uppercase());
        self.text.len() >= 4 && (has_hump || self.text.contains(['_', '.', ':']))
    }

    /// Returns the key by which it is found again.
    pub fn key(&self) -> u64 {
        let mut hash = Hash::default();
        let digits = self.text.bytes().filter(|byte| *byte != b',');
        digits.for_each(|byte| hash.byte(byte));
        hash.byte(0xff);
        hash.finish()
    }

    /// Returns a key that ignores case, for words around a fact.
    pub fn word_key(&self) -> u64 {
        let mut hash = Hash::default();
        let letters = self.text.bytes().map(|byte| byte.to_ascii_lowercase());
        letters.for_each(|byte| hash.byte(byte));
        hash.finish()
    }
}

fn is_person((name, host): (&str, &str)) -> bool {
    !name.is_empty() && host.contains('.') && !host.contains(['@', '/'])
}

fn is_path(text: &str, letters: usize) -> bool {
    let last = text.rsplit('/').next().unwrap_or(text);
    let ending = last
        .rsplit_once('.')
        .filter(|(name, _)| !name.is_empty() || text.len() > 3);
    let has_ending = ending.is_some_and(|(_, ending)| is_in(ENDINGS, ending));
    if !text.contains('/') {
        return has_ending;
    }
    let slashes = text.bytes().filter(|byte| *byte == b'/').count();
    let is_rooted = text.starts_with(['/', '~']) && text.len() > 2;
    let is_joined =
        text.contains(['.', '_', '-']) || text.bytes().any(|byte| byte.is_ascii_digit());
    letters > 1 && (has_ending || is_rooted || slashes > 1 || is_joined)
}

/// Returns true if a list of words with spaces around them has a word, ignoring case.
fn is_in(words: &str, word: &str) -> bool {
    const LONG: usize = 12;
    if word.is_empty()
        || word.len() > LONG
        || !word.bytes().all(|byte| byte.is_ascii_alphanumeric())
    {
        return false;
    }
    words.contains(&[" ", word, " "].concat().to_ascii_lowercase())
}

/// Returns the key by which texts are found again.
pub(crate) fn key(texts: &[&str]) -> u64 {
    let mut hash = Hash::default();
    for text in texts {
        text.bytes().for_each(|byte| hash.byte(byte));
        hash.byte(0xff);
    }
    hash.finish()
}

/// FNV-1a, since the pieces are short.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    pub fn byte(&mut self, byte: u8) {
        self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
}

impl Hasher for Hash {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.byte(*byte));
    }
}

/// Returns the pieces of a text, in one walk.
pub(crate) fn tokens(text: &str) -> impl Iterator<Item = Token<'_>> {
    let bytes = text.as_bytes();
    let mut next = 0;
    std::iter::from_fn(move || loop {
        let start = begin_word(bytes, next)?;
        let mut end = start;
        let is_dense = bytes.get(start).is_some_and(|byte| is_dense(*byte));
        let mut is_address = false;
        // The digits since the last comma; nothing once anything else stood there. To look back at each comma would take
        // quadratic time for a text of thousands.
        let mut group = Some(0);
        loop {
            let run = match is_dense {
                false => count_words(bytes.get(end..).unwrap_or_default()),
                true => 0,
            };
            let run = end..end + run;
            group = group.and_then(|digits| {
                let mut run = bytes.get(run.clone())?.iter();
                let all = digits + run.len();
                run.all(u8::is_ascii_digit).then_some(all)
            });
            end = run.end;
            let Some(byte) = bytes.get(end) else { break };
            if byte.is_ascii() && is_dense || is_other_script(*byte, is_dense) {
                break;
            }
            if !is_word(*byte) {
                let near = |at: usize| bytes.get(at).copied().unwrap_or(b' ');
                let (before, after) = (near(end.wrapping_sub(1)), near(end + 1));
                is_address |= *byte == b':'
                    && after == b'/'
                    && near(end + 2) == b'/'
                    && before.is_ascii_alphabetic();
                let is_within = match byte {
                    _ if is_address => b":?=&#%+~;,$!".contains(byte),
                    // A time, or names of a language that joins them so.
                    b':' => {
                        before.is_ascii_digit() && after.is_ascii_digit() && end - start <= 2
                            || after == b':' && near(end + 2).is_ascii_alphabetic()
                            || before == b':' && after.is_ascii_alphabetic()
                    }
                    b',' => {
                        matches!(group, Some(1..=3)) && begins_with_thousand(bytes.get(end + 1..))
                    }
                    _ => false,
                };
                if !is_within {
                    break;
                }
            }
            group = match byte {
                b',' => group.map(|_| 0),
                byte if byte.is_ascii_digit() => group.map(|digits| digits + 1),
                _ => None,
            };
            end += 1;
        }
        next = end;
        steps::count(1);
        let mut token = text.get(start..end)?;
        while let [b'.', b'/', ..] = token.as_bytes() {
            token = token.get(2..)?;
        }
        let starts = |byte| !matches!(byte, b'-' | b'@' | b'+');
        let ends = |byte| {
            !matches!(
                byte,
                b'.' | b'/' | b'-' | b'@' | b':' | b',' | b'?' | b'=' | b'&' | b';' | b'!'
            )
        };
        let from = token.bytes().position(starts);
        let until = token.bytes().rposition(ends);
        let token = token.get(from.unwrap_or(0)..until.map_or(0, |last| last + 1));
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte >= 0x80;
        if let Some(token) = token.filter(|token| token.bytes().any(is_letter)) {
            return Some(Token {
                text: token,
                start: token.as_ptr() as usize - text.as_ptr() as usize,
            });
        }
    })
}

fn is_word(byte: u8) -> bool {
    matches!(byte, b'-'..=b'9' | b'@'..=b'Z' | b'_' | b'a'..=b'z' | b'~' | 0x80..)
}

/// Returns the number of bytes in ASCII at the beginning that are part of a word.
fn count_words(bytes: &[u8]) -> usize {
    let is_word = |byte: &u8| byte.is_ascii() && is_word(*byte);
    let end = bytes.iter().position(|byte| !is_word(byte));
    end.unwrap_or(bytes.len())
}

/// Returns true at the first byte of a sign beyond ASCII that is not part of a word: quotes, dashes, arrows, lines of boxes,
/// from U+0080 to U+00BF and from U+2000 to U+2FFF.
fn is_sign(byte: u8) -> bool {
    byte == 0xc2 || byte == 0xe2
}

/// Returns the index at which the next word begins.
fn begin_word(bytes: &[u8], from: usize) -> Option<usize> {
    let begins = |byte: &u8| is_word(*byte) && !is_sign(*byte) && !is_inner(*byte);
    Some(from + bytes.get(from..)?.iter().position(begins)?)
}

/// Returns true for a byte that continues a letter beyond ASCII.
fn is_inner(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// Returns true at a letter of a script without spaces after one of another: "订单12345已确认" has a word's end there.
fn is_other_script(byte: u8, is_within_dense: bool) -> bool {
    !byte.is_ascii() && !is_inner(byte) && (is_sign(byte) || is_dense(byte) != is_within_dense)
}

/// Returns true for the first byte of a letter of a script without spaces. In UTF-8 those begin with these bytes; 0xc3 to
/// 0xdf and 0xe1 begin letters that words in ASCII have as well.
fn is_dense(byte: u8) -> bool {
    byte == 0xe0 || byte >= 0xe3
}

/// Returns true if three digits follow a comma, which is then part of a number and does not separate two.
fn begins_with_thousand(after: Option<&[u8]>) -> bool {
    let digits = after.unwrap_or_default().iter().take(4);
    digits.take_while(|byte| byte.is_ascii_digit()).count() == 3
}

/// Calls a function with the facts of a text, and with its words.
///
/// # Complexity
/// O(text)
pub(crate) fn each<'a>(text: &'a str, mut take: impl FnMut(Found<'a>)) {
    let mut line = Line::default();
    let mut tokens = tokens(text).peekable();
    while let Some(token) = tokens.next() {
        if token.start >= line.end {
            line = Line::at(text, token.start);
        }
        let after = tokens.peek().filter(|after| after.start < line.end);
        let kind = token.kind();
        if !line.is_error && line.tells_error(text, token) {
            line.is_error = true;
            take(of_line(FactKind::Error, line.text(text)));
        }
        if kind == Some(FactKind::Number) {
            if let Some(exit) = line.exit.filter(|_| token.text.len() <= 3) {
                let said = text.get(exit..token.end()).unwrap_or(token.text);
                let (kind, key) = (Some(FactKind::ExitCode), key(&["exit", token.text]));
                take(Found::new(kind, said, token.text, key));
                line.exit = None;
            }
            number(text, token, line.before, after, &mut take);
        } else {
            take(Found::new(kind, token.text, token.text, token.key()));
        }
        line.note(token);
    }
}

impl FactCounts {
    /// Counts the facts that a text has.
    ///
    /// # Complexity
    /// O(text), up to [`COUNTED`] bytes of it
    pub(crate) fn of(text: &str) -> Self {
        let end = text.floor_char_boundary(COUNTED);
        let mut counts = Self {
            is_part: end < text.len(),
            ..Self::default()
        };
        let mut keys = KeySet::default();
        each(text.get(..end).unwrap_or_default(), |found| {
            let kind = found.kind.map_or(usize::MAX, |kind| kind as usize);
            counts.add_fact(kind, found.key, &mut keys);
        });
        counts
    }

    /// Returns the same of a text whose facts are known; `None` if not all of it is counted.
    pub(crate) fn of_marks(text: &str, marks: &[FactMark]) -> Option<Self> {
        if text.len() > COUNTED {
            return None;
        }
        let (mut counts, mut keys) = (Self::default(), KeySet::default());
        for mark in marks {
            counts.add_fact(mark.kind.into(), mark.key, &mut keys);
        }
        Some(counts)
    }

    fn add_fact(&mut self, kind: usize, key: u64, known: &mut KeySet) {
        let count = self.of.get_mut(kind);
        if let Some(count) = count.filter(|_| known.insert(key)) {
            *count = count.saturating_add(1);
        }
    }

    /// Adds those of another text.
    pub(crate) fn add(&mut self, other: Self) {
        for (count, more) in self.of.iter_mut().zip(other.of) {
            *count = count.saturating_add(more);
        }
        self.is_part |= other.is_part;
    }

    pub(crate) fn has_more_than_numbers(self) -> bool {
        let mut counts = self.of.into_iter().zip(FactKind::ALL);
        counts.any(|(count, kind)| count > 0 && kind != FactKind::Number)
    }

    /// Returns the kinds that it has most of with their counts, in words. Numbers come last: most texts have some.
    pub(crate) fn words(self) -> Vec<String> {
        let counts = self.of.into_iter().zip(FactKind::ALL);
        let mut counts: Vec<(u16, FactKind)> = counts.filter(|(count, _)| *count > 0).collect();
        counts.sort_by_key(|(count, kind)| (*kind == FactKind::Number, Reverse(*count)));
        let words = counts.into_iter().take(KINDS).map(|(count, kind)| {
            let more = if self.is_part { "+" } else { "" };
            let [one, many] = kind.words();
            let name = if count == 1 { one } else { many };
            format!("{count}{more} {name}")
        });
        words.collect()
    }

    /// Returns true for the words of one kind.
    pub(crate) fn tell(words: &str) -> bool {
        let Some((count, name)) = words.split_once(' ') else {
            return false;
        };
        let count = count.trim_end_matches('+');
        let mut kinds = FactKind::ALL.into_iter();
        count.parse::<u64>().is_ok() && kinds.any(|kind| kind.words().contains(&name))
    }
}

impl FactKind {
    /// Returns its name in words, for one and for many.
    const fn words(self) -> [&'static str; 2] {
        match self {
            Self::Path => ["path", "paths"],
            Self::Address => ["address", "addresses"],
            Self::Id => ["id", "ids"],
            Self::Number => ["number", "numbers"],
            Self::Error => ["error", "errors"],
            Self::ExitCode => ["exit code", "exit codes"],
            Self::Name => ["name", "names"],
            Self::Decision => ["decision", "decisions"],
        }
    }
}

/// Makes a fact of a whole line.
pub(crate) fn of_line(kind: FactKind, line: &str) -> Found<'_> {
    let line = line.trim();
    let text = line
        .get(..line.floor_char_boundary(LINE))
        .unwrap_or_default();
    Found::new(Some(kind), text, text, key(&["line", text]))
}

/// Makes a fact of a number with the word before it or else the one after it. A digit without one is not a fact.
fn number<'a>(
    text: &'a str,
    token: Token<'a>,
    before: Option<Token<'a>>,
    after: Option<&Token<'a>>,
    take: &mut impl FnMut(Found<'a>),
) {
    let before = before.filter(|before| {
        token.start - before.end() <= NEAR && before.kind() != Some(FactKind::Number)
    });
    let after = after.filter(|after| {
        after.start - token.end() <= NEAR && after.kind() != Some(FactKind::Number)
    });
    let beside = |word: u64| {
        let mut hash = Hash::default();
        hash.write(&word.to_le_bytes());
        hash.write(&token.key().to_le_bytes());
        hash.finish()
    };
    let (start, end, word) = match (before, after) {
        (Some(before), _) => (before.start, token.end(), before.word_key()),
        (None, Some(after)) => (token.start, after.end(), after.word_key()),
        (None, None) if token.text.len() < 2 => return,
        (None, None) => (token.start, token.end(), 0),
    };
    let said = text.get(start..end).unwrap_or(token.text);
    let mut found = Found::new(Some(FactKind::Number), said, token.text, beside(word));
    found.other = before.and(after).map(|after| beside(after.word_key()));
    take(found);
}

#[derive(Debug, Default)]
struct Line<'a> {
    start: usize,
    end: usize,
    before: Option<Token<'a>>,
    /// The index of the words about a program's end.
    exit: Option<usize>,
    is_error: bool,
}

impl<'a> Line<'a> {
    fn at(text: &str, start: usize) -> Self {
        let bytes = text.as_bytes();
        let rest = bytes.get(start..).unwrap_or_default();
        let before = bytes.get(..start).unwrap_or_default();
        let end = memchr::memchr(b'\n', rest);
        let begin = memchr::memrchr(b'\n', before);
        Self {
            start: begin.map_or(0, |at| at + 1),
            end: end.map_or(bytes.len(), |at| start + at),
            ..Self::default()
        }
    }

    fn text(&self, text: &'a str) -> &'a str {
        text.get(self.start..self.end).unwrap_or_default()
    }

    /// Returns true for `KeyError: ...`, `error: ...`, or a line that begins with such a word.
    fn tells_error(&self, text: &str, token: Token<'_>) -> bool {
        let is_type = token.text.ends_with("Error") || token.text.ends_with("Exception");
        let follows = |sign| text.as_bytes().get(token.end()) == Some(&sign);
        let is_named = follows(b':') || follows(b'[') || self.before.is_none();
        (is_type && follows(b':')) || (is_named && is_in(ERRORS, token.text))
    }

    fn note(&mut self, token: Token<'a>) {
        const FAR: usize = 24;
        let starts = |word: &str| {
            let start = token.text.get(..word.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(word))
        };
        if starts("exit") || starts("returncode") || starts("return_code") {
            self.exit = Some(token.start);
        }
        self.exit = self.exit.filter(|exit| token.end() - exit <= FAR);
        self.before = Some(token);
    }
}
