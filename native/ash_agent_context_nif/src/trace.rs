//! NIFs for pages and prints of conversations.

use ash_agent_context_core::{
    Context, Error, PageOptions, Prices, Printed, ShownConversation, Trace,
};

use crate::argument::{arguments, options, Argument};
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

/// See `AshAgent.Trace.to_html/2`.
pub struct HtmlOptions<'a> {
    title: Option<&'a str>,
    request: Option<RequestOptions<'a>>,
    prices: &'a Prices,
    fragment: bool,
}

options! {
    // See `AshAgent.Context.print/2`.
    Printed { most: limit, width, color, mark }
    HtmlOptions<'a> { title, request, prices, fragment }
}

pub fn html(
    shown: Conversations<'_>,
    masked: bool,
    given: HtmlOptions<'_>,
) -> Result<String, Error> {
    let options = PageOptions {
        title: given.title,
        request: given.request.map(|request| request.options),
        prices: given.prices,
        fragment: given.fragment,
    };
    Ok(shown.trace(masked)?.to_html(&options))
}

pub fn print(shown: Conversations<'_>, masked: bool, how: Printed) -> Result<String, Error> {
    Ok(shown.trace(masked)?.print(how))
}
