//! How a request is made.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::log::provider::Provider;
use crate::value::word::words;

/// How a request is made.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// Whom it is for.
    pub provider: Provider,
    /// The model it is for, where that matters.
    pub model: Option<&'a str>,
    /// Holds what becomes of thinking that another provider or model gave.
    pub thinking: Thinking,
    /// The role of the system prompt for OpenAI.
    pub system_role: SystemRole,
    /// Holds what a server that speaks OpenAI's chat format makes of reasoning.
    pub dialect: Option<Dialect>,
    /// Holds what the provider keeps of the conversation itself.
    pub known: Known<'a>,
    /// Says whether to place cache breakpoints.
    pub cache: bool,
    /// The number of the first iteration to send.
    pub from: Option<u64>,
    /// Bytes of text that a tool result may have, where that is less than the view allows.
    pub max_result_bytes: Option<usize>,
    /// Bytes to encode at most. Existing encodings do not count.
    pub most: usize,
    /// Messages and pieces to look at, at most.
    pub steps: usize,
}

words! {
    /// Says what becomes of thinking that another provider or model gave.
    pub enum Thinking {
        /// It is left out.
        Drop = "drop",
        /// It becomes text.
        Text = "text",
    }
}

words! {
    /// The role of the system prompt for OpenAI.
    pub enum SystemRole {
        /// `"system"`
        System = "system",
        /// `"developer"`, for o1 and newer.
        Developer = "developer",
    }
}

words! {
    /// Says what a server that speaks OpenAI's chat format makes of reasoning. Without one, what was imported goes
    /// back as it came, and no other reasoning goes.
    pub enum Dialect {
        /// It takes none.
        OpenAi = "openai",
        /// It wants `reasoning_content` in every message of the model.
        DeepSeek = "deepseek",
        /// It takes `reasoning_details`.
        OpenRouter = "openrouter",
        /// It takes `reasoning` with calls.
        Vllm = "vllm",
    }
}

/// Says what OpenAI Responses keeps of the conversation itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Known<'a> {
    /// Nothing: all of it is sent.
    #[default]
    Nothing,
    /// All up to the response with this id.
    Response(&'a str),
    /// All up to the last response in the conversation with this id.
    Conversation(&'a str),
}

impl<'a> Known<'a> {
    /// The field of a request that says it.
    pub(crate) const fn field(self) -> Option<(&'static str, &'a str)> {
        match self {
            Self::Nothing => None,
            Self::Response(id) => Some(("previous_response_id", id)),
            Self::Conversation(id) => Some(("conversation", id)),
        }
    }
}

impl<'a> Options<'a> {
    /// The defaults for a provider.
    #[must_use]
    pub const fn new(provider: Provider) -> Self {
        Self {
            provider,
            model: None,
            thinking: Thinking::Drop,
            system_role: SystemRole::System,
            dialect: None,
            known: Known::Nothing,
            cache: false,
            from: None,
            max_result_bytes: None,
            most: usize::MAX,
            steps: usize::MAX,
        }
    }

    /// Returns what of the options decides how a message is encoded.
    pub(crate) fn key(&self) -> u64 {
        // SipHash with fixed keys: the same number for the same options.
        let mut hasher = DefaultHasher::new();
        let Self {
            provider,
            model,
            thinking,
            system_role,
            dialect,
            cache,
            known: _, // it decides what is sent, not how
            from: _,
            max_result_bytes: _, // in the rendering of what it changes
            most: _,
            steps: _,
        } = self;
        (provider, model, thinking, system_role, dialect, cache).hash(&mut hasher);
        hasher.finish()
    }
}
