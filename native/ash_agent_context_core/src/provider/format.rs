//! The traits of a room: how it writes and reads messages, and reads responses with their reports on tokens.

use crate::error::Error;
use crate::fault::Fault;
use crate::log::exchange::Exchange;
use crate::log::message::Message;
use crate::provider::draft::Draft;
use crate::provider::figures::Figures;
use crate::provider::framing::Framing;
use crate::provider::listener::Listener;
use crate::provider::node::Node;
use crate::provider::writer::Writer;
use crate::value::fields::Fields;
use crate::value::Map;

/// All traits of a room.
pub(crate) trait Format: Writes + Reads + Responds {}

impl<T: Writes + Reads + Responds> Format for T {}

/// Writes messages.
pub(crate) trait Writes: Sync {
    /// Writes the system prompt: the field's value, or the first elements of the list.
    fn system(&self, system: &Message, out: &mut Writer<'_>);

    /// Writes the elements that a message of the user's or the system's adds.
    fn user(&self, message: &Message, out: &mut Writer<'_>);

    /// Writes the elements that a message of the model's adds, without its results.
    fn assistant(&self, message: &Message, out: &mut Writer<'_>);

    /// Writes the elements that the results of a message's calls add.
    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Writer<'_>);
}

/// Reads requests.
pub(crate) trait Reads: Sync {
    /// Takes the conversation out of a request's body.
    fn read(&self, body: &mut Fields, history: &mut Listener) -> Result<(), Error>;

    /// Returns whether an element has no neutral form, so that it is kept whole.
    fn is_row(&self, element: &Map) -> bool {
        element.get_named("role").is_some()
    }
}

/// Reads responses.
pub(crate) trait Responds: Sync {
    /// Returns the keys of a report on tokens.
    fn figures(&self) -> &'static Figures;

    /// Returns how streams are framed.
    fn framing(&self) -> Framing {
        Framing::Sse
    }

    /// Reads a document: an event of a stream, or a whole answer.
    ///
    /// # Errors
    /// The provider's own error, or the part that cannot be read.
    fn read_response(&self, draft: &mut Draft, node: &Node<'_>) -> Result<(), Fault>;

    /// Reads an event that the framing has a name for.
    ///
    /// # Errors
    /// As [`Responds::read_response`].
    fn read_event(&self, draft: &mut Draft, _name: &str, node: &Node<'_>) -> Result<(), Fault> {
        self.read_response(draft, node)
    }
}
