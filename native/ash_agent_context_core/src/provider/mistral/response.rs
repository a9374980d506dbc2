//! What Mistral sends: chat completions whose content may be a list.

use crate::provider::draft::Draft;
use crate::provider::fault::Fault;
use crate::provider::node::Node;

/// Reads a chunk, or a whole completion.
pub(crate) fn read(draft: &mut Draft, node: &Node<'_>) -> Result<(), Fault> {
    crate::provider::openai_chat::response::read(draft, node)
}
