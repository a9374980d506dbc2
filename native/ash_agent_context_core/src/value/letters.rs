//! Letters: which texts are blank, and which letters every provider takes.

use std::borrow::Cow;

use sha2::{Digest as _, Sha256};

/// Returns true if a provider may call a text empty. Python's `strip` takes the four separators too.
pub(crate) fn is_blank(text: &str) -> bool {
    text.chars().all(is_space)
}

/// Returns true for white space, as any provider may see it.
pub(crate) fn is_space(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter)
}

/// Returns the text without white space at its end.
pub(crate) fn trim_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

/// Returns true for letters that every provider takes in ids and names.
pub(crate) fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Returns true for letters that some providers take besides.
pub(crate) fn is_dotted(byte: u8) -> bool {
    is_plain(byte) || byte == b'.' || byte == b':'
}

/// Returns the first letters of a text, with `_` for each that not every provider takes.
pub(crate) fn plain_stem(text: &str, most: usize) -> String {
    let plain = |letter| match u8::try_from(letter) {
        Ok(byte) if is_plain(byte) => letter,
        _ => '_',
    };
    text.chars().take(most).map(plain).collect()
}

/// Returns bytes as hexadecimal digits.
pub(crate) fn hex<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> String {
    let digits = bytes.into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    let digits = digits.filter_map(|digit| char::from_digit(u32::from(digit), 16));
    digits.collect()
}

/// Digests in notes have so many hexadecimal digits.
const DIGITS: usize = 16;

/// Returns the first digits of a digest.
pub(crate) fn short_digest(digest: Sha256) -> String {
    hex(digest.finalize().iter().take(DIGITS / 2))
}

/// Returns bytes as UTF-8; invalid ones are replaced.
pub(crate) fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    // `from_utf8_lossy` looks at each byte, `from_utf8` at words of ASCII.
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}
