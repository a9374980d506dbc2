//! The costs of storing and loading.

use memchr::memmem;

use crate::context::Context;
use crate::value::cost::Cost;
use crate::value::Size;

/// A text of a snapshot with patterns contains this.
const MASKS: &[u8] = b"\"masks\"";

/// A longer text costs so much already that patterns make no difference.
const LOOKED_THROUGH: usize = 1024 * 1024;

/// A snapshot has about one term in so many bytes; only hostile text has more.
const BYTES_PER_TERM: usize = 8;

/// A document is walked so often to be handed out: it is written, read back and made terms.
const WALKS: usize = 3;

impl Context {
    /// Returns the cost of [`Context::delta`] as a value; of the whole conversation since 0.
    #[must_use]
    pub fn dump_cost(&self, since: i64) -> Cost {
        Cost::from(self.delta_size(since)).times(WALKS)
    }

    /// Returns the cost of [`Context::from_snapshot`].
    #[must_use]
    pub fn from_snapshot_cost(text: &[u8]) -> Cost {
        let has_masks = text.len() <= LOOKED_THROUGH && memmem::find(text, MASKS).is_some();
        match has_masks {
            true => Cost::LONG, // patterns take milliseconds to compile
            false => text_cost(text),
        }
    }
}

/// Returns the cost of reading JSON text.
#[must_use]
pub fn text_cost(text: &[u8]) -> Cost {
    Size::new(text.len() / BYTES_PER_TERM, text.len()).into()
}
