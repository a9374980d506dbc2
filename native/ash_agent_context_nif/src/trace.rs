//! NIFs for pages and prints of conversations.

use ash_agent_context_core::{Context, Error, PageOptions, Printed, Told, Trace};

use crate::argument::{arguments, elements, options, Argument};

/// The conversations of a trace, each `{name, id, parent | nil, origin | nil, active?, context}`.
pub struct Conversations<'a>(Vec<Told<'a>>);

elements! {
    Told<'a> { name, id, parent, origin, is_active, context }
}

arguments! {
    Conversations<'a> = |term, scheduler| {
        let told: Vec<Told<'a>> = Argument::read(term, scheduler)?;
        let contexts: Vec<&Context> = told.iter().map(|told| told.context).collect();
        scheduler.allow(Trace::cost(&contexts))?;
        Ok(Self(told))
    };
}

impl<'a> Conversations<'a> {
    /// Makes a trace of them.
    pub fn trace(self, masked: bool) -> Result<Trace<'a>, Error> {
        Trace::new(self.0, masked)
    }
}

options! {
    // See `AshAgent.Context.print/2`.
    Printed { most: limit, width, color, mark }
    // See `AshAgent.Trace.to_html/2`.
    PageOptions<'a> { title, request, prices, fragment }
}

pub fn html(
    told: Conversations<'_>,
    masked: bool,
    options: PageOptions<'_>,
) -> Result<String, Error> {
    Ok(told.trace(masked)?.to_html(&options))
}

pub fn print(told: Conversations<'_>, masked: bool, how: Printed) -> Result<String, Error> {
    Ok(told.trace(masked)?.print(how))
}
