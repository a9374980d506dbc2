//! JSON as models write it, read in any pieces: with prose and fences around it, comments, trailing commas, single quotes and
//! keys without quotes. It reads JSON as JSON, and reports each deviation.

use crate::answer::fit::LEVELS;
use crate::answer::issue::MendKind;
use crate::answer::node::Kinds;
use crate::value::{json, Value};

/// Bytes that a key or a number may have.
const MOST_WORD: usize = 4_400;

/// The events of a text. Positions are bytes of the piece that is being read.
pub(crate) trait Sink {
    /// A value of this kind begins.
    fn begin(&mut self, kind: Kinds, at: usize);
    /// The value that began is a list or an object.
    fn open(&mut self, is_list: bool);
    /// The next value is the one of this key.
    fn key(&mut self, key: &str);
    /// A part of the text that began.
    fn text(&mut self, part: &str);
    /// The value that began is this one.
    fn scalar(&mut self, value: Value);
    /// The value that began last, and has not ended, ends.
    fn end(&mut self, at: usize);
    /// Something was not as JSON has it.
    fn mend(&mut self, kind: MendKind);
    /// The text so far is not JSON, and counts as prose.
    fn abandon(&mut self);
}

/// Where a value stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValuePlace {
    /// After a bracket, where the list may end.
    First,
    /// After a comma.
    Next,
    /// After a colon.
    Field,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Prose,
    Value(ValuePlace),
    /// A key, or the end of the object: the first one, or one after a comma.
    Key(bool),
    KeyText(u8),
    KeyBare,
    Colon,
    Text(u8),
    Literal,
    After,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Comment {
    #[default]
    None,
    /// A slash that may begin one.
    Slash,
    Line,
    Block,
    /// A star that may end it.
    Star,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Escape {
    #[default]
    None,
    Backslash,
    /// Digits that came, and their number.
    Unicode(u8, u32),
    /// The first half of a pair, and how much of `\u` came after it.
    Half(u32, u8),
    /// The first half of a pair, and the digits of the second.
    Pair(u32, u8, u32),
}

/// The state between two pieces. It is small, however long the text is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lexer {
    mode: Mode,
    comment: Comment,
    escape: Escape,
    word: String,
    /// The lists among the open levels, one bit each.
    lists: u64,
    depth: usize,
    skipped: bool,
    has_root: bool,
}

impl Lexer {
    /// Returns whether something began that has not ended.
    pub fn is_open(&self) -> bool {
        self.mode != Mode::Prose
    }

