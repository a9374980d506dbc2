//! Which providers there are. The rules for what they accept, write and report are in their rooms.

use crate::provider::facts::Facts;
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
        }
    };
}
pub(crate) use providers;

macro_rules! names {
    ($($(#[doc = $doc:literal])* $variant:ident $name:literal $room:ident,)*) => {
        /// Whose API a request is for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Provider {
            $($(#[doc = $doc])* $variant,)*
        }

        const COUNT: usize = [$($name,)*].len();

        impl Provider {
            /// All providers.
            pub const ALL: [Self; COUNT] = [$(Self::$variant,)*];

            /// The name that stands for it in Elixir.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// What is true of it.
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
    /// Stands where something needs a provider that has none of its own, and which one it is makes no difference.
    fn default() -> Self {
        Self::Anthropic
    }
}

impl Provider {
    /// The provider of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// The provider that metadata names.
    pub(crate) fn of(metadata: Option<&Map>) -> Option<Self> {
        metadata?
            .get_named("provider")
            .and_then(Value::as_name)
            .and_then(Self::from_name)
    }
}
