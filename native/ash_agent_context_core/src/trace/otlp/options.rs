//! The options of spans.

use crate::prices::list::Prices;
use crate::value::Value;

/// The versions of the conventions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Conventions {
    /// Version 1.41 of the semantic conventions, the last one with a release.
    #[default]
    V1_41,
    /// The changes since then, in the repository to which the conventions moved.
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

/// The turns to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Turns {
    /// All of them.
    #[default]
    All,
    /// The current turn.
    Last,
    /// The turns to which iterations from one number to another belong.
    Between(u64, u64),
}

/// The choices for the spans, and the facts that are not in a conversation.
#[derive(Debug, Default)]
pub struct OtlpOptions<'a> {
    /// The agent's name.
    pub agent: &'a str,
    /// The agent's version, if it has one.
    pub version: Option<&'a str>,
    /// The version of the names.
    pub conventions: Conventions,
    /// True to write JSON instead of Protobuf.
    pub is_json: bool,
    /// True to write messages.
    pub messages: bool,
    /// The turns to write.
    pub turns: Turns,
    /// The tools that the agent had: a list of maps with `name`, `description` and `parameters`.
    pub tools: Option<Value>,
    /// The resource that emits the spans: keys and values.
    pub resource: Vec<(String, Value)>,
    /// Additional attributes of the turns: keys and values.
    pub attributes: Vec<(String, Value)>,
    /// Why the last turn failed, if it did, since a conversation does not have it.
    pub error: Option<&'a str>,
    /// True if the last turn is still running: it has no span yet, but the spans within it are written.
    pub is_open: bool,
    /// The trace and the span of the code that asked for the turns.
    pub caller: Option<([u8; 16], [u8; 8])>,
    /// The prices of models.
    pub prices: Option<&'a Prices>,
}
