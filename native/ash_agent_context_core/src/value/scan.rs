//! Reading JSON text into [`Node`]s that point into it.
//!
//! It returns `None` for faulty and rare texts and leaves them to [`json::read`], which knows all of JSON and names the
//! fault. Half of the work is in the strings, which jiter reads byte by byte and serde_json word by word. With serde_json
//! under these nodes, reading took a third more instructions; it recurses without a bound of ours, and makes large integers
//! floats.

use std::borrow::Cow;

use crate::value::escape;
use crate::value::json;
use crate::value::node::{Named, Node};
use crate::value::steps;
use crate::value::unescape::Escape;
use crate::value::Value;

/// This reader takes so many levels of nesting; each needs some of a scheduler's stack.
const LEVELS: usize = 64;

/// Room for entries of open objects from the start.
const ENTRIES: usize = 16;

/// Integers of so many digits surely fit.
const DIGITS: usize = 18;

enum ScannedText<'a> {
    /// Bytes of the text itself.
    Here(&'a [u8]),
    /// The bytes in [`Scan::plain`], without escapes.
    Plain,
}

/// Returns true for UTF-8. Most texts are ASCII, which takes half the time to see.
fn is_utf8(bytes: &[u8]) -> bool {
    bytes.is_ascii() || std::str::from_utf8(bytes).is_ok()
}

pub(crate) struct Scan<'a> {
    rest: &'a [u8],
    /// Elements of the lists that are open, the innermost last.
    items: Vec<Node<'a>>,
    /// Entries of the objects that are open.
    entries: Vec<Named<'a>>,
    levels: usize,
    /// The last string that had escapes, without them.
    plain: Vec<u8>,
}

impl<'a> Scan<'a> {
    pub const fn new(text: &'a [u8]) -> Self {
        Self {
            rest: text,
            items: Vec::new(),
            entries: Vec::new(),
            levels: LEVELS,
            plain: Vec::new(),
        }
    }

    /// Reads the whole text as one node.
    pub fn whole(text: &'a [u8]) -> Option<Node<'a>> {
        let mut scan = Self::new(text);
        // Most objects have fewer entries, so that the list of them grows once.
        scan.entries.reserve(ENTRIES);
        let node = scan.node()?;
        scan.end()?;
        Some(node)
    }

    /// Returns the next byte that is not white space.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        while let [b' ' | b'\n' | b'\r' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
        self.rest.first().copied()
    }

    #[inline]
    fn skip(&mut self, text: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    /// Expects the end of the text.
    pub fn end(&mut self) -> Option<()> {
        match self.peek() {
            None => Some(()),
            Some(_) => None,
        }
    }

    /// Reads any value.
    pub fn node(&mut self) -> Option<Node<'a>> {
        steps::count(1);
        match self.peek()? {
            b'"' => Some(match self.string()? {
                ScannedText::Here(bytes) => Node::Text(bytes),
                ScannedText::Plain => Node::Value(Value::Binary((*self.plain).into())),
            }),
            b'{' => {
                let start = self.entries.len();
                self.object(|scan, key| {
                    let node = scan.node()?;
                    scan.entries.push((key, node));
                    Some(())
                })?;
                Some(Node::Object(self.entries.drain(start..).collect()))
            }
            b'[' => {
                let start = self.items.len();
                self.list(|scan| {
                    let node = scan.node()?;
                    scan.items.push(node);
                    Some(())
                })?;
                Some(Node::List(self.items.drain(start..).collect()))
            }
            b'n' => self.skip(b"null").map(|()| Node::Value(Value::Nil)),
            b't' => self.skip(b"true").map(|()| Node::Value(Value::Bool(true))),
            b'f' => self
                .skip(b"false")
                .map(|()| Node::Value(Value::Bool(false))),
            _ => self.number().map(Node::Value),
        }
    }

    /// Reads an object, whose values `read` reads.
    pub fn object(
        &mut self,
        mut read: impl FnMut(&mut Self, Cow<'a, str>) -> Option<()>,
    ) -> Option<()> {
        self.elements(b"{", b'}', |scan| {
            scan.peek()?;
            let key = scan.key()?;
            scan.peek()?;
            scan.skip(b":")?;
            read(scan, key)
        })
    }

    /// Reads a list, whose elements `read` reads.
    pub fn list(&mut self, read: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.elements(b"[", b']', read)
    }

    fn elements(
        &mut self,
        open: &[u8],
        close: u8,
        mut read: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        self.peek()?;
        self.skip(open)?;
        self.levels = self.levels.checked_sub(1)?;
        if self.peek()? != close {
            read(self)?;
            while self.peek()? == b',' {
                self.skip(b",")?;
                read(self)?;
            }
        }
        self.levels += 1;
        self.skip(&[close])
    }

    fn string(&mut self) -> Option<ScannedText<'a>> {
        let text = self.bytes()?;
        let is_utf8 = match text {
            ScannedText::Here(bytes) => is_utf8(bytes),
            ScannedText::Plain => is_utf8(&self.plain),
        };
        is_utf8.then_some(text)
    }

    fn key(&mut self) -> Option<Cow<'a, str>> {
        match self.bytes()? {
            ScannedText::Here(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            ScannedText::Plain => {
                let text = std::str::from_utf8(&self.plain).ok()?;
                Some(Cow::Owned(text.to_owned()))
            }
        }
    }

    /// Reads a string, whatever its bytes are.
    fn bytes(&mut self) -> Option<ScannedText<'a>> {
        self.skip(b"\"")?;
        let plain = self.run()?;
        if self.skip(b"\"").is_some() {
            return Some(ScannedText::Here(plain));
        }
        self.plain.clear();
        self.plain.extend_from_slice(plain);
        while self.skip(b"\"").is_none() {
            self.escape()?;
            let plain = self.run()?;
            self.plain.extend_from_slice(plain);
        }
        Some(ScannedText::Plain)
    }

    /// Returns the bytes before the next quote, backslash or control character.
    fn run(&mut self) -> Option<&'a [u8]> {
        let (run, rest) = self
            .rest
            .split_at_checked(escape::next_special(self.rest)?)?;
        self.rest = rest;
        Some(run)
    }

    fn escape(&mut self) -> Option<()> {
        self.skip(b"\\")?;
        let mut escape = Escape::Backslash;
        loop {
            let (byte, rest) = self.rest.split_first()?;
            // Models write `\'`, which JSON does not have.
            if *byte == b'\'' {
                return None;
            }
            self.rest = rest;
            let mut said = None;
            (escape, _) = escape.feed(*byte, &mut |letter| {
                said.get_or_insert(letter);
            })?;
            if let Some(letter) = said {
                let mut bytes = [0; 4];
                self.plain
                    .extend_from_slice(letter.encode_utf8(&mut bytes).as_bytes());
                // It may be half of a pair, which is not JSON.
                return (letter != char::REPLACEMENT_CHARACTER).then_some(());
            }
        }
    }

    fn number(&mut self) -> Option<Value> {
        let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
        let length = self.rest.iter().position(|byte| !is_part(byte));
        let length = length.unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        let is_small = matches!(number, [b'1'..=b'9', ..] | [b'0'])
            && number.len() <= DIGITS
            && number.iter().all(u8::is_ascii_digit);
        if !is_small {
            return json::read(number, 0).ok();
        }
        let digit = |sum, digit: &u8| sum * 10 + i64::from(digit - b'0');
        Some(Value::Int(number.iter().fold(0, digit)))
    }
}
