//! The rules of one provider, as a room has to bring them.

use crate::answer::subset::Subset;
use crate::error::Error;
use crate::fault::Fault;
use crate::log::exchange::Exchange;
use crate::log::hints::Ttl;
use crate::log::message::Message;
use crate::provider::accepts::Accepts;
use crate::provider::draft::Draft;
use crate::provider::figures::Figures;
use crate::provider::framing::Framing;
use crate::provider::listener::Listener;
use crate::provider::node::Node;
use crate::provider::writer::Writer;
use crate::value::fields::Fields;
use crate::value::{Map, Value};

/// All rules of a provider.
pub(crate) trait Format: Accepts + Writes + Reads + Responds + Reports + Constrains {}

impl<T: Accepts + Writes + Reads + Responds + Reports + Constrains> Format for T {}

/// Holds what a user message says that stands where one has to and there is none.
pub(crate) const STAND_IN: &str = "Continue.";

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

    /// The keys that a request may have the system prompt under, beside the list.
    fn prompts(&self) -> &'static [&'static str] {
        &[]
    }

    /// The field that names the container in which the provider ran its tools.
    fn container(&self) -> Option<&'static str> {
        None
    }

    /// Writes the system prompt: the field's value, or the first elements of the list.
    fn system(&self, system: &Message, out: &mut Writer<'_>);

    /// Writes the elements that a message adds.
    fn message(&self, message: &Message, out: &mut Writer<'_>);

    /// Writes the elements that the results of a message's calls add.
    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Writer<'_>);

    /// Returns whether a list must begin with the user.
    fn user_first(&self) -> bool {
        false
    }

    /// Returns whether a list must not begin with a call.
    fn user_before_calls(&self) -> bool {
        self.user_first()
    }

    /// Returns whether an imported message of the model asks for its continuation, which it may at the end only.
    fn is_prefix(&self, _elements: &str) -> bool {
        false
    }

    /// Returns whether a list must not end with the model.
    fn user_last(&self) -> bool {
        false
    }

    /// Returns whether neighbours of one role must be one message.
    fn alternates(&self) -> bool {
        false
    }

    /// Returns what makes a cache breakpoint where a piece has its mark.
    fn cache_mark(&self, _ttl: Ttl) -> &'static str {
        ""
    }

    /// A user message with [`STAND_IN`], where one has to stand and there is none.
    fn stand_in(&self) -> &'static str {
        ",{\"role\":\"user\",\"content\":\"Continue.\"}"
    }
}

/// How a request is read.
pub(crate) trait Reads: Sync {
    /// Takes the conversation out of a request's body.
    fn read(&self, body: &mut Fields, history: &mut Listener) -> Result<(), Error>;

    /// Returns whether an object is an element of its own: reading finds no neutral form for it.
    fn is_row(&self, element: &Map) -> bool {
        element.get_named("role").is_some()
    }
}

/// How what comes back is read.
pub(crate) trait Responds: Sync {
    /// How streams are framed.
    fn framing(&self) -> Framing {
        Framing::Sse
    }

    /// Returns whether the arguments of calls are JSON text, which goes back as it came.
    fn has_text_arguments(&self) -> bool {
        false
    }

    /// Returns whether the text `[DONE]` is a stream's last word.
    fn says_done(&self) -> bool {
        false
    }

    /// Returns whether the end of the body is the last word, once the model said why it stopped.
    fn ends_with_body(&self) -> bool {
        false
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

/// How tokens are reported.
pub(crate) trait Reports: Sync {
    /// The keys of a report.
    fn figures(&self) -> &'static Figures;
}

/// How an answer is held to a schema.
pub(crate) trait Constrains: Sync {
    /// The part of JSON Schema that it takes, `None` if it holds answers to none.
    fn subset(&self) -> Option<&'static Subset> {
        None
    }

    /// Returns whether a model holds its answers to a schema, beside tools if it is `beside_tools`. Of a model that is not
    /// known to, it is not assumed.
    fn constrains(&self, _model: &str, _beside_tools: bool) -> bool {
        false
    }

    /// The fields of a request that ask for it.
    fn constraint(&self, _name: &str, _schema: Value) -> Value {
        Value::Map(Map::default())
    }
}
