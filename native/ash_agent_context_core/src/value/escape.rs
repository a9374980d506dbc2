//! Writing JSON strings, and finding the bytes in them that have to be escaped.
//!
//! serde_json writes a string byte by byte, and jiter reads it so; conversations are mostly long strings, and
//! looking at 64 bytes at a time is several times faster (`benches/snapshot.rs`, `bench/requests.exs`).

/// Bytes that are looked at together.
const CHUNK: usize = 64;

/// Bytes of the beginning that are looked at word by word.
const NEAR: usize = 4 * WORD;

/// Bytes in which the first one is found that has to be escaped.
const WORD: usize = 8;

/// Writes a text as a JSON string.
pub(crate) fn write(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some((plain, [byte, after @ ..])) =
        next_special(rest).and_then(|at| rest.split_at_checked(at))
    {
        out.extend_from_slice(plain);
        let escape = ESCAPES.get(usize::from(*byte)).copied().unwrap_or(0);
        write_escape(out, *byte, escape);
        rest = after;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Returns the index of the first byte that has to be escaped.
pub(crate) fn next_special(bytes: &[u8]) -> Option<usize> {
    // Keys, names and short lines end here.
    let near = bytes.get(..NEAR).unwrap_or(bytes);
    if let Some(at) = special_in_words(near) {
        return Some(at);
    }
    let far = bytes.get(NEAR..)?;
    let start = NEAR
        + CHUNK
            * far
                .chunks_exact(CHUNK)
                .position(|chunk| any(chunk, is_special))
                .unwrap_or(far.len() / CHUNK);
    special_in_words(bytes.get(start..)?).map(|at| start + at)
}

/// Returns true if all of a text is ASCII of which nothing has to be escaped.
pub(crate) fn is_plain(bytes: &[u8]) -> bool {
    // As signed bytes, all but ASCII are negative.
    let is_odd = |byte: u8| (byte.cast_signed() < 0x20) | (byte == b'"') | (byte == b'\\');
    let mut chunks = bytes.chunks_exact(CHUNK);
    chunks.by_ref().all(|chunk| !any(chunk, is_odd)) && !any(chunks.remainder(), is_odd)
}

/// Returns true if there is such a byte. Without a branch in it, this becomes a few vector instructions for each [`CHUNK`].
fn any(bytes: &[u8], is_such: impl Fn(u8) -> bool) -> bool {
    let found = |found, byte: &u8| found | u8::from(is_such(*byte));
    bytes.iter().fold(0, found) != 0
}

fn special_in_words(bytes: &[u8]) -> Option<usize> {
    let mut words = bytes.chunks_exact(WORD);
    for (word, position) in words.by_ref().zip((0..).step_by(WORD)) {
        let marks = special_marks(u64::from_le_bytes(word.try_into().ok()?));
        if marks != 0 {
            return Some(position + marks.trailing_zeros() as usize / 8);
        }
    }
    let rest = words.remainder();
    let at = rest.iter().position(|byte| is_special(*byte))?;
    Some(bytes.len() - rest.len() + at)
}

/// Sets the highest bit of each byte of a word that has to be escaped; right only up to the first of them, which is the one
/// asked for.
const fn special_marks(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    const fn below(word: u64, limit: u8) -> u64 {
        word.wrapping_sub(ONES * limit as u64) & !word & HIGH
    }
    const fn equal(word: u64, byte: u8) -> u64 {
        below(word ^ (ONES * byte as u64), 1)
    }
    below(word, 0x20) | equal(word, b'"') | equal(word, b'\\')
}

fn write_escape(out: &mut Vec<u8>, byte: u8, escape: u8) {
    if escape == b'u' {
        out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
    } else {
        out.extend_from_slice(&[b'\\', escape]);
    }
}

/// The character after the backslash for each byte; 0 for a byte that needs no escape.
#[expect(clippy::indexing_slicing, reason = "checked when it is compiled")]
const ESCAPES: [u8; 256] = {
    let mut escapes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        escapes[byte] = match byte as u8 {
            b'"' => b'"',
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0..0x20 => b'u',
            _ => 0,
        };
        byte += 1;
    }
    escapes
};

const fn is_special(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}
