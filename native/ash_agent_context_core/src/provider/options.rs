//! The options of a request.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::log::provider::Provider;
use crate::provider::dialect::facts::object;
use crate::value::word::words;
use crate::value::Value;

/// The options of a request.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// The provider to send it to.
    pub provider: Provider,
    /// The model to send it to, if that matters.
    pub model: Option<&'a str>,
    /// The form in which thinking of another provider or model is sent.
    pub thinking: Thinking,
    /// The role of the system prompt for OpenAI.
    pub system_role: SystemRole,
    /// The variant of OpenAI's chat format that the server speaks, for reasoning.
    pub dialect: Option<Dialect>,
    /// The part of the conversation that the provider keeps itself.
    pub known: Known<'a>,
    /// True to place cache breakpoints.
    pub cache: bool,
    /// The tokens of the shortest request that the model caches, if it is another than known here. Forecasts use it.
    pub cache_minimum: Option<u64>,
    /// The number of the first iteration to send.
    pub from: Option<u64>,
    /// The most bytes of text in a tool result, if that is less than the view allows.
    pub max_result_bytes: Option<usize>,
    /// The most bytes to encode. Existing encodings do not count.
    pub most: usize,
    /// The most messages and pieces to look at.
    pub steps: usize,
}

words! {
    /// The form in which thinking of another provider or model is sent.
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
    /// The fields for reasoning in a variant of OpenAI's chat format. Without a dialect, imported reasoning goes back as it came,
    /// and other reasoning is not sent. In Anthropic's format, any dialect takes thinking that nobody signed.
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

/// The part of the conversation that the provider keeps itself, as OpenAI Responses and Anthropic can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Known<'a> {
    /// Nothing: the request has all of it.
    #[default]
    Nothing,
    /// All up to the response with this id.
    Response(&'a str),
    /// All up to the last response in the conversation with this id.
    Conversation(&'a str),
}

impl<'a> Known<'a> {
    /// Returns the field of a request for it, and its value.
    pub(crate) fn field(self, provider: Provider) -> Option<(&'static str, Value)> {
        match self {
            Self::Nothing => None,
            // From anthropic 2.14.0, `beta_thread_continue_params.py`.
            Self::Response(id) if provider == Provider::Anthropic => {
                let id = ("previous_message_id", Value::text(id));
                Some(("thread", object([("type", Value::text("continue")), id])))
            }
            Self::Response(id) => Some(("previous_response_id", Value::text(id))),
            Self::Conversation(id) => Some(("conversation", Value::text(id))),
        }
    }
}

impl<'a> Options<'a> {
    /// Returns the defaults for a provider.
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
            cache_minimum: None,
            from: None,
            max_result_bytes: None,
            most: usize::MAX,
            steps: usize::MAX,
        }
    }

    /// Returns whether thinking goes back without a signature. Anthropic refuses it, servers that speak its format want it.
    pub(crate) fn takes_unsigned(&self) -> bool {
        self.provider == Provider::Anthropic && self.dialect.is_some()
    }

    /// Returns a key of the options that decide how a message is encoded.
    pub(crate) fn key(&self) -> u64 {
        // SipHash with fixed keys gives the same number for the same options.
        let mut hasher = DefaultHasher::new();
        let Self {
            provider,
            model,
            thinking,
            system_role,
            dialect,
            cache,
            cache_minimum: _,
            known: _, // it decides what is sent, not how
            from: _,
            max_result_bytes: _, // the rendering's key has it
            most: _,
            steps: _,
        } = self;
        (provider, model, thinking, system_role, dialect, cache).hash(&mut hasher);
        hasher.finish()
    }
}
