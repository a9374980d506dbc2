//! Says what storage costs.

use memchr::memmem;

use crate::context::Context;
use crate::value::cost::Cost;
use crate::value::Size;

/// Holds what stands in the text of a snapshot that has patterns.
const MASKS: &[u8] = b"\"masks\"";

/// Bytes of a text that costs so much already that patterns make no difference.
const LOOKED_THROUGH: usize = 1024 * 1024;

/// Bytes of a snapshot's text for a term of it; only hostile text has more terms.
const BYTES_PER_TERM: usize = 8;

/// Walks over what is handed out as a document: it is written, read back and made terms.
const WALKS: usize = 3;

impl Context {
    /// Of [`Context::delta`] as a value; of the whole conversation since 0.
    #[must_use]
    pub fn dump_cost(&self, since: i64) -> Cost {
        Cost::from(self.delta_size(since)).times(WALKS)
    }

    /// Of [`Context::from_snapshot`].
    #[must_use]
    pub fn from_snapshot_cost(text: &[u8]) -> Cost {
        let has_masks = text.len() <= LOOKED_THROUGH && memmem::find(text, MASKS).is_some();
        match has_masks {
            true => Cost::LONG, // patterns take milliseconds to compile
            false => text_cost(text),
        }
    }
}

/// Of reading JSON text.
#[must_use]
pub fn text_cost(text: &[u8]) -> Cost {
    Size::new(text.len() / BYTES_PER_TERM, text.len()).into()
}
