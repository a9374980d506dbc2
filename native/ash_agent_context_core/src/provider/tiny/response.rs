//! Reads what it sends: a line of text after the other, the last of them with its bill.

use super::Room;
use crate::fault::Fault;
use crate::log::reply::Finish;
use crate::provider::draft::{Draft, Key};
use crate::provider::format::Responds;
use crate::provider::framing::Framing;
use crate::provider::node::{self, Node};

impl Responds for Room {
    fn framing(&self) -> Framing {
        Framing::NdJson
    }

    fn read_response(&self, draft: &mut Draft, node: &Node<'_>) -> Result<(), Fault> {
        draft.start(None, None);
        draft.text(
            Key::Only("you"),
            node::text(node, "you").unwrap_or_default(),
        );
        if node::get(node, "bill").is_none() {
            return Ok(());
        }
        draft.finish_all(Finish::Stop, "bill")?;
        draft.end()
    }
}
