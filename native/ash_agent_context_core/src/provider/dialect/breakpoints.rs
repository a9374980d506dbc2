//! Cache breakpoints of OpenAI's APIs.

use crate::log::part::Part;
use crate::provider::writer::Writer;

/// A cache breakpoint set by hand, where the model knows them.
pub(crate) fn hint(part: &Part, out: &mut Writer<'_>) {
    if knows_breakpoints(out.options.model) {
        out.hint_inside(part);
    }
}

/// Breakpoints exist from GPT-5.6 on.
fn knows_breakpoints(model: Option<&str>) -> bool {
    let version = model
        .and_then(|model| model.rsplit('/').next()?.strip_prefix("gpt-"))
        .and_then(|rest| rest.split('-').next());
    let mut numbers = version.into_iter().flat_map(|version| version.split('.'));
    let mut next = || numbers.next().map_or(Some(0), |number| number.parse().ok());
    let version: Option<(u32, u32)> = next().zip(next());
    version.is_some_and(|version| version >= (5, 6))
}
