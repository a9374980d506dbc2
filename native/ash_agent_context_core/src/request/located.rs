//! Changes that a request makes, with their places.

use crate::log::message::Message;
use crate::value::letters;
use crate::view;
use crate::view::change::{Change, ChangeKind};
use crate::view::rendering::Rendering;

/// Returns the change that a cover makes.
pub(crate) fn from_cover(
    first: u64,
    last: u64,
    summary: Option<&Message>,
    rendering: Rendering<'_>,
) -> Change {
    let shown = summary.and_then(|summary| rendering.message(summary));
    let is_summary = summary.is_some_and(|summary| !view::is_note(summary));
    let to = shown.as_ref().or(summary).filter(|_| is_summary);
    let to = to.and_then(view::summary_text);
    Change {
        what: match is_summary {
            true => ChangeKind::SummarizedIterations,
            false => ChangeKind::HiddenIterations,
        },
        from: format!("{first}..{last}"),
        to: to.map(|text| letters::utf8(text).into_owned()),
    }
}

/// A change, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The change itself.
    pub change: Change,
    /// The number of the iteration.
    pub iteration: u64,
    /// The 0-based position of the message in it.
    pub position: usize,
}
