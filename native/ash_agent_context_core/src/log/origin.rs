//! Where a fork came from.

use crate::error::Error;
use crate::value::fields::{utf8, Fields};
use crate::value::{Map, Size, Value};

/// The conversation that a fork was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Its id.
    pub id: Box<str>,
    /// The number of its current iteration then.
    pub iteration: u64,
    /// Fields of a snapshot that this version does not know.
    pub(crate) extra: Option<Map>,
}

impl Origin {
    /// How much there is to walk and to copy.
    pub(crate) fn size(&self) -> Size {
        let extra = self.extra.as_ref().map_or(Size::default(), Map::size);
        extra.plus(Size::new(4, self.id.len()))
    }

    /// The origin that a map with atom or string keys tells of, as an application shows it.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the path in the map.
    pub(crate) fn read(value: Value) -> Result<Self, Error> {
        let expected = "a map with the :id and the :iteration that a fork came from";
        let mut fields = Fields::of(value).ok_or_else(|| Error::invalid(Vec::new(), expected))?;
        let wrong =
            |fields: &Fields, key, expected| Error::invalid(vec![fields.key(key)], expected);
        let id = fields.take("id").map(utf8).and_then(Result::ok);
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            return Err(wrong(&fields, "id", "non-empty text"));
        };
        let number = match fields.take("iteration") {
            Some(Value::Int(number)) => u64::try_from(number).ok(),
            Some(Value::BigInt(number)) => u64::try_from(*number).ok(),
            _ => None,
        };
        let Some(iteration) = number.filter(|number| *number > 0) else {
            return Err(wrong(&fields, "iteration", "a positive integer"));
        };
        fields.finish("one of :id, :iteration")?;
        Ok(Self {
            id,
            iteration,
            extra: None,
        })
    }
}
