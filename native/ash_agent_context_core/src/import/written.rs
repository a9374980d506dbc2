//! The text of a request's elements, for the order of keys, which values do not keep.

use std::collections::HashMap;

use serde_json::value::RawValue;

/// The elements of a request's list and its system prompt, as texts without white space.
#[derive(Debug, Default)]
pub struct Written {
    pub elements: Vec<Option<String>>,
    pub prompt: Option<String>,
}

impl Written {
    /// Reads a body that is valid and has no key twice. Messages whose texts cannot be found are written anew.
    pub fn of(text: &[u8], list: &str, prompts: &[&str]) -> Self {
        let Ok(fields) = serde_json::from_slice::<HashMap<String, &RawValue>>(text) else {
            return Self::default();
        };
        let list = fields
            .get(list)
            .map(|list| serde_json::from_str(list.get()));
        let elements: Vec<&RawValue> = list.and_then(Result::ok).unwrap_or_default();
        let prompt = prompts.iter().rev().find_map(|name| fields.get(*name));
        Self {
            elements: elements.into_iter().map(compact).collect(),
            prompt: prompt.and_then(|prompt| compact(prompt)),
        }
    }
}

/// Returns JSON without the white space between its tokens.
fn compact(json: &RawValue) -> Option<String> {
    let text = json.get().as_bytes();
    let mut kept = Vec::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for byte in text {
        if in_string {
            in_string = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
        } else if byte.is_ascii_whitespace() {
            continue;
        } else {
            in_string = *byte == b'"';
        }
        kept.push(*byte);
    }
    String::from_utf8(kept).ok()
}
