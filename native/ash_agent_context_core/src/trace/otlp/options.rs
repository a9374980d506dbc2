//! Says which options there are for spans.

use crate::prices::list::Prices;
use crate::value::Value;

/// Which names things have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Conventions {
    /// Version 1.41 of the semantic conventions, the last one with a release.
    #[default]
    V1_41,
    /// Stands for what has been changed since, in the repository that they have moved to.
    Next,
}

impl Conventions {
    pub(super) const fn schema_url(self) -> &'static str {
        match self {
            Self::V1_41 => "https://opentelemetry.io/schemas/1.41.1",
            Self::Next => "https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev",
        }
    }
}

/// Which turns of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Turns {
    /// All of them.
    #[default]
    All,
    /// The one that the conversation is in.
    Last,
    /// Those that iterations from a number to another one belong to.
    Between(u64, u64),
}

/// Holds what is not in a conversation and yet in its spans, and what of it is.
#[derive(Debug, Default)]
pub struct OtlpOptions<'a> {
    /// The agent's name.
    pub agent: &'a str,
    /// The agent's version, if it has one.
    pub version: Option<&'a str>,
    /// The names.
    pub conventions: Conventions,
    /// Says whether to write JSON instead of Protobuf.
    pub is_json: bool,
    /// Says whether to write what was said.
    pub messages: bool,
    /// Which turns.
    pub turns: Turns,
    /// The tools that the agent had: a list of maps with `name`, `description` and `parameters`.
    pub tools: Option<&'a Value>,
    /// Of what emits the spans: keys and values.
    pub resource: &'a [(String, Value)],
    /// Of the turns, beside what is known of them: keys and values.
    pub attributes: &'a [(String, Value)],
    /// Why the last turn failed, if it did, and a conversation does not tell.
    pub error: Option<&'a str>,
    /// `true` if the last turn is still running: it has no span yet, but the spans within it do.
    pub is_open: bool,
    /// The trace and the span of who asked for the turns.
    pub caller: Option<([u8; 16], [u8; 8])>,
    /// Prices of models.
    pub prices: Option<&'a Prices>,
}
