//! JSON as strict readers take it.

use std::collections::HashSet;

use serde::de::IgnoredAny;

/// Checks JSON text: by serde_json, that every string can be read, and that no object has a key
/// twice. Of any depth, on a small stack.
///
/// # Panics
/// When it is none.
pub fn check(text: &[u8]) {
    let text = std::str::from_utf8(text).unwrap();
    // Values that are ignored are not built, so numbers may have any size and nesting any depth.
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        panic!("{error} in {text}");
    }
    let mut objects: Vec<Option<HashSet<String>>> = Vec::new();
    let mut at = 0;
    while let Some(byte) = text.as_bytes().get(at) {
        match byte {
            b'{' => objects.push(Some(HashSet::new())),
            b'[' => objects.push(None),
            b'}' | b']' => drop(objects.pop()),
            b'"' => {
                let end = string_end(text.as_bytes(), at);
                let string = &text[at..end];
                let read: String = serde_json::from_str(string)
                    .unwrap_or_else(|error| panic!("{error}: {string} in {text}"));
                let rest = text[end..].trim_start();
                if let Some(Some(keys)) = objects.last_mut().filter(|_| rest.starts_with(':')) {
                    assert!(keys.insert(read), "{string} twice in an object of {text}");
                }
                at = end;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
}

/// Checks the JSON text of a request: [`check`], and that a float can hold every number.
///
/// # Panics
/// When it is none.
pub fn check_sent(text: &[u8]) {
    check(text);
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let mut end = at + 1;
        if *byte == b'"' {
            end = string_end(text, at);
        } else if byte.is_ascii_digit() {
            let more = |byte: &&u8| byte.is_ascii_digit() || b".+-eE".contains(byte);
            end = at + text[at..].iter().take_while(more).count();
            let number: f64 = std::str::from_utf8(&text[at..end])
                .unwrap()
                .parse()
                .unwrap();
            assert!(
                number.is_finite(),
                "{number} in {}",
                String::from_utf8_lossy(text)
            );
        }
        at = end;
    }
}

/// The index behind the string that begins here.
fn string_end(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while text[at] != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}
