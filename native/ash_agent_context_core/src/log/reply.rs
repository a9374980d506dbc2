//! A model's message beside its words: where it came from, why it ended, and which ends let its calls run.

use crate::log::provider::Provider;
use crate::value::time::Time;
use crate::value::word::words;
use crate::value::{Map, Size, Value};

/// Where a message of the model came from, why it ends, and whether it is all there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// Who sent it.
    pub provider: Option<Provider>,
    /// The model, as it names itself.
    pub model: Option<Box<str>>,
    /// The response's id.
    pub id: Option<Box<str>>,
    /// Why the model stopped.
    pub finish: Option<Finish>,
    /// The same in the provider's word.
    pub word: Option<Box<str>>,
    /// When it was asked for.
    pub requested_at: Option<Time>,
    /// When the first piece of it came, if it came in pieces.
    pub first_chunk_at: Option<Time>,
    /// When all of it was there.
    pub received_at: Option<Time>,
    /// The message broke off, for this reason.
    pub interrupted: Option<Value>,
    /// Holds what else the provider says of its answer, by its own names, such as sources.
    pub details: Option<Map>,
    /// Fields of a snapshot that this version does not know.
    pub(crate) extra: Option<Map>,
}

impl Reply {
    /// The container that the provider ran its tools in. Requests that go on with them have to name it.
    pub(crate) fn container(&self) -> Option<&str> {
        let field = self.provider?.facts().container?;
        match self.details.as_ref()?.get_named(field)? {
            Value::Map(container) => container.get_named("id")?.as_str(),
            _ => None,
        }
    }

    /// How much there is to walk and to copy.
    #[must_use]
    pub fn size(&self) -> Size {
        let texts = [&self.model, &self.id, &self.word];
        let bytes = texts.into_iter().flatten().map(|text| text.len()).sum();
        let reason = self
            .interrupted
            .as_ref()
            .map_or(Size::default(), Value::size);
        let maps = [&self.details, &self.extra].into_iter().flatten();
        let sum = Size::new(8, bytes).plus(reason);
        maps.fold(sum, |sum, map| sum.plus(map.size()))
    }
}

/// The model reads it of a call in an answer that was refused or filtered.
const REFUSED: &str = "The answer with this call was refused or filtered. It was not run.";

/// The same where the provider could not make an answer of what the model said.
const MALFORMED: &str = "The answer with this call was malformed or failed. It was not run.";

words! {
    /// Why a model stopped.
    pub enum Finish {
        /// It said what it had to say.
        Stop = "stop",
        /// It wants tools to be run.
        ToolCalls = "tool_calls",
        /// It reached a limit of tokens.
        Length = "length",
        /// A filter of the provider stopped it.
        ContentFilter = "content_filter",
        /// It does not want to answer.
        Refusal = "refusal",
        /// It goes on when it is asked again with what it said.
        Pause = "pause",
        /// Something went wrong.
        Error = "error",
    }
}

impl Finish {
    /// Returns whether the model stopped in the middle of something.
    pub(crate) const fn breaks_off(self) -> bool {
        matches!(self, Self::Length) || self.why_not_run().is_some()
    }

    /// Returns what the model reads of a call in an answer that ended so; `None` where a complete call may run.
    pub(crate) const fn why_not_run(self) -> Option<&'static str> {
        match self {
            Self::Stop | Self::ToolCalls | Self::Length | Self::Pause => None,
            Self::ContentFilter | Self::Refusal => Some(REFUSED),
            Self::Error => Some(MALFORMED),
        }
    }
}
