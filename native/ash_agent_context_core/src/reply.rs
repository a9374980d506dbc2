//! What there is to say of a model's message beside its words.

use crate::part::Provider;
use crate::provider::event::Finish;
use crate::value::{Size, Value};

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
    /// The message broke off, for this reason.
    pub interrupted: Option<Value>,
}

impl Reply {
    /// How much there is to walk and to copy.
    #[must_use]
    pub fn size(&self) -> Size {
        let texts = [&self.model, &self.id, &self.word];
        let bytes = texts.into_iter().flatten().map(|text| text.len()).sum();
        let reason = self.interrupted.as_ref().map_or(Size::default(), Value::size);
        Size::new(8, bytes).plus(reason)
    }
}
