//! Texts, ids and names as providers take them.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

/// Whether a provider may call a text empty. Python's `strip` takes the four separators too.
pub(super) fn is_blank(text: &str) -> bool {
    text.chars().all(is_space)
}

/// The text without white space at its end.
pub(super) fn trim_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

fn is_space(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter)
}

/// Bytes as UTF-8; what is none is replaced.
pub(super) fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The letters that a provider's names may have.
#[derive(Clone, Copy)]
pub(super) enum Names {
    /// `[a-zA-Z0-9_-]{1,64}`
    Plain,
    /// `[A-Za-z_][A-Za-z0-9_.:-]{0,127}`
    Gemini,
    /// Anything but nothing.
    Free,
}

/// The name, or one that is made of it: the same for the same name, another for another.
pub(super) fn name(name: &str, rule: Names) -> Cow<'_, str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let fits = match rule {
        Names::Plain => (1..=64).contains(&name.len()) && name.bytes().all(plain),
        Names::Gemini => {
            let first = name.bytes().next();
            first.is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
                && name.len() <= 128
                && name
                    .bytes()
                    .all(|byte| plain(byte) || byte == b'.' || byte == b':')
        }
        Names::Free => !is_blank(name),
    };
    if fits {
        return Cow::Borrowed(name);
    }
    let digest = Sha256::digest(name.as_bytes());
    let digest: String = digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let stem: String = name
        .chars()
        .take(32)
        .map(|letter| match u8::try_from(letter) {
            Ok(byte) if plain(byte) => letter,
            _ => '_',
        })
        .collect();
    Cow::Owned(format!("tool_{stem}_{digest}"))
}
