//! JSON strings.
//!
//! serde_json looks at a string byte by byte; conversations are mostly long strings, and looking
//! at 32 bytes at a time is several times faster (`benches/snapshot.rs`, `bench/requests.exs`).

/// Bytes that are looked at together.
const CHUNK: usize = 32;

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

/// Where the first byte stands that has to be escaped.
fn next_special(bytes: &[u8]) -> Option<usize> {
    let mut chunks = bytes.chunks_exact(CHUNK);
    // Without a branch in it, this becomes a few vector instructions.
    let has_special = |chunk: &[u8]| {
        chunk
            .iter()
            .fold(false, |found, byte| found | is_special(*byte))
    };
    let found = chunks.by_ref().position(has_special);
    let start = match found {
        Some(chunk) => chunk * CHUNK,
        None => bytes.len() - chunks.remainder().len(),
    };
    let mut words = bytes.get(start..)?.chunks_exact(WORD);
    for (word, position) in words.by_ref().zip((start..).step_by(WORD)) {
        let word = u64::from_le_bytes(word.try_into().ok()?);
        let marks = special_marks(word);
        if marks != 0 {
            return Some(position + marks.trailing_zeros() as usize / 8);
        }
    }
    let rest = words.remainder();
    let at = rest.iter().position(|byte| is_special(*byte))?;
    Some(bytes.len() - rest.len() + at)
}

/// The highest bit of each byte of a word that has to be escaped; right up to the first of them, which is what is asked for.
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

/// The character after the backslash that escapes a byte; 0 for a byte that needs none.
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
