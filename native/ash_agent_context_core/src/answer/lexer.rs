//! JSON as models write it, cut into any chunks: with prose and fences around it, comments, trailing commas, single quotes and
//! keys without quotes. It reads JSON as JSON, and reports each deviation.
//!
//! A brace begins a value if a quote, an escaped one too, a key with a colon or the other brace comes after it. If that is not
//! JSON, it is given up as a whole; and so is the text, if the value had a field of the answer.

use crate::answer::answer_type::AnswerType;
use crate::answer::comment::Comment;

use crate::answer::fit::LEVELS;
use crate::answer::issue::MendKind;
use crate::answer::node::{has_word, Kinds};
use crate::answer::prose::{quoted, After, GivenUp, Prose, Quotes};
use crate::value::unescape::Escape;
use crate::value::{json, Value};

/// A key or a number may have so many bytes.
const MOST_WORD: usize = 4_400;

/// The events of a text. Positions are bytes of the chunk that is being read.
pub(crate) trait Sink {
    /// Returns the type whose fields tell the answer from prose; `None` if everything counts.
    fn answer(&self) -> Option<&AnswerType>;
    /// The open value, or the one that begins next, is the answer, or that of a field whose name and colon are before it.
    fn mean(&mut self, field: Option<&str>);
    /// A value of this kind begins.
    fn begin(&mut self, kind: Kinds, at: usize);
    /// The value that began is a list or an object.
    fn open(&mut self, _is_list: bool) {}
    /// The next value is the one of this key.
    fn key(&mut self, key: &str);
    /// A part of the text that is being read.
    fn text(&mut self, part: &str);
    /// The value that began is a scalar.
    fn scalar(&mut self, value: Value);
    /// The value that began last, and has not ended, ends.
    fn end(&mut self, at: usize);
    /// A repair was needed to read on.
    fn mend(&mut self, _kind: MendKind) {}
    /// The text so far is not JSON, and counts as prose.
    fn abandon(&mut self);
}

/// The place of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValuePlace {
    /// After a bracket; the list may end here.
    First,
    /// After a comma.
    Next,
    /// After a colon.
    Field,
}

/// A key before its colon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    Bare,
    Quoted,
    /// With a colon in it. It may have lost its own quote, and this one then begins the text after it.
    Long(u8),
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
    /// What may be a quote as it is written within a text of JSON or HTML.
    KeyEscape,
    Colon(KeyKind),
    Text(u8),
    Literal,
    After,
    GivenUp(GivenUp),
    /// The answer itself was given up. The rest is not read.
    Broken,
}

impl Mode {
    /// Returns the mode within a list or an object: at its beginning, or after a comma.
    const fn inside(is_list: bool, is_first: bool) -> Self {
        match (is_list, is_first) {
            (true, true) => Self::Value(ValuePlace::First),
            (true, false) => Self::Value(ValuePlace::Next),
            (false, is_first) => Self::Key(is_first),
        }
    }
}

/// The state between two chunks. It is small, however long the text is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lexer {
    mode: Mode,
    comment: Comment,
    escape: Escape,
    word: String,
    /// The open levels that are lists, one bit each.
    lists: u64,
    depth: usize,
    skipped: bool,
    has_root: bool,
    prose: Prose,
    /// The open value has more than its first brace.
    is_opened: bool,
    /// The open value is the answer, by its fields so far.
    is_meant: bool,
    /// The name of a field before the open value.
    field: Option<String>,
    /// The last letter of the chunk before.
    last: Option<char>,
    /// Deviations in a key that has not ended.
    in_key: Vec<MendKind>,
}

impl Lexer {
    /// Returns true if the text has the beginning of an answer that is not JSON, or the rest of one.
    pub fn is_broken(&self) -> bool {
        self.mode == Mode::Broken
    }

    /// Returns true if the text ends within an answer: the first one, or another one.
    pub fn is_cut(&self, answer: &AnswerType, has_found: bool) -> bool {
        match self.mode {
            Mode::Prose | Mode::Broken => false,
            Mode::GivenUp(given_up) => has_found && !given_up.may_have_ended,
            Mode::Key(true) | Mode::KeyEscape if !self.is_opened => !self.prose.is_in_word(),
            _ if !has_found || self.is_opened => true,
            Mode::KeyBare | Mode::Colon(_) => answer.has_name_from(&self.word),
            _ => self.is_meant,
        }
    }