    /// Reads a piece.
    ///
    /// # Complexity
    /// O(n): of what is not JSON, nothing is read again.
    pub fn feed(&mut self, piece: &str, sink: &mut impl Sink) {
        let bytes = piece.as_bytes();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            if self.comment != Comment::None {
                at += 1;
                self.comment(*byte, sink);
                continue;
            }
            let rest = piece.get(at..).unwrap_or_default();
            match self.mode {
                Mode::Prose => at += self.prose(rest, at, sink),
                Mode::Text(quote) if self.escape == Escape::None => {
                    at += self.text_run(rest, quote, at, sink);
                }
                Mode::KeyText(quote) if self.escape == Escape::None => {
                    at += self.key_run(rest, quote, sink);
                }
                Mode::Text(_) | Mode::KeyText(_) => {
                    at += 1;
                    if self.escape(*byte, sink).is_none() {
                        self.abandon(sink);
                    }
                }
                _ => {
                    if self.byte(*byte, at, sink) {
                        at += 1;
                    }
                }
            }
        }
    }

    fn prose(&mut self, rest: &str, at: usize, sink: &mut impl Sink) -> usize {
        let found = memchr::memchr2(b'{', b'[', rest.as_bytes());
        let prose = rest.get(..found.unwrap_or(rest.len())).unwrap_or_default();
        let is_blank = prose.bytes().all(|byte| byte.is_ascii_whitespace());
        if !is_blank {
            self.skipped = true;
            if self.has_root {
                sink.mend(MendKind::Prose);
                self.skipped = false;
            }
        }
        let Some(found) = found else {
            return rest.len();
        };
        let is_list = rest.as_bytes().get(found) == Some(&b'[');
        self.lists = 0;
        self.depth = 0;
        let kind = if is_list { Kinds::ARRAY } else { Kinds::OBJECT };
        sink.begin(kind, at + found);
        if self.skipped {
            sink.mend(MendKind::Prose);
            self.skipped = false;
        }
        self.open(is_list, sink);
        found + 1
    }

    fn open(&mut self, is_list: bool, sink: &mut impl Sink) {
        if self.depth >= LEVELS {
            self.abandon(sink);
            return;
        }
        let bit = 1_u64 << self.depth;
        self.lists = if is_list {
            self.lists | bit
        } else {
            self.lists & !bit
        };
        self.depth += 1;
        sink.open(is_list);
        self.mode = if is_list {
            Mode::Value(ValuePlace::First)
        } else {
            Mode::Key(true)
        };
    }

    fn is_in_list(&self) -> bool {
        self.depth > 0 && self.lists & (1_u64 << (self.depth - 1)) != 0
    }

    fn abandon(&mut self, sink: &mut impl Sink) {
        sink.abandon();
        *self = Self {
            skipped: true,
            has_root: self.has_root,
            ..Self::default()
        };
    }

    fn comment(&mut self, byte: u8, sink: &mut impl Sink) {
        self.comment = match (self.comment, byte) {
            (Comment::Slash, b'/') => Comment::Line,
            (Comment::Slash, b'*') => Comment::Block,
            (Comment::Slash, _) => return self.abandon(sink),
            (Comment::Line, b'\n') | (Comment::Star, b'/') => {
                sink.mend(MendKind::Comment);
                Comment::None
            }
            (Comment::Line, _) => Comment::Line,
            (_, b'*') => Comment::Star,
            _ => Comment::Block,
        };
    }

    /// Reads a byte between texts; `false` if it is to be read again in the mode that came of it.
    fn byte(&mut self, byte: u8, at: usize, sink: &mut impl Sink) -> bool {
        match self.mode {
            Mode::Literal => return self.literal(byte, at, sink),
            Mode::KeyBare if is_bare(byte) => self.push(byte, sink),
            Mode::KeyBare => {
                sink.mend(MendKind::UnquotedKey);
                self.end_key(sink);
                return false;
            }
            _ if byte.is_ascii_whitespace() => {}
            _ if byte == b'/' => self.comment = Comment::Slash,
            Mode::Value(place) => return self.value(byte, place, at, sink),
            Mode::Key(is_first) => return self.key(byte, is_first, at, sink),
            Mode::Colon if byte == b':' => self.mode = Mode::Value(ValuePlace::Field),
            Mode::After if byte == b',' => {
                let in_list = self.is_in_list();
                self.mode = if in_list {
                    Mode::Value(ValuePlace::Next)
                } else {
                    Mode::Key(false)
                };
            }
            Mode::After if byte == if self.is_in_list() { b']' } else { b'}' } => {
                self.close(at, sink);
            }
            _ => {
                self.abandon(sink);
                return false;
            }
        }
        true
    }

    fn value(&mut self, byte: u8, place: ValuePlace, at: usize, sink: &mut impl Sink) -> bool {
        match byte {
            b'{' | b'[' => {
                let is_list = byte == b'[';
                sink.begin(if is_list { Kinds::ARRAY } else { Kinds::OBJECT }, at);
                self.open(is_list, sink);
            }
            b'"' | b'\'' => {
                sink.begin(Kinds::STRING, at);
                self.quote(byte, sink);
                self.mode = Mode::Text(byte);
            }
            b']' if place != ValuePlace::Field => {
                if place == ValuePlace::Next {
                    sink.mend(MendKind::TrailingComma);
                }
                self.close(at, sink);
            }
            b'-' | b'0'..=b'9' => self.begin_literal(Kinds::NUMBER, byte, at, sink),
            b't' | b'f' | b'T' | b'F' => self.begin_literal(Kinds::BOOLEAN, byte, at, sink),
            b'n' | b'N' => self.begin_literal(Kinds::NULL, byte, at, sink),
            _ => {
                self.abandon(sink);
                return false;
            }
        }
        true
    }

    fn key(&mut self, byte: u8, is_first: bool, at: usize, sink: &mut impl Sink) -> bool {
        self.word.clear();
        match byte {
            b'"' | b'\'' => {
                self.quote(byte, sink);
                self.mode = Mode::KeyText(byte);
            }
            b'}' => {
                if !is_first {
                    sink.mend(MendKind::TrailingComma);
                }
                self.close(at, sink);
            }
            _ if is_bare(byte) && !byte.is_ascii_digit() && byte != b'-' => {
                self.mode = Mode::KeyBare;
                self.push(byte, sink);
            }
            _ => {
                self.abandon(sink);
                return false;
            }
        }
        true
    }

    fn quote(&mut self, quote: u8, sink: &mut impl Sink) {
        if quote == b'\'' {
            sink.mend(MendKind::SingleQuotes);
        }
    }

    fn push(&mut self, byte: u8, sink: &mut impl Sink) {
        self.word.push(char::from(byte));
        self.bound(sink);
    }

    fn bound(&mut self, sink: &mut impl Sink) {
        if self.word.len() > MOST_WORD {
            self.abandon(sink);
        }
    }

    fn begin_literal(&mut self, kind: Kinds, byte: u8, at: usize, sink: &mut impl Sink) {
        sink.begin(kind, at);
        self.word.clear();
        self.mode = Mode::Literal;
        self.push(byte, sink);
    }

    fn literal(&mut self, byte: u8, at: usize, sink: &mut impl Sink) -> bool {
        if byte.is_ascii_alphanumeric() || b"+-._".contains(&byte) {
            self.push(byte, sink);
            return true;
        }
        let (value, is_mended) = match &*self.word {
            "True" => (Some(Value::Bool(true)), true),
            "False" => (Some(Value::Bool(false)), true),
            "None" => (Some(Value::Nil), true),
            word => (json::read(word.as_bytes(), 1).ok(), false),
        };
        let Some(value) = value else {
            self.abandon(sink);
            return false;
        };
        if is_mended {
            sink.mend(MendKind::Literal);
        }
        sink.scalar(value);
        self.end(at, sink);
        false
    }

    fn close(&mut self, at: usize, sink: &mut impl Sink) {
        self.depth = self.depth.saturating_sub(1);
        self.end(at + 1, sink);
    }

    fn end(&mut self, at: usize, sink: &mut impl Sink) {
        self.word.clear();
        self.mode = if self.depth == 0 {
            Mode::Prose
        } else {
            Mode::After
        };
        self.has_root |= self.depth == 0;
        sink.end(at);
    }

    fn end_key(&mut self, sink: &mut impl Sink) {
        sink.key(&self.word);
        self.word.clear();
        self.mode = Mode::Colon;
    }

    /// Reads a text up to its end, or up to what is not itself.
    fn text_run(&mut self, rest: &str, quote: u8, at: usize, sink: &mut impl Sink) -> usize {
        let end = run(rest, quote);
        let (plain, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
        if !plain.is_empty() {
            sink.text(plain);
        }
        match after.bytes().next() {
            None => end,
            Some(b'\\') => {
                self.escape = Escape::Backslash;
                end + 1
            }
            Some(byte) if byte == quote => {
                self.end(at + end + 1, sink);
                end + 1
            }
            Some(_) => {
                sink.mend(MendKind::ControlCharacter);
                sink.text(after.get(..1).unwrap_or_default());
                end + 1
            }
        }
    }

    fn key_run(&mut self, rest: &str, quote: u8, sink: &mut impl Sink) -> usize {
        let end = run(rest, quote);
        let (plain, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
        self.word.push_str(plain);
        match after.bytes().next() {
            None => {}
            Some(b'\\') => self.escape = Escape::Backslash,
            Some(byte) if byte == quote => self.end_key(sink),
            Some(_) => {
                sink.mend(MendKind::ControlCharacter);
                self.word.push_str(after.get(..1).unwrap_or_default());
            }
        }
        self.bound(sink);
        rest.len().min(end + 1)
    }

    /// Reads a byte of an escape; `None` if there is no such escape.
    fn escape(&mut self, byte: u8, sink: &mut impl Sink) -> Option<()> {
        let digit = || char::from(byte).to_digit(16);
        match self.escape {
            Escape::None => {}
            Escape::Backslash => {
                self.escape = Escape::None;
                let letter = match byte {
                    b'"' | b'\\' | b'/' => char::from(byte),
                    b'\'' => {
                        sink.mend(MendKind::SingleQuotes);
                        '\''
                    }
                    b'b' => '\u{8}',
                    b'f' => '\u{c}',
                    b'n' => '\n',
                    b'r' => '\r',
                    b't' => '\t',
                    b'u' => {
                        self.escape = Escape::Unicode(0, 0);
                        return Some(());
                    }
                    _ => return None,
                };
                self.letter(letter, sink);
            }
            Escape::Unicode(came, number) => {
                let number = number * 16 + digit()?;
                self.escape = match (came, number) {
                    (0..=2, _) => Escape::Unicode(came + 1, number),
                    (_, 0xD800..=0xDBFF) => Escape::Half(number, 0),
                    _ => {
                        self.letter(char::from_u32(number)?, sink);
                        Escape::None
                    }
                };
            }
            Escape::Half(half, 0) if byte == b'\\' => self.escape = Escape::Half(half, 1),
            Escape::Half(half, 1) if byte == b'u' => self.escape = Escape::Pair(half, 0, 0),
            Escape::Half(..) => return None,
            Escape::Pair(half, came, number) => {
                let number = number * 16 + digit()?;
                self.escape = if came < 3 {
                    Escape::Pair(half, came + 1, number)
                } else {
                    let low = number.checked_sub(0xDC00).filter(|low| *low < 0x400)?;
                    let letter = char::from_u32(0x10000 + ((half - 0xD800) << 10) + low)?;
                    self.letter(letter, sink);
                    Escape::None
                };
            }
        }
        Some(())
    }

    fn letter(&mut self, letter: char, sink: &mut impl Sink) {
        if matches!(self.mode, Mode::KeyText(_)) {
            self.word.push(letter);
        } else {
            sink.text(letter.encode_utf8(&mut [0; 4]));
        }
    }
}

/// Bytes of a text up to its end, an escape or a control character.
fn run(rest: &str, quote: u8) -> usize {
    let ends = |byte: u8| byte == quote || byte == b'\\' || byte < b' ';
    rest.bytes().position(ends).unwrap_or(rest.len())
}

fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_$-".contains(&byte)
}
