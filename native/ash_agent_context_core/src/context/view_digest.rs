//! The digest of a view: it proves that the notes of a request have everything that it was made from.

use std::fmt::Write as _;

use crate::context::inputs;
use crate::value::digest::Digest;
use crate::value::Value;
use crate::view::View;

/// The digest of no view.
const PLAIN: &str = "-";

/// Returns a digest of the rules of a view. Values that it computes from the log are not part of it, and its masks are
/// recorded separately.
pub(crate) fn digest(view: Option<&View>) -> String {
    let text = view.map(describe).unwrap_or_default();
    match text.is_empty() {
        true => PLAIN.to_owned(),
        false => Digest::of(text.as_bytes()).to_short_text(),
    }
}

/// Writes down each rule of a view.
fn describe(view: &View) -> String {
    let mut text = String::new();
    let mut add = |name: &str, value: &dyn std::fmt::Debug| {
        let _ = write!(text, "{name} {value:?};");
    };
    for (first, cover) in view.covers() {
        let summary = cover.summary.as_deref();
        let summary = summary.map(|summary| inputs::digest(Some(summary)));
        let summary = summary.as_ref().and_then(Value::as_str);
        add("cover", &(first, cover.last, summary));
    }
    if let Some(cleared) = view.cleared() {
        let place = (cleared.iteration, cleared.calls, &*cleared.placeholder);
        add("cleared", &place);
    }
    if let Some(most) = view.max_result_bytes {
        add("most", &most);
    }
    if view.recall {
        add("recall", &true);
    }
    for pin in view.pins().into_iter().flat_map(|pins| pins.iter()) {
        add("pin", &pin.name());
    }
    for (name, text) in view.prompt_texts.iter() {
        add("block", &(name, text));
    }
    text
}
