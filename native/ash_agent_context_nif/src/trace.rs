//! NIFs for pages and prints of conversations.

use ash_agent_context_core::{Context, Error, PageOptions, Printed, ShownConversation, Trace};

use crate::argument::{arguments, field, options, Argument};
use crate::atoms;
use crate::request::RequestOptions;

/// The conversations of a trace, each `{name, id, parent | nil, origin | nil, active?, context}`.
pub struct Conversations<'a>(Vec<ShownConversation<'a>>);

arguments! {
    Conversations<'a> = |term, scheduler| {
        type Given<'a> = (&'a str, &'a str, Option<&'a str>, Option<usize>, bool, &'a Context);
        let shown: Vec<Given<'a>> = Argument::read(term, scheduler)?;
        let contexts: Vec<&Context> = shown.iter().map(|shown| shown.5).collect();
        scheduler.allow(Trace::cost(&contexts))?;
        let shown = shown.into_iter().map(|(name, id, parent, origin, is_active, context)| {
            ShownConversation { name, id, parent, origin, is_active, context }
        });
        Ok(Self(shown.collect()))
    };
}

impl<'a> Conversations<'a> {
    /// Makes a trace of them.
    pub fn trace(self, masked: bool) -> Result<Trace<'a>, Error> {
        Trace::new(self.0, masked)
    }
}

arguments! {
    // See `AshAgent.Trace.to_html/2`.
    PageOptions<'a> = |term, scheduler| {
        let request: Option<RequestOptions<'a>> = field(term, atoms::request(), scheduler)?;
        Ok(Self {
            title: field(term, atoms::title(), scheduler)?,
            request: request.map(|request| request.options),
            prices: field(term, atoms::prices(), scheduler)?,
            fragment: field(term, atoms::fragment(), scheduler)?,
        })
    };
}

options! {
    // See `AshAgent.Context.print/2`.
    Printed { most: limit, width, color, mark }
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
