//! The source of a model's message and the reason why it ended, and which ends let its calls run.

use crate::log::provider::Provider;
use crate::provider::facts::Rule;
use crate::value::time::Time;
use crate::value::word::words;
use crate::value::{Map, Size, Value};

/// The source of a message of the model, why it ends, and whether it is complete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// The provider that sent it.
    pub provider: Option<Provider>,
    /// The model, as it names itself.
    pub model: Option<Box<str>>,
    /// The response's id.
    pub id: Option<Box<str>>,
    /// Why the model stopped.
    pub finish: Option<Finish>,
    /// The provider's own word for that.
    pub word: Option<Box<str>>,
    /// The time of the request.
    pub requested_at: Option<Time>,
    /// The time of its first piece, if it came in pieces.
    pub first_chunk_at: Option<Time>,
    /// The time at which all of it was there.
    pub received_at: Option<Time>,
    /// The message broke off, for this reason.
    pub interrupted: Option<Value>,
    /// Other fields of the answer, by the provider's names, such as sources.
    pub details: Option<Map>,
    /// Fields of a snapshot that this version does not know.
    pub(crate) extra: Option<Map>,
}

impl Reply {
    /// Returns the container that the provider ran its tools in. Requests that go on with them have to name it.
    pub(crate) fn container(&self) -> Option<&str> {
        let field = self.provider?.facts().container?;
        match self.details.as_ref()?.get_named(field)? {
            Value::Map(container) => container.get_named("id")?.as_str(),
            _ => None,
        }
    }

    /// Returns the provider whose later requests leave the message out.
    pub(crate) fn left_out_by(&self) -> Option<Provider> {
        let provider = self
            .provider
            .filter(|_| self.finish == Some(Finish::Refusal));
        provider.filter(|provider| provider.facts().has(Rule::LeavesOutRefused))
    }

    /// Returns the time at which it ended, as far as that is known.
    pub(crate) fn ended_at(&self) -> Option<Time> {
        self.received_at.or(self.requested_at)
    }

    /// Returns how much there is to walk and to copy.
    #[must_use]
    pub fn size(&self) -> Size {
        let texts = [&self.model, &self.id, &self.word];
        let bytes = texts.into_iter().flatten().map(|text| text.len()).sum();
        let reason = self.interrupted.as_ref().map(Value::size);
        let maps = [&self.details, &self.extra].into_iter().flatten();
        let own = Size::new(8, bytes).plus(reason.unwrap_or_default());
        own.plus(maps.map(Map::size).sum())
    }
}

/// The model reads this as the result of a call in an answer that was refused or filtered.
const REFUSED: &str = "The answer with this call was refused or filtered. It was not run.";

/// The model reads this where the provider could not make an answer of its words.
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
    /// Returns true if the model stopped in the middle of something.
    pub(crate) const fn breaks_off(self) -> bool {
        matches!(self, Self::Length) || self.why_not_run().is_some()
    }

    /// Returns true if the turn goes on: the model is asked again, with what it said so far.
    pub(crate) const fn goes_on(self) -> bool {
        matches!(self, Self::Pause)
    }

    /// Returns true if an answer without words and calls is none: the model meant to call a tool, or its provider could not read
    /// what it said.
    pub(crate) const fn lacks_more(self) -> bool {
        matches!(self, Self::ToolCalls | Self::Error)
    }

    /// Returns the text that the model reads as the result of a call in an answer that ended so; `None` where a complete call
    /// may run.
    pub(crate) const fn why_not_run(self) -> Option<&'static str> {
        match self {
            Self::Stop | Self::ToolCalls | Self::Length | Self::Pause => None,
            Self::ContentFilter | Self::Refusal => Some(REFUSED),
            Self::Error => Some(MALFORMED),
        }
    }
}
