//! Reading a document's text, iteration by iteration: there is never a tree of more than one of them.

use crate::context::Context;
use crate::storage::head::Head;
use crate::storage::iterations::Opened;
use crate::storage::keys;
use crate::storage::node::Node;
use crate::storage::trust::Trust;
use crate::value::scan::Scan;

/// Reads the conversation of a document as [`Context::to_snapshot`] writes it. `None` if anything in it is wrong or rare:
/// finding the first error takes a tree of the whole document.
pub(crate) fn read(text: &[u8], trust: Trust) -> Option<Context> {
    let mut scan = Scan::new(text);
    let mut opened = None;
    let mut head = Vec::new();
    scan.object(|scan, key| {
        let node = match &*key {
            keys::ITERATIONS if opened.is_some() => return None,
            keys::ITERATIONS => {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::limits::NESTING;
    use crate::value::json;

    const GOLDEN: &str = include_str!("../../../../test/fixtures/snapshot_v1.json");

    fn parse_context(text: &str) -> Option<Context> {
        read(text.as_bytes(), Trust::default())
    }

    /// The golden file with a field before its own.
    fn with_field(field: &str) -> String {
        GOLDEN.replacen('{', &format!("{{{field},"), 1)
    }

    #[test]
    fn what_a_document_mostly_has_takes_no_tree() {
        assert!(parse_context(GOLDEN).is_some());
        for value in [
            r#""\u00e9\ud83d\ude00\"\\\/\b\f\n\r\t""#,
            "\"漢字 and more than thirty-two bytes of it\"",
            "[0, -1, 1.5, 1e3, 9223372036854775807, -9223372036854775809]",
            "123456789012345678901234567890",
            "{}",
            " [ ] ",
            "{\"a\" : {\"b\" : [true, false, null]}}",
        ] {
            let text = with_field(&format!("\"unknown\":{value}"));
            let loaded = Context::load(json::read(text.as_bytes(), NESTING).unwrap()).unwrap();
            assert!(parse_context(&text).unwrap() == loaded, "{value}");
        }
    }

    #[test]
    fn what_is_wrong_or_rare_is_left_to_others() {
        for field in [
            "\"unknown\":01",
            "\"unknown\":\"\\ud83d\"",
            "\"unknown\":\"\\x\"",
            "\"unknown\":\"\n\"",
            "\"unknown\":tru",
            "\"unknown\":[1,]",
            "\"unknown\":1,",
            "\"iterations\":[]",
        ] {
            assert!(parse_context(&with_field(field)).is_none(), "{field}");
        }
        let deep = |levels| format!("\"unknown\":{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse_context(&with_field(&deep(63))).is_some());
        assert!(parse_context(&with_field(&deep(64))).is_none());
        assert!(parse_context(&format!("{GOLDEN} x")).is_none());
    }
}
