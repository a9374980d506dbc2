//! The rules of one provider, as a room has to bring them.

use crate::error::Error;
use crate::log::exchange::Exchange;
use crate::log::message::Message;
use crate::provider::accepts::Accepts;
use crate::provider::figures::Figures;
use crate::provider::foreign::Object;
use crate::provider::listener::Listener;
use crate::provider::writer::Writer;

/// All rules of a provider.
pub(crate) trait Format: Accepts + Writes + Reads + Reports {}

impl<T: Accepts + Writes + Reads + Reports> Format for T {}

/// How messages are written.
pub(crate) trait Writes: Sync {
    /// The key of the list of messages.
    fn list(&self) -> &'static str {
        "messages"
    }

    /// The key of the system prompt beside the list, if it stands there.
    fn system_key(&self) -> Option<&'static str> {
        None
    }

    /// Writes the system prompt: the field's value, or the first elements of the list.
    fn system(&self, system: &Message, out: &mut Writer<'_>);

    /// Writes the elements that a message adds.
    fn message(&self, message: &Message, out: &mut Writer<'_>);

    /// Writes the elements that the results of a message's calls add.
    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Writer<'_>);

    /// Whether a list must begin with the user.
    fn user_first(&self) -> bool {
        false
    }

    /// Whether a list must not end with the model.
    fn user_last(&self) -> bool {
        false
    }

    /// Whether neighbours of one role must be one message.
    fn alternates(&self) -> bool {
        false
    }

    /// What makes a cache breakpoint where a piece has its mark.
    fn cache_mark(&self) -> &'static str {
        ""
    }

    /// A user message where one has to stand and there is none.
    fn stand_in(&self) -> &'static str {
        ",{\"role\":\"user\",\"content\":\"Continue.\"}"
    }
}

/// How a request is read.
pub(crate) trait Reads: Sync {
    /// Takes the conversation out of a request's body.
    fn read(&self, body: &mut Object, history: &mut Listener) -> Result<(), Error>;
}

/// How tokens are reported.
pub(crate) trait Reports: Sync {
    /// The keys of a report.
    fn figures(&self) -> &'static Figures;
}
