//! The text of a request's elements, for the order of keys, which values do not keep.

use jiter::{Jiter, JiterError};

/// The elements of a request's list and its system prompt, as texts without white space.
#[derive(Debug, Default)]
pub struct Written {
    pub elements: Vec<Option<String>>,
    pub prompt: Option<String>,
}

impl Written {
    /// Reads a body that is valid and has no key twice. Messages whose texts cannot be found are written anew.
    pub fn of(text: &[u8], list: &str, prompts: &[&str]) -> Self {
        let mut written = Self::default();
        match written.read(text, list, prompts) {
            Ok(()) => written,
            Err(_) => Self::default(),
        }
    }

    fn read(&mut self, text: &[u8], list: &str, prompts: &[&str]) -> Result<(), JiterError> {
        let mut jiter = Jiter::new(text);
        let mut key = jiter.next_object()?.map(str::to_owned);
        while let Some(name) = key {
            let peek = jiter.peek()?;
            let start = jiter.current_index();
            if name == list && text.get(start) == Some(&b'[') {
                let mut next = jiter.known_array()?;
                while let Some(element) = next {
                    let start = jiter.current_index();
                    jiter.known_skip(element)?;
                    self.elements
                        .push(compact(text, start, jiter.current_index()));
                    next = jiter.array_step()?;
                }
            } else {
                jiter.known_skip(peek)?;
                if prompts.contains(&&*name) {
                    self.prompt = compact(text, start, jiter.current_index());
                }
            }
            key = jiter.next_key()?.map(str::to_owned);
        }
        Ok(())
    }
}

/// Returns JSON without the white space between its tokens.
fn compact(text: &[u8], start: usize, end: usize) -> Option<String> {
    let text = text.get(start..end)?;
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
