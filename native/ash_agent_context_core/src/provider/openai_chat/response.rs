//! What OpenAI Chat Completions and the servers that speak it send.

use super::Room;
use crate::fault::Fault;
use crate::provider::dialect::chat;
use crate::provider::draft::Draft;
use crate::provider::format::Responds;
use crate::provider::node::Node;

impl Responds for Room {
    fn has_text_arguments(&self) -> bool {
        true
    }

    fn says_done(&self) -> bool {
        true
    }

    fn ends_with_body(&self) -> bool {
        true
    }

    fn read_response(
        &self,
        draft: &mut Draft,
        _event: Option<&str>,
        node: &Node<'_>,
    ) -> Result<(), Fault> {
        chat::response::read(draft, node)
    }
}
