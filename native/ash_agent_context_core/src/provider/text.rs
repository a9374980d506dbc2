//! Texts, ids and names as providers take them.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::log::part::Provider;
pub(crate) use crate::provider::patterns::is_blank;
use crate::provider::patterns::{is_plain, is_space, takes_name};

/// The text without white space at its end.
pub(crate) fn trim_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

/// Bytes as UTF-8; what is none is replaced.
pub(crate) fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// The name, or one that is made of it: the same for the same name, another for another.
pub(crate) fn name(provider: Provider, name: &str) -> Cow<'_, str> {
    if takes_name(provider, name) {
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
            Ok(byte) if is_plain(byte) => letter,
            _ => '_',
        })
        .collect();
    Cow::Owned(format!("tool_{stem}_{digest}"))
}
