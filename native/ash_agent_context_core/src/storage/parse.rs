//! Reading a document's text, iteration by iteration: there is never a tree of more than one of them.

use crate::context::Context;
use crate::storage::head::Head;
use crate::storage::iterations::Opened;
use crate::storage::trust::Trust;
use crate::value::node::Node;
use crate::value::scan::Scan;

/// Reads the conversation of a document as [`Context::to_snapshot`] writes it. `None` if anything in it is wrong or rare:
/// finding the first error takes a tree of the whole document.
pub(crate) fn read(text: &[u8], trust: Trust) -> Option<Context> {
    let mut scan = Scan::new(text);
    let mut opened = None;
    let mut head = Vec::new();
    scan.object(|scan, key| {
        let node = match &*key {
            "iterations" if opened.is_some() => return None,
            "iterations" => {
                opened = Some(read_iterations(scan, trust)?);
                Node::List(Box::default())
            }
            _ => scan.node()?,
        };
        head.push((key, node));
        Some(())
    })?;
    scan.end()?;
    let head = Head::read(Node::Object(head.into_boxed_slice()), None, trust).ok()?;
    head.check_whole().ok()?;
    head.put_on(opened?).ok()
}

fn read_iterations(scan: &mut Scan<'_>, trust: Trust) -> Option<Opened> {
    let mut opened = Opened::new(trust);
    scan.list(|scan| {
        let iteration = scan.node()?;
        opened.add(iteration).ok()
    })?;
    Some(opened)
}
