//! Estimates the tokens of images and files for all providers: figures to plan with, not those on a bill.

use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::DecodePaddingMode;
use base64::Engine;
use memchr::memmem;

use super::text::Method;
use crate::log::part::{MediaPart, Source};

/// The longest edge of an image after scaling. This, the pixels per token and the most tokens are Anthropic's
/// (<https://docs.anthropic.com/en/docs/build-with-claude/vision>, before Claude Opus 4.7).
const LONG_EDGE: u64 = 1_568;

const PIXELS_PER_TOKEN: u64 = 750;

/// The tokens of an image that is large, or whose size is not known. OpenAI's first vision models count 765 for a square one and
/// at most 1,445 for common shapes, Gemini 258 a tile.
const IMAGE: u64 = 1_600;

/// The tokens of a page of a PDF: the middle of the 1,500 to 3,000 that Anthropic names for a page's text
/// (<https://docs.anthropic.com/en/docs/build-with-claude/pdf-support>). An unknown file counts as a page, too. Gemini counts 258
/// for a page.
const PAGE: u64 = 2_250;

/// The bytes of a page, for a PDF with its pages in compressed objects: a page of text has 5 to 30 kB, a scanned one several
/// times that.
const BYTES_PER_PAGE: usize = 20_000;

/// The bytes of base64 text to decode at once. The header of an image is within the first of them.
const CHUNK: usize = 256 * 1024;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Returns the tokens of an image, from its size in pixels.
pub(crate) fn image(source: &Source) -> u64 {
    let Source::Data(data) = source else {
        return IMAGE;
    };
    let header = chunks(data).next();
    let size = header.and_then(|header| imagesize::blob_size(&header).ok());
    size.map_or(IMAGE, |size| pixels(size.width as u64, size.height as u64))
}

fn pixels(width: u64, height: u64) -> u64 {
    let long = width.max(height);
    if width.min(height) == 0 {
        return IMAGE; // a header that says nothing
    }
    let scaled = |edge: u64| match long > LONG_EDGE {
        true => u128::from(edge) * u128::from(LONG_EDGE) / u128::from(long),
        false => u128::from(edge),
    };
    let tokens = (scaled(width) * scaled(height)).div_ceil(u128::from(PIXELS_PER_TOKEN));
    u64::try_from(tokens).unwrap_or(IMAGE).clamp(1, IMAGE)
}

/// Returns the tokens of a file: a text by its bytes, a PDF by its pages, an image as an image, and the same number for any other
/// file and for one that is elsewhere. `corrected` is the type of its bytes, if it says that it is of another one.
pub(crate) fn file(file: &MediaPart, corrected: Option<&str>) -> u64 {
    let given = corrected.or(file.media_type.as_deref());
    let kind = FileKind::of(given, file.filename.as_deref());
    match (kind, &file.source) {
        (FileKind::Image, source) => image(source),
        (FileKind::Text, Source::Data(data)) => chunks(data)
            .map(|chunk| Method::Estimate.text(&chunk))
            .sum(),
        (FileKind::Pdf, Source::Data(data)) => PAGE.saturating_mul(pages(data)),
        (FileKind::Other, _) | (_, Source::Url(_) | Source::Stored { .. }) => PAGE,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Text,
    Pdf,
    Image,
    Other,
}

impl FileKind {
    /// Returns the kind by the media type, or by the extension of the name if there is none of use.
    fn of(media_type: Option<&str>, filename: Option<&str>) -> Self {
        let media_type = media_type.unwrap_or_default().to_ascii_lowercase();
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        if ["", "application/octet-stream"].contains(&essence) {
            let extension = filename.and_then(|name| Some(name.rsplit_once('.')?.1));
            return match &*extension.unwrap_or_default().to_ascii_lowercase() {
                "pdf" => Self::Pdf,
                "txt" | "md" | "csv" | "json" | "xml" | "html" | "yaml" | "yml" | "toml" => {
                    Self::Text
                }
                "png" | "jpg" | "jpeg" | "gif" | "webp" => Self::Image,
                _ => Self::Other,
            };
        }
        let (of, subtype) = essence.split_once('/').unwrap_or_default();
        match (of, subtype) {
            ("application", "pdf") => Self::Pdf,
            _ if essence.ends_with("+json") || essence.ends_with("+xml") => Self::Text,
            ("text", _) => Self::Text,
            ("image", _) => Self::Image,
            (
                "application",
                "json" | "xml" | "yaml" | "toml" | "javascript" | "sql" | "x-ndjson",
            ) => Self::Text,
            _ => Self::Other,
        }
    }
}

/// Returns the bytes in chunks, up to the first that are not base64.
fn chunks(data: &str) -> impl Iterator<Item = Vec<u8>> + '_ {
    data.as_bytes()
        .chunks(CHUNK)
        .map_while(|chunk| BASE64.decode(chunk).ok())
}

/// Returns the number of pages that a PDF lists in the open, or else the number by its size.
fn pages(data: &str) -> u64 {
    const LONGEST_MARK: usize = 32;
    let (mut window, mut bytes, mut pages) = (Vec::new(), 0, 0);
    let mut chunks = chunks(data).peekable();
    while let Some(chunk) = chunks.next() {
        bytes += chunk.len();
        window.extend(chunk);
        // The bytes at the end may continue in the next chunk.
        let keep = match chunks.peek() {
            Some(_) => LONGEST_MARK.min(window.len()),
            None => 0,
        };
        let end = window.len() - keep;
        pages += count_page_marks(&window, end);
        window.drain(..end);
    }
    match pages {
        0 => bytes.div_ceil(BYTES_PER_PAGE).max(1) as u64,
        pages => pages,
    }
}

const TYPE: &[u8] = b"/Type";

/// Returns the number of page marks that begin before `end`.
fn count_page_marks(window: &[u8], end: usize) -> u64 {
    // `/Type /Page`, not `/Type /Pages`.
    let is_page = |start: &usize| {
        let rest = window.get(start + TYPE.len()..).unwrap_or_default();
        let is_space = |byte: &&u8| byte.is_ascii_whitespace();
        let spaces = rest.iter().take(8).take_while(is_space).count();
        let name = rest.get(spaces..).unwrap_or_default();
        name.strip_prefix(b"/Page")
            .is_some_and(|after| !after.first().is_some_and(u8::is_ascii_alphanumeric))
    };
    let starts = memmem::find_iter(window, TYPE).take_while(|start| *start < end);
    starts.filter(is_page).count() as u64
}
