//! JSON strings.
//!
//! serde_json looks at a string byte by byte; conversations are mostly long strings, and looking
//! at 32 bytes at a time is several times faster (`benches/snapshot.rs`, `bench/requests.exs`).

/// Bytes that are looked at together.
const CHUNK: usize = 32;

/// Writes a text as a JSON string.
pub(crate) fn write(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    // Where the part begins that is not written yet.
    let mut from = 0;
    for (chunk, position) in bytes.chunks(CHUNK).zip((0..).step_by(CHUNK)) {
        // Without a branch in it, this becomes a few vector instructions.
        let found = |found, byte: &u8| found | is_special(*byte);
        if !chunk.iter().fold(false, found) {
            continue;
        }
        for (offset, byte) in chunk.iter().enumerate() {
            let escape = ESCAPES.get(usize::from(*byte)).copied().unwrap_or(0);
            if escape != 0 {
                let at = position + offset;
                out.extend_from_slice(bytes.get(from..at).unwrap_or_default());
                write_escape(out, *byte, escape);
                from = at + 1;
            }
        }
    }
    out.extend_from_slice(bytes.get(from..).unwrap_or_default());
    out.push(b'"');
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
