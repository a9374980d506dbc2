//! From the bytes of an HTTP body, in any cut, to the documents in it.

mod document;
mod event_stream;
mod lines;
mod sse;

use crate::fault::Fault;
use crate::provider::framing::Framing;

use document::Documents;
use event_stream::EventStream;
use lines::Lines;
use sse::Sse;

/// What is done with a document: its name in the framing, if it has one there, and its bytes.
pub(crate) type Take<'t> = &'t mut dyn FnMut(Option<&str>, &[u8]) -> Result<(), Fault>;

/// A body that is being taken apart. Copies share what waits in it.
#[derive(Debug, Clone)]
pub(crate) enum Frames {
    Sse(Sse),
    NdJson(Lines),
    EventStream(EventStream),
    Json(Documents),
}

impl Frames {
    pub fn new(framing: Framing) -> Self {
        match framing {
            Framing::Sse => Self::Sse(Sse::default()),
            Framing::NdJson => Self::NdJson(Lines::default()),
            Framing::EventStream => Self::EventStream(EventStream::default()),
            Framing::Json => Self::Json(Documents::default()),
        }
    }

    /// Takes the next bytes apart.
    ///
    /// # Errors
    /// What is not the framing; [`Fault::TooMuchWork`] when more bytes than `budget` have waited for the
    /// end of a document.
    ///
    /// # Complexity
    /// O(new bytes), and those of documents that end in them
    pub fn feed(&mut self, bytes: &[u8], budget: usize, take: Take<'_>) -> Result<(), Fault> {
        // An error, or a whole answer, may come in the place of a stream.
        if let (Self::Sse(sse), Some(first)) = (&*self, first_letter(bytes)) {
            if sse.is_new() && matches!(first, b'{' | b'[') {
                *self = Self::Json(Documents::default());
            }
        }
        let is_new = match self {
            Self::Sse(sse) => sse.is_new(),
            Self::NdJson(lines) => lines.is_new(),
            Self::Json(documents) => documents.is_new(),
            Self::EventStream(_) => false,
        };
        if is_new && first_letter(bytes) == Some(b'<') {
            return Err(Fault::unreadable(
                "an HTML page: a gateway or proxy answered in place of the provider",
            ));
        }
        match self {
            Self::Sse(sse) => sse.feed(bytes, budget, take),
            Self::NdJson(lines) => lines.feed(bytes, budget, &mut |line| one(&line, take)),
            Self::EventStream(stream) => stream.feed(bytes, budget, take),
            Self::Json(documents) => documents.feed(bytes, budget, take),
        }
    }

    /// The body ends: what waits for an end has it, unless it is of known length.
    ///
    /// # Errors
    /// [`Fault::CutOff`] in the middle of a document.
    pub fn finish(&mut self, take: Take<'_>) -> Result<(), Fault> {
        match self {
            Self::Sse(sse) => sse.finish(take),
            Self::NdJson(lines) => lines.finish(&mut |line| one(&line, take)),
            Self::EventStream(stream) => stream.finish(),
            Self::Json(documents) => documents.finish(),
        }
    }
}

fn one(line: &[u8], take: Take<'_>) -> Result<(), Fault> {
    match line.iter().all(u8::is_ascii_whitespace) {
        true => Ok(()),
        false => take(None, line),
    }
}

fn first_letter(bytes: &[u8]) -> Option<u8> {
    let bytes = bytes.strip_prefix(sse::BOM).unwrap_or(bytes);
    bytes
        .iter()
        .find(|byte| !byte.is_ascii_whitespace())
        .copied()
}
