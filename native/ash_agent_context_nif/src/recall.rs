//! Reads what the view does not show.

use ash_agent_context_core::{Context, Error, Excerpt};

use crate::argument::{arguments, field};
use crate::atoms;

arguments! {
    // See `AshAgent.Context.Recall.recall/3`.
    Excerpt<'a> = |term, scheduler| {
        let lines: Option<usize> = field(term, atoms::lines(), scheduler)?;
        Ok(Self {
            from: field(term, atoms::from(), scheduler)?,
            lines: lines.unwrap_or(usize::MAX),
            pattern: field(term, atoms::pattern(), scheduler)?,
            most: field(term, atoms::max_bytes(), scheduler)?,
        })
    };
}

pub fn recall(context: &Context, handle: &str, excerpt: Excerpt<'_>) -> Result<String, Error> {
    context.recall(handle, &excerpt)
}
