//! Which providers there are. The rules for what they accept, write and report are in their rooms.

use crate::value::word::Word;
use crate::value::{Map, Value};

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
            /// A small one that shows what a provider takes.
            #[cfg(test)] Tiny "tiny" tiny,
        }
    };
}
pub(crate) use providers;

macro_rules! names {
    ($($(#[doc = $doc:literal])* $(#[cfg($cfg:meta)])? $variant:ident $name:literal $room:ident,)*) => {
        /// Whose API a request is for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Provider {
            $($(#[doc = $doc])* $(#[cfg($cfg)])? $variant,)*
        }

        const COUNT: usize = [$($(#[cfg($cfg)])? $name,)*].len();

        impl Provider {
            /// All providers.
            pub const ALL: [Self; COUNT] = [$($(#[cfg($cfg)])? Self::$variant,)*];

            /// The name that stands for it in Elixir.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($(#[cfg($cfg)])? Self::$variant => $name,)*
                }
            }
        }
    };
}
providers!(names);

impl Word for Provider {
    const WORDS: &'static [Self] = &Self::ALL;

    fn word(self) -> &'static str {
        self.name()
    }
}

impl Provider {
    /// The provider of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::from_word(name)
    }

    /// The provider that metadata names.
    pub(crate) fn of(metadata: Option<&Map>) -> Option<Self> {
        metadata?
            .get_named("provider")
            .and_then(Value::as_name)
            .and_then(Self::from_name)
    }
}
