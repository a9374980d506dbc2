//! The list of providers. The rules for what they accept, write and report are in their rooms.

use crate::provider::facts::Facts;
use crate::value::word::words;
use crate::value::Map;

/// The list of providers: each one's variant, the name that stands for it in Elixir, and the folder
/// of its room under `provider/`.
macro_rules! providers {
    ($build:ident) => {
        $build! {
            /// Anthropic Messages.
            Anthropic "anthropic" anthropic,
            /// OpenAI Chat Completions and the servers that speak it.
            OpenAiChat "openai_chat" openai_chat,
            /// OpenAI Responses.
            OpenAiResponses "openai_responses" openai_responses,
            /// Gemini generateContent.
            Gemini "gemini" gemini,
            /// Bedrock Converse.
            Bedrock "bedrock" bedrock,
            /// Ollama chat.
            Ollama "ollama" ollama,
            /// Mistral chat completions.
            Mistral "mistral" mistral,
        }
    };
}
pub(crate) use providers;

macro_rules! names {
    ($($(#[doc = $doc:literal])* $variant:ident $name:literal $room:ident,)*) => {
        words! {
            /// A provider's API, which a request is written for.
            pub enum Provider {
                $($(#[doc = $doc])* $variant = $name,)*
            }
        }

        impl Provider {
            pub(crate) const fn facts(self) -> &'static Facts {
                match self {
                    $(Self::$variant => &crate::provider::$room::facts::FACTS,)*
                }
            }
        }
    };
}
providers!(names);

impl Default for Provider {
    /// Any provider: for values that have none of their own, where it makes no difference.
    fn default() -> Self {
        Self::Anthropic
    }
}

impl Provider {
    /// Returns the provider that metadata names.
    pub(crate) fn of(metadata: Option<&Map>) -> Option<Self> {
        Self::from_name(metadata?.get_named("provider")?.as_name()?)
    }
}
