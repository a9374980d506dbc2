//! NIFs for pages and prints of conversations.

use ash_agent_context_core::{Context, Error, PageOptions, Prices, Printed, Told, Trace};

use crate::argument::{arguments, options, Argument};
use crate::request::RequestOptions;

/// The conversations of a trace, each `{name, id, parent | nil, origin | nil, active?, context}`.
pub struct Conversations<'a>(Vec<Told<'a>>);

arguments! {
    Conversations<'a> = |term, scheduler| {
        type Given<'a> = (&'a str, &'a str, Option<&'a str>, Option<usize>, bool, &'a Context);
        let told: Vec<Given<'a>> = Argument::read(term, scheduler)?;
        let contexts: Vec<&Context> = told.iter().map(|told| told.5).collect();
        scheduler.allow(Trace::cost(&contexts))?;
        let told = told.into_iter().map(|(name, id, parent, origin, is_active, context)| {
            Told { name, id, parent, origin, is_active, context }
        });
        Ok(Self(told.collect()))
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
    told: Conversations<'_>,
    masked: bool,
    given: HtmlOptions<'_>,
) -> Result<String, Error> {
    let options = PageOptions {
        title: given.title,
        request: given.request.map(|request| request.options),
        prices: given.prices,
        fragment: given.fragment,
    };
    Ok(told.trace(masked)?.to_html(&options))
}

pub fn print(told: Conversations<'_>, masked: bool, how: Printed) -> Result<String, Error> {
    Ok(told.trace(masked)?.print(how))
}
