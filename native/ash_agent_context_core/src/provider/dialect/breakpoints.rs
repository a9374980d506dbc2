//! Cache breakpoints in OpenAI's APIs.

use crate::log::part::Part;
use crate::provider::writer::Writer;

/// Writes a cache breakpoint that was set by hand, if the model takes them.
pub(crate) fn hint(part: &Part, out: &mut Writer<'_>) {
    if knows_breakpoints(out.options.model) {
        out.hint_inside(part);
    }
}

/// Returns whether a model takes breakpoints, as all from GPT-5.6 on do.
fn knows_breakpoints(model: Option<&str>) -> bool {
    let version = model
        .and_then(|model| model.rsplit('/').next()?.strip_prefix("gpt-"))
        .and_then(|rest| rest.split('-').next());
    let mut numbers = version.into_iter().flat_map(|version| version.split('.'));
    let mut next = || numbers.next().map_or(Some(0), |number| number.parse().ok());
    let version: Option<(u32, u32)> = next().zip(next());
    version.is_some_and(|version| version >= (5, 6))
}
