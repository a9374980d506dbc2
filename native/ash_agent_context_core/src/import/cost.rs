//! Says what reading a foreign history costs.

use crate::context::Context;
use crate::value::cost::Cost;
use crate::value::{Size, Value};

/// Walks over the data: decoding, writing it as it is kept, taking it apart.
const WALKS: usize = 3;

/// Bytes of JSON text for a term of it; only hostile text has more terms.
const BYTES_PER_TERM: usize = 8;

impl Context {
    /// Of [`Context::from_request`], whose body may be text, and of [`Context::from_messages`].
    #[must_use]
    pub fn import_cost(body: &Value) -> Cost {
        let size = body.size();
        let terms = size.terms.max(size.bytes / BYTES_PER_TERM);
        Cost::from(Size::new(terms, size.bytes)).times(WALKS)
    }
}
