//! NIFs for pages and prints of conversations.

use ash_agent_context_core::{Context, Error, PageOptions, Printed, ShownConversation, Trace};

use crate::argument::{arguments, elements, options, Argument};

/// The conversations of a trace, each `{name, id, parent | nil, origin | nil, active?, context}`.
pub struct Conversations<'a>(Vec<ShownConversation<'a>>);

elements! {
    ShownConversation<'a> { name, id, parent, origin, is_active, context }
}

arguments! {
    Conversations<'a> = |term, scheduler| {
        let shown: Vec<ShownConversation<'a>> = Argument::read(term, scheduler)?;
        let contexts: Vec<&Context> = shown.iter().map(|shown| shown.context).collect();
        scheduler.allow(Trace::cost(&contexts))?;
        Ok(Self(shown))
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
    shown: Conversations<'_>,
    masked: bool,
    options: PageOptions<'_>,
) -> Result<String, Error> {
    Ok(shown.trace(masked)?.to_html(&options))
}

pub fn print(shown: Conversations<'_>, masked: bool, how: Printed) -> Result<String, Error> {
    Ok(shown.trace(masked)?.print(how))
}
