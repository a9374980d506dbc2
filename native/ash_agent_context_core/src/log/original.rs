//! The provider's own form of an imported message.

use crate::log::provider::Provider;
use crate::value::Size;

/// The elements of a request's list that a message or an exchange was imported from, so that its own provider gets back
/// exactly those; every other provider gets the projection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Original {
    /// The provider with this form.
    pub provider: Provider,
    /// JSON text of the elements, each preceded by a comma; empty if the message before has
    /// them. Of a system prompt that stands beside the list: the value of its field.
    pub json: Box<str>,
}

impl Original {
    pub fn size(&self) -> Size {
        Size::new(1, self.json.len())
    }

    /// Returns the elements, if they are for this provider.
    pub fn of(original: Option<&Self>, provider: Provider) -> Option<&str> {
        let own = original.filter(|original| original.provider == provider)?;
        Some(&own.json)
    }
}