    /// Reads a chunk.
    ///
    /// # Complexity
    /// O(n): text that is not JSON is never read again.
    pub fn feed(&mut self, chunk: &str, sink: &mut impl Sink) {
        let bytes = chunk.as_bytes();
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            if self.comment != Comment::None {
                at += usize::from(self.comment(*byte, sink));
                continue;
            }
            let rest = chunk.get(at..).unwrap_or_default();
            match self.mode {
                Mode::Prose => at += self.prose(rest, at, sink),
                Mode::Text(quote) | Mode::KeyText(quote) if self.escape == Escape::None => {
                    at += self.run(rest, quote, at, sink);
                }
                Mode::Text(_) | Mode::KeyText(_) => {
                    at += usize::from(self.escape(*byte, sink));
                }
                Mode::GivenUp(mut given_up) => match given_up.feed(rest, self.before(chunk, at)) {
                    Some(end) => {
                        at += end;
                        self.mode = Mode::Prose;
                        self.prose.begin(After::GivenUp);
                    }
                    None => {
                        self.mode = Mode::GivenUp(given_up);
                        at = bytes.len();
                    }
                },
                Mode::Broken => return,
                _ => {
                    if self.byte(rest, at, sink) {
                        at += 1;
                    }
                }
            }
        }
        self.last = chunk.chars().next_back().or(self.last);
    }

    /// Returns the letter before a position.
    fn before(&self, chunk: &str, at: usize) -> Option<char> {
        let before = chunk.get(..at).unwrap_or_default();
        before.chars().next_back().or(self.last)
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
        let is_rest = |answer| self.prose.feed(prose, answer);
        if sink.answer().is_some_and(is_rest) {
            self.fail(sink);
            return rest.len();
        }
        let Some(found) = found else {
            return rest.len();
        };
        let is_list = rest.as_bytes().get(found) == Some(&b'[');
        self.lists = 0;
        self.depth = 0;
        let answer = sink.answer();
        let field = answer.and_then(|answer| self.prose.field(answer));
        self.field = field.map(str::to_owned);
        self.is_opened = false;
        self.is_meant = false;
        if answer.is_some() && self.prose.is_inside() {
            self.fail(sink);
            return rest.len();
        }
        let kind = if is_list { Kinds::ARRAY } else { Kinds::OBJECT };
        if answer.is_none_or(|answer| answer.takes_all(kind)) {
            self.mean(sink);
        }
        sink.begin(kind, at + found);
        if self.skipped {
            sink.mend(MendKind::Prose);
            self.skipped = false;
        }
        self.open(is_list, sink);
        found + 1
    }

    /// Notes that the open value has a field of the answer.
    fn mean(&mut self, sink: &mut impl Sink) {
        if !self.is_meant {
            self.is_meant = true;
            sink.mean(self.field.as_deref());
        }
    }

    /// Opens a level. Returns false if there are too many, and the bracket has to be read again as given-up text.
    fn open(&mut self, is_list: bool, sink: &mut impl Sink) -> bool {
        if self.depth >= LEVELS {
            return self.abandon(sink);
        }
        let bit = 1_u64 << self.depth;
        self.lists = (self.lists & !bit) | (u64::from(is_list) << self.depth);
        self.depth += 1;
        sink.open(is_list);
        self.mode = Mode::inside(is_list, true);
        true
    }

    fn is_in_list(&self) -> bool {
        self.depth > 0 && self.lists & (1_u64 << (self.depth - 1)) != 0
    }

    fn fail(&mut self, sink: &mut impl Sink) -> bool {
        sink.abandon();
        *self = Self {
            mode: Mode::Broken,
            ..Self::default()
        };
        false
    }

    /// Gives the open value up. Returns false, as the byte has to be read again.
    fn abandon(&mut self, sink: &mut impl Sink) -> bool {
        let is_list = self.lists & 1 == 1;
        if self.is_meant && (self.is_opened || is_list) {
            return self.fail(sink);
        }
        sink.abandon();
        let mut prose = std::mem::take(&mut self.prose);
        let mode = if self.is_opened {
            let quotes = match self.mode {
                Mode::Text(quote) | Mode::KeyText(quote) | Mode::Colon(KeyKind::Long(quote)) => {
                    Quotes::opened_by(char::from(quote))
                }
                Mode::KeyEscape => Some(Quotes::ENDLESS),
                _ => None,
            };
            Mode::GivenUp(GivenUp::new(self.lists, self.depth, quotes))
        } else {
            prose.begin(After::Bracket);
            Mode::Prose
        };
        *self = Self {
            mode,
            prose,
            skipped: true,
            has_root: self.has_root,
            last: self.last,
            ..Self::default()
        };
        false
    }

    /// Reads a byte of a comment. Returns false if it has to be read again, since no comment began.
    fn comment(&mut self, byte: u8, sink: &mut impl Sink) -> bool {
        let Some(next) = self.comment.feed(byte) else {
            return self.abandon(sink);
        };
        self.comment = next;
        if next == Comment::None {
            sink.mend(MendKind::Comment);
        }
        true
    }

    /// Reads a byte between texts. Returns false if it has to be read again in the new mode.
    fn byte(&mut self, rest: &str, at: usize, sink: &mut impl Sink) -> bool {
        let byte = first(rest);
        match self.mode {
            Mode::Literal => return self.literal(byte, at, sink),
            Mode::KeyBare if is_bare(byte) => self.push(byte, sink),
            Mode::KeyBare => {
                self.mode = Mode::Colon(KeyKind::Bare);
                return false;
            }
            Mode::KeyEscape => {
                self.is_opened = is_escaped_quote(&self.word, byte);
                if self.is_opened && self.has_root {
                    // Another answer, or the first one ended within one of its texts.
                    self.mean(sink);
                }
                if self.is_opened || !(byte.is_ascii_alphanumeric() || b"\\#".contains(&byte)) {
                    return self.abandon(sink);
                }
                self.push(byte, sink);
            }
            _ if byte.is_ascii_whitespace() => {}
            _ if byte == b'/' => self.comment = Comment::Slash,
            Mode::Value(place) => return self.value(rest, place, at, sink),
            Mode::Key(is_first) => return self.key(rest, is_first, at, sink),
            Mode::Colon(kind) if byte == b':' => {
                self.is_opened = true;
                if kind == KeyKind::Bare {
                    self.in_key.push(MendKind::UnquotedKey);
                    self.tell_key(sink);
                }
                self.mode = Mode::Value(ValuePlace::Field);
            }
            // This key has lost a quote, or its colon.
            Mode::Colon(KeyKind::Bare) if is_quote(rest) => {
                self.is_opened = true;
                self.tell_key(sink);
                return self.abandon(sink);
            }
            Mode::After if byte == b',' => {
                self.mode = Mode::inside(self.is_in_list(), false);
            }
            Mode::After if byte == if self.is_in_list() { b']' } else { b'}' } => {
                self.close(at, sink);
            }
            _ => return self.abandon(sink),
        }
        true
    }

    fn value(&mut self, rest: &str, place: ValuePlace, at: usize, sink: &mut impl Sink) -> bool {
        let byte = first(rest);
        self.is_opened |= is_quote(rest);
        match byte {
            b'{' | b'[' => {
                let is_list = byte == b'[';
                sink.begin(if is_list { Kinds::ARRAY } else { Kinds::OBJECT }, at);
                return self.open(is_list, sink);
            }
            b'"' | b'\'' => {
                sink.begin(Kinds::STRING, at);
                if byte == b'\'' {
                    sink.mend(MendKind::SingleQuotes);
                }
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
            _ => return self.abandon(sink),
        }
        true
    }

    fn key(&mut self, rest: &str, is_first: bool, at: usize, sink: &mut impl Sink) -> bool {
        let byte = first(rest);
        self.word.clear();
        self.in_key.clear();
        self.is_opened |= byte == b'}' || is_quote(rest);
        match byte {
            b'"' | b'\'' => {
                if byte == b'\'' {
                    self.in_key.push(MendKind::SingleQuotes);
                }
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
            b'\\' | b'&' => {
                self.mode = Mode::KeyEscape;
                self.push(byte, sink);
            }
            _ => {
                // Another answer begins here, with quotes that are not those of JSON.
                let is_named = |of: &AnswerType| quoted(rest).is_some_and(|key| of.is_named(key));
                if self.has_root && sink.answer().is_some_and(is_named) {
                    self.mean(sink);
                }
                return self.abandon(sink);
            }
        }
        true
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
            self.is_opened |= byte == b',';
            return self.abandon(sink);
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
        self.mode = Mode::After;
        sink.end(at);
        if self.depth == 0 {
            self.mode = Mode::Prose;
            self.has_root = true;
            self.prose.begin(After::Value);
        }
    }

    fn tell_key(&mut self, sink: &mut impl Sink) {
        let is_named = |answer: &AnswerType| answer.is_named(&self.word);
        if self.depth <= 2 && sink.answer().is_some_and(is_named) {
            self.mean(sink);
        }
        sink.key(&self.word);
        self.word.clear();
        for kind in self.in_key.drain(..) {
            sink.mend(kind);
        }
    }

    /// Reads a text or a key up to its end, or up to the first byte that needs a look.
    fn run(&mut self, rest: &str, quote: u8, at: usize, sink: &mut impl Sink) -> usize {
        let mode = self.mode;
        let ends = |byte: u8| byte == quote || byte == b'\\' || byte < b' ';
        let end = rest.bytes().position(ends).unwrap_or(rest.len());
        let (plain, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
        self.say(plain, sink);
        self.bound(sink);
        match after.bytes().next() {
            // A key that is too long is read again as given-up text.
            byte if byte.is_none() || self.mode != mode => return end,
            Some(b'\\') => self.escape = Escape::Backslash,
            Some(byte) if byte != quote => {
                self.mend_text(MendKind::ControlCharacter, sink);
                self.say(after.get(..1).unwrap_or_default(), sink);
            }
            _ if mode == Mode::Text(quote) => self.end(at + end + 1, sink),
            _ => {
                self.mode = Mode::Colon(match self.word.contains(':') {
                    true => KeyKind::Long(quote),
                    false => KeyKind::Quoted,
                });
                self.tell_key(sink);
            }
        }
        end + 1
    }

    /// Adds letters to the open text or key.
    fn say(&mut self, letters: &str, sink: &mut impl Sink) {
        if let Mode::KeyText(_) = self.mode {
            self.word.push_str(letters);
        } else if !letters.is_empty() {
            sink.text(letters);
        }
    }

    fn mend_text(&mut self, kind: MendKind, sink: &mut impl Sink) {
        match self.mode {
            Mode::KeyText(_) => self.in_key.push(kind),
            _ => sink.mend(kind),
        }
    }

    /// Reads a byte of an escape. Returns false if it has to be read again, since it is not part of one.
    fn escape(&mut self, byte: u8, sink: &mut impl Sink) -> bool {
        if self.escape == Escape::Backslash && byte == b'\'' {
            self.mend_text(MendKind::SingleQuotes, sink);
        }
        let escape = self.escape;
        let say = &mut |letter: char| self.say(letter.encode_utf8(&mut [0; 4]), sink);
        let Some((next, is_part)) = escape.feed(byte, say) else {
            return self.abandon(sink);
        };
        self.escape = next;
        is_part
    }
}

fn first(rest: &str) -> u8 {
    rest.as_bytes().first().copied().unwrap_or_default()
}

fn is_quote(rest: &str) -> bool {
    rest.chars().next().and_then(Quotes::opened_by).is_some()
}

fn is_escaped_quote(word: &str, byte: u8) -> bool {
    match byte {
        b'"' | b'\'' => word.bytes().all(|byte| byte == b'\\'),
        b';' => has_word("&quot &apos &#34 &#39 &#x22 &#x27 &ldquo &lsquo", word),
        _ => false,
    }
}

fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_$-".contains(&byte)
}
