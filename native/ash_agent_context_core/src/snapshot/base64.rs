//! Base64 with the standard alphabet and padding.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes as base64.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = (group >> (18 - 6 * place)) as usize & 63;
            let letter = ALPHABET.get(digit).copied().unwrap_or(b'=');
            // Two letters hold a byte, three two.
            text.push(char::from(if place > chunk.len() { b'=' } else { letter }));
        }
    }
    text
}

/// The bytes of base64 text; `None` when it is none.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = match text {
        [digits @ .., b'=', b'='] | [digits @ .., b'='] | digits => digits,
    };
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for chunk in digits.chunks(4) {
        let mut group = 0;
        for letter in chunk {
            group = group << 6 | digit(*letter)?;
        }
        group <<= 6 * (4 - chunk.len());
        let [_, all @ ..] = group.to_be_bytes();
        bytes.extend(all.iter().take(chunk.len() - 1));
    }
    Some(bytes)
}

fn digit(letter: u8) -> Option<u32> {
    let (first, offset) = match letter {
        b'A'..=b'Z' => (b'A', 0),
        b'a'..=b'z' => (b'a', 26),
        b'0'..=b'9' => (b'0', 52),
        b'+' => (b'+', 62),
        b'/' => (b'/', 63),
        _ => return None,
    };
    Some(u32::from(letter - first) + offset)
}
