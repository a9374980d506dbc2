//! Which texts, ids and names providers take.

use crate::log::part::Provider;

/// Whether a provider may call a text empty. Python's `strip` takes the four separators too.
pub(crate) fn is_blank(text: &str) -> bool {
    text.chars().all(is_space)
}

/// White space, as any provider may see it.
pub(crate) fn is_space(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter)
}

/// Letters that every provider takes in ids and names.
pub(crate) fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn is_dotted(byte: u8) -> bool {
    is_plain(byte) || byte == b'.' || byte == b':'
}

/// Whether a provider takes the id of a call, as far as one can see from the id alone.
///
/// OpenAI's older models and Azure take 40 characters; an id that came from OpenAI (`is_own`) may have
/// the 64 that newer ones take.
pub(crate) fn takes_id(provider: Provider, id: &str, is_own: bool) -> bool {
    let up_to = |limit: usize| (1..=limit).contains(&id.chars().count());
    match provider {
        Provider::Anthropic => !id.is_empty() && id.bytes().all(is_plain),
        Provider::OpenAiChat => up_to(if is_own { 64 } else { 40 }),
        Provider::OpenAiResponses => up_to(64),
        Provider::Bedrock => up_to(64) && id.bytes().all(is_dotted),
        Provider::Gemini | Provider::Ollama => true,
        Provider::Mistral => id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()),
    }
}

/// Whether a provider takes the name of a tool.
pub(crate) fn takes_name(provider: Provider, name: &str) -> bool {
    match provider {
        Provider::Ollama => !is_blank(name),
        Provider::Gemini => {
            let first = name.bytes().next();
            first.is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
                && name.len() <= 128
                && name.bytes().all(is_dotted)
        }
        _ => (1..=64).contains(&name.len()) && name.bytes().all(is_plain),
    }
}
