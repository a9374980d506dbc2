//! The NIFs of traces.

use ash_agent_context_core::{Context, Cost, PageOptions, Printed, Told, Trace};
use rustler::{Env, NewBinary, NifMap, Term};

use crate::argument::{Of, Unsigned};
use crate::error::NifError;
use crate::nif::nif;
use crate::prices::PricesHandle;
use crate::request::RequestOptions;
use crate::resource::ContextHandle;
use crate::scheduler::Scheduler;

/// `{name, id, parent | nil, origin | nil, active?, context}`
type TraceTerms = (
    String,
    String,
    Option<String>,
    Option<usize>,
    bool,
    ContextHandle,
);

/// See `AshAgent.Trace.to_html/2`.
#[derive(NifMap)]
#[rustler(decode)]
struct HtmlOptions<'a> {
    title: Option<&'a str>,
    request: Option<RequestOptions<'a>>,
    prices: PricesHandle,
    fragment: bool,
}

/// See `AshAgent.Context.print/2`.
#[derive(NifMap)]
#[rustler(decode)]
struct PrintOptions {
    limit: Unsigned,
    width: Option<Unsigned>,
    color: bool,
    mark: Option<(Unsigned, Unsigned)>,
}

/// Returns what a trace of these conversations gives.
pub fn with_trace<T>(
    scheduler: Scheduler,
    told: Term<'_>,
    masked: bool,
    give: impl FnOnce(&Trace<'_>) -> T,
) -> Result<T, NifError> {
    let told: Vec<TraceTerms> = told.decode()?;
    let contexts: Vec<&Context> = told.iter().map(|terms| terms.5.get()).collect();
    scheduler.allow(Trace::cost(&contexts))?;
    let told = told
        .iter()
        .map(|(name, id, parent, origin, is_active, context)| Told {
            name,
            id,
            parent: parent.as_deref(),
            origin: *origin,
            is_active: *is_active,
            context: context.get(),
        });
    Ok(give(&Trace::new(told.collect(), masked)?))
}

fn text<'a>(env: Env<'a>, text: &str) -> Term<'a> {
    NewBinary::from_slice(env, text.as_bytes()).into()
}

nif!(trace_html_normal, trace_html_dirty, |env,
                                           scheduler,
                                           told: Term<'a>,
                                           masked: bool,
                                           given: Of<
    'a,
    HtmlOptions<'a>,
>| {
    // The page's own script is hashed and copied each time.
    scheduler.allow(Cost::LONG)?;
    let request = given.request.as_ref();
    let options = PageOptions {
        title: given.title,
        request: request.map(|request| request.options(Scheduler::Dirty)),
        prices: given.prices.get(),
        fragment: given.fragment,
    };
    let page = with_trace(scheduler, told, masked, |trace| trace.to_html(&options))?;
    Ok(text(env, &page))
});

nif!(trace_print_normal, trace_print_dirty, |env,
                                             scheduler,
                                             told: Term<'a>,
                                             masked: bool,
                                             options: Of<
    'a,
    PrintOptions,
>| {
    let how = Printed {
        most: options.limit.size(),
        width: options.width.as_ref().map(Unsigned::size),
        color: options.color,
        mark: options
            .mark
            .as_ref()
            .map(|(iteration, call)| (iteration.size(), call.size())),
    };
    let page = with_trace(scheduler, told, masked, |trace| trace.print(how))?;
    Ok(text(env, &page))
});
