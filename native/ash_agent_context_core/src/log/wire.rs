//! What an imported message was in its provider's own form.

use crate::log::provider::Provider;
use crate::value::Size;

/// The elements of a request's list that a message or an exchange was imported from, so that its
/// own provider gets back exactly what it had; every other provider gets the projection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wire {
    /// Whose form it is.
    pub provider: Provider,
    /// JSON text of the elements, each with a comma in front; empty when the message in front has
    /// them. Of a system prompt that stands beside the list: the value of its field.
    pub json: Box<str>,
}

impl Wire {
    /// How much there is to copy.
    pub fn size(&self) -> Size {
        Size::new(1, self.json.len())
    }

    /// The elements, if they are for this provider.
    pub fn of(wire: Option<&Self>, provider: Provider) -> Option<&str> {
        wire.filter(|wire| wire.provider == provider)
            .map(|wire| &*wire.json)
    }
}
