//! Splits the bytes of an HTTP body, in any cut, into documents.

mod document;
mod event_stream;
mod lines;
mod sse;

use crate::fault::Fault;
use crate::provider::framing::Framing;

use document::Documents;
use event_stream::EventStream;
use lines::{Lines, Take};
use sse::Sse;

/// A body that is being split. Copies share the bytes that wait for the end of a document.
#[derive(Debug, Clone)]
pub(crate) struct Frames {
    body: Parser,
    /// True once anything but white space came.
    begun: bool,
    /// The first letters, while it is not clear yet if this is a stream or a document.
    head: Vec<u8>,
}

#[derive(Debug, Clone)]
enum Parser {
    Sse(Sse),
    NdJson(Lines),
    EventStream(EventStream),
    Json(Documents),
}

impl Frames {
    pub fn new(framing: Framing) -> Self {
        let body = match framing {
            Framing::Sse => Parser::Sse(Sse::default()),
            Framing::NdJson => Parser::NdJson(Lines::default()),
            Framing::EventStream => Parser::EventStream(EventStream::default()),
            Framing::Json => Parser::Json(Documents::default()),
        };
        Self {
            body,
            begun: false,
            head: Vec::new(),
        }
    }

    /// Splits the next bytes.
    ///
    /// # Errors
    /// Bytes that do not follow the framing; [`Fault::TooMuchWork`] when more bytes than `budget` have waited for the
    /// end of a document.
    ///
    /// # Complexity
    /// O(new bytes), and those of documents that end in them
    pub fn feed(&mut self, bytes: &[u8], budget: usize, take: Take<'_>) -> Result<(), Fault> {
        let joined;
        let bytes = match self.head.is_empty() {
            true => bytes,
            false => {
                joined = [&*std::mem::take(&mut self.head), bytes].concat();
                &joined
            }
        };
        let first = first_letter(bytes).filter(|_| !self.begun);
        // Some servers send a stream with the content type of a document.
        if let (Parser::Json(_) | Parser::NdJson(_), Some(letter)) = (&self.body, first) {
            let at = memchr::memchr(letter, bytes).unwrap_or_default();
            let begin = bytes.get(at..).unwrap_or_default();
            if sse::FIELDS.iter().any(|field| begin.starts_with(field)) {
                self.body = Parser::Sse(Sse::default());
            } else if sse::FIELDS.iter().any(|field| field.starts_with(begin)) {
                self.head = begin.to_vec();
                return Ok(());
            }
        }
        self.begun |= first.is_some();
        match (&self.body, first) {
            // An error, or a whole answer, may come instead of a stream.
            (Parser::Sse(_), Some(b'{' | b'[')) => self.body = Parser::Json(Documents::default()),
            (Parser::EventStream(_), _) | (_, None) => {}
            (_, Some(b'<')) => {
                return Err(Fault::unreadable(
                    "an HTML page: a gateway or proxy answered in place of the provider",
                ));
            }
            _ => {}
        }
        match &mut self.body {
            Parser::Sse(sse) => sse.feed(bytes, budget, take),
            Parser::NdJson(lines) => {
                lines.feed(bytes, budget, &mut |line| sse::give(None, &line, take))
            }
            Parser::EventStream(stream) => stream.feed(bytes, budget, take),
            Parser::Json(documents) => documents.feed(bytes, budget, take),
        }
    }

    /// Returns whether the body is one JSON document, which is a whole answer.
    pub fn is_one(&self) -> bool {
        match &self.body {
            Parser::Json(documents) => documents.is_one(),
            _ => false,
        }
    }

    /// Ends the body, and with it a document that waits for its end, unless its length says that more is missing.
    ///
    /// # Errors
    /// [`Fault::CutOff`] in the middle of a document.
    pub fn finish(&mut self, take: Take<'_>) -> Result<(), Fault> {
        if !self.head.is_empty() {
            return Err(Fault::CutOff);
        }
        match &mut self.body {
            Parser::Sse(sse) => sse.finish(take),
            Parser::NdJson(lines) => lines.finish(&mut |line| sse::give(None, &line, take)),
            Parser::EventStream(stream) => stream.finish(),
            Parser::Json(documents) => documents.finish(),
        }
    }
}

/// Returns the first byte after white space and the byte order mark.
fn first_letter(bytes: &[u8]) -> Option<u8> {
    let is_letter = |byte: &&u8| !byte.is_ascii_whitespace() && !sse::BOM.contains(byte);
    bytes.iter().find(is_letter).copied()
}
