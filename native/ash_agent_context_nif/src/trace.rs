//! The NIFs of traces.

use ash_agent_context_core::{
    AtifOptions, Context, Cost, PageOptions, Printed, Told, Trace, Value,
};
use rustler::{Env, NewBinary, Term};

use crate::atoms;
use crate::decode::{self, Around, Number};
use crate::error::NifError;
use crate::request::Given;
use crate::resource::Handle;
use crate::scheduler::{nif, Scheduler};
use crate::tokens;

type Reply<'a> = Result<Term<'a>, NifError>;

nif!(trace_html_normal, trace_html_dirty(told: Term<'a>, masked: bool, options: Term<'a>) => html);
nif!(trace_atif_normal, trace_atif_dirty(told: Term<'a>, masked: bool, options: Term<'a>) => atif);
nif!(trace_print_normal, trace_print_dirty(told: Term<'a>, masked: bool, options: Term<'a>) => print);

/// `{name, id, parent | nil, origin | nil, active?, context}`
type Terms = (String, String, Option<String>, Option<usize>, bool, Handle);

/// `{title | nil, request | nil, prices, fragment?}`
type PageTerms<'a> = (Option<String>, Term<'a>, Term<'a>, bool);

/// What a trace of these conversations gives.
pub fn with_trace<T>(
    scheduler: Scheduler,
    told: Term<'_>,
    masked: bool,
    give: impl FnOnce(&Trace<'_>) -> T,
) -> Result<T, NifError> {
    let told: Vec<Terms> = told.decode()?;
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

fn html<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    told: Term<'a>,
    masked: bool,
    options: Term<'a>,
) -> Reply<'a> {
    // The page's own script is hashed and copied each time.
    scheduler.allow(Cost::LONG)?;
    let (title, request, prices, fragment): PageTerms<'a> = options.decode()?;
    let is_given = request != atoms::nil().to_term(env);
    let request = is_given.then(|| Given::decode(request)).transpose()?;
    let prices = tokens::prices(prices)?;
    let options = PageOptions {
        title: title.as_deref(),
        request: request
            .as_ref()
            .map(|given| given.options(Scheduler::Dirty)),
        prices: &prices,
        fragment,
    };
    let page = with_trace(scheduler, told, masked, |trace| trace.to_html(&options))?;
    Ok(text(env, &page))
}

/// `{agent, version, tools | nil, prices}`
fn atif<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    told: Term<'a>,
    masked: bool,
    options: Term<'a>,
) -> Reply<'a> {
    let (agent, version, tools, prices): (String, String, Term<'a>, Term<'a>) = options.decode()?;
    let tools = decode::value(tools, Around::Items, scheduler)?;
    let options = AtifOptions {
        agent: &agent,
        version: &version,
        tools: (tools != Value::Nil).then_some(&tools),
        prices: &tokens::prices(prices)?,
    };
    let text = with_trace(scheduler, told, masked, |trace| trace.to_atif(&options))?;
    Ok(NewBinary::from_slice(env, &text).into())
}

/// `{most, width | nil, color?}`
fn print<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    told: Term<'a>,
    masked: bool,
    options: Term<'a>,
) -> Reply<'a> {
    let (most, width, color): (Number, Option<Number>, bool) = options.decode()?;
    let how = Printed {
        most: usize::try_from(most.0).unwrap_or(0),
        width: width.map(|width| usize::try_from(width.0).unwrap_or(0)),
        color,
    };
    let page = with_trace(scheduler, told, masked, |trace| trace.print(how))?;
    Ok(text(env, &page))
}
