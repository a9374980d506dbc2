//! Other names of a call, for providers that cannot take its id.

use crate::log::provider::Provider;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Aliases {
    /// An id, unique in the conversation, that every provider without a form of its own for ids takes; `None` if the call's
    /// id is such a one.
    pub safe: Option<Box<str>>,
    /// An earlier call has the same id.
    pub reused: bool,
    /// The id is another call's alias.
    pub clash: bool,
    /// Nine letters and digits, unique in the conversation: Mistral takes no other ids.
    pub short: Short,
    /// An earlier item has the id that the provider gave this one.
    pub item_reused: bool,
    /// An id for its item, where OpenAI Responses wants one and none is at hand; unique in the conversation.
    pub item: Option<Box<str>>,
    /// The provider whose form of the message is kept as it was imported. The id is in it, so that provider gets no alias.
    pub kept_by: Option<Provider>,
}

/// A letter and the call's number in the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Short {
    pub letter: u8,
    pub number: u64,
    /// The id itself looks like the short alias of an earlier call.
    pub clash: bool,
}

impl Short {
    pub fn text(self) -> String {
        let letter = char::from(self.letter);
        format!("{letter}{:08}", self.number % 100_000_000)
    }

    /// Returns the number in an id that has the form of a short alias.
    pub fn parse(id: &str) -> Option<u64> {
        let digits = id.strip_prefix(|letter: char| letter.is_ascii_lowercase())?;
        let all_digits = digits.len() == 8 && digits.bytes().all(|byte| byte.is_ascii_digit());
        all_digits.then(|| digits.parse().ok()).flatten()
    }
}
