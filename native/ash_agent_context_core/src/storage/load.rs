//! Reading the document of a conversation, or of a part of it, and the costs of storing and loading.

use memchr::memmem;

use crate::context::Context;
use crate::error::Error;
use crate::storage::head::Head;
use crate::storage::limits::NESTING;
use crate::storage::parse;
use crate::storage::take::wrong;
use crate::storage::trust::Trust;
use crate::value::cost::Cost;
use crate::value::json;
use crate::value::node::Node;
use crate::value::{Size, Value};

impl Context {
    /// Reads the conversation of a document that [`Context::to_snapshot`] wrote.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the path of what is wrong, [`Error::TooDeep`].
    ///
    /// # Complexity
    /// O(n log n) for the keys of maps, else O(n).
    pub fn from_snapshot(text: &[u8]) -> Result<Self, Error> {
        Self::from_snapshot_with(text, Trust::default())
    }

    /// As [`Context::from_snapshot`], for a document that is trusted only this far.
    ///
    /// # Errors
    /// As [`Context::from_snapshot`].
    pub fn from_snapshot_with(text: &[u8], trust: Trust) -> Result<Self, Error> {
        // Rare forms of a document, and its first error, are found by reading all of it as a value.
        match parse::read(text, trust) {
            Some(context) => Ok(context),
            None => Self::load_with(json::read(text, NESTING)?, trust),
        }
    }

    /// Reads the conversation of a document that is a value with string keys.
    ///
    /// # Errors
    /// As [`Context::from_snapshot`].
    pub fn load(document: Value) -> Result<Self, Error> {
        Self::load_with(document, Trust::default())
    }

    /// As [`Context::load`], for a document that is trusted only this far.
    ///
    /// # Errors
    /// As [`Context::from_snapshot`].
    pub fn load_with(document: Value, trust: Trust) -> Result<Self, Error> {
        let head = Head::read(Node::Value(document), None, trust)?;
        head.check_whole()?;
        head.replace()
    }

    /// Reads a document that [`Context::delta`] wrote: its iterations replace those of the conversation from the first of
    /// them on, and everything else is as in the document.
    ///
    /// # Errors
    /// As [`Context::from_snapshot`]; when the document belongs to another conversation or there
    /// are iterations between the two.
    ///
    /// # Complexity
    /// As [`Context::from_snapshot`] for the document, O(log n) for the conversation.
    pub fn load_delta(&self, document: Value) -> Result<Self, Error> {
        self.load_delta_with(document, Trust::default())
    }

    /// As [`Context::load_delta`], for a document that is trusted only this far. Iterations that the conversation already has
    /// stay as they are.
    ///
    /// # Errors
    /// As [`Context::load_delta`].
    pub fn load_delta_with(&self, document: Value, trust: Trust) -> Result<Self, Error> {
        let known = self.view.as_deref().and_then(|view| view.masks.as_ref());
        let head = Head::read(Node::Value(document), known, trust)?;
        if head.frame.id.as_deref() != Some(self.id()) {
            return Err(wrong(
                "id",
                format!("{:?}, the id of the conversation", self.id()),
            ));
        }
        match head.since {
            Some(since) if since > self.first_number() || head.shared > 0 => {
                head.add_to(self, since)
            }
            _ => head.replace(),
        }
    }
}

fn field<'v>(document: &'v Value, key: &str) -> Option<&'v Value> {
    document.as_map()?.get(&Value::text(key))
}

/// Returns true if a document has patterns, which take long to compile.
#[must_use]
pub fn has_masks(document: &Value) -> bool {
    let in_view = field(document, "view").and_then(|view| field(view, "masks"));
    in_view.or(field(document, "asked_masks")).is_some()
}

/// A text of a snapshot with patterns contains this.
const MASKS: &[u8] = b"masks\":";

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

    /// Returns how much of the conversation a delta replaces, at most.
    #[must_use]
    pub fn load_delta_size(&self, delta: &Value) -> Size {
        let Some(Value::Int(since)) = field(delta, "since") else {
            return self.size();
        };
        let before = self.rewind_size(since.saturating_sub(1));
        let covered = Size::new(self.count_iterations(), 0);
        let covered = field(delta, "view").map_or(Size::default(), |_| covered);
        self.delta_size(*since).plus(before).plus(covered)
    }
}

/// Returns the cost of reading JSON text.
#[must_use]
pub fn text_cost(text: &[u8]) -> Cost {
    Size::new(text.len() / BYTES_PER_TERM, text.len()).into()
}
