//! The NIFs of tokens.

use ash_agent_context_core::{Method, Usage};
use rustler::{Atom, Encoder as _, Env, Term};

use crate::atoms;
use crate::clock;
use crate::decode::{self, Around, Number};
use crate::encode::Encoder;
use crate::error::NifError;
use crate::resource::{answer, Handle};
use crate::scheduler::{nif, Scheduler};
use crate::words::Word;

type Reply<'a> = Result<Term<'a>, NifError>;

nif!(context_add_usage_normal, context_add_usage_dirty(context: Handle, usage: Term<'a>, at: Term<'a>) => add_usage);
nif!(context_count_tokens_normal, context_count_tokens_dirty(context: Handle, method: Atom) => count_tokens);
nif!(context_token_breakdown_normal, context_token_breakdown_dirty(context: Handle, method: Atom) => token_breakdown);

/// A method by its atom; `:auto` is none: from the last report on.
pub fn method(atom: Atom) -> Result<Option<Method>, NifError> {
    match atom == atoms::auto() {
        true => Ok(None),
        false => Method::of(atom).map(Some),
    }
}

fn add_usage<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    usage: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(context.get().count_cost(None)?)?;
    let usage = decode::value(usage, Around::Nothing, scheduler)?;
    let at = clock::at(at, scheduler)?;
    Ok(answer(env, context.get().add_token_usage(usage, at)?))
}

fn count_tokens<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle, given: Atom) -> Reply<'a> {
    scheduler.allow(context.get().count_cost(method(given)?)?)?;
    Ok(context.get().count_tokens(method(given)?).encode(env))
}

fn token_breakdown<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    given: Atom,
) -> Reply<'a> {
    let counted = method(given)?.unwrap_or(Method::Estimate);
    scheduler.allow(context.get().count_cost(Some(counted))?)?;
    let tokens = context.get().tokens(counted);
    let keys = [
        atoms::system(),
        atoms::user(),
        atoms::assistant(),
        atoms::thinking(),
        atoms::tool_calls(),
        atoms::tool_results(),
        atoms::media(),
        atoms::summaries(),
    ];
    let values = [
        tokens.system,
        tokens.user,
        tokens.assistant,
        tokens.thinking,
        tokens.tool_calls,
        tokens.tool_results,
        tokens.media,
        tokens.summaries,
    ];
    let values = values.map(|number| number.encode(env));
    Ok(Encoder::copying(env).fields(&keys, &values))
}

/// All that providers reported.
#[rustler::nif(name = "context_usage_normal")]
fn context_usage<'a>(env: Env<'a>, context: Handle) -> Term<'a> {
    encode(env, context.get().usage())
}

/// The tokens that providers reported in an iteration; `nil` when there is no such iteration.
#[rustler::nif(name = "context_iteration_usage_normal")]
fn context_iteration_usage<'a>(env: Env<'a>, context: Handle, number: Number) -> Term<'a> {
    match context.get().iteration(number.0) {
        Some(iteration) => encode(env, iteration.usage()),
        None => atoms::nil().to_term(env),
    }
}

/// Numbers of tokens.
pub fn encode(env: Env<'_>, usage: Usage) -> Term<'_> {
    let keys = [
        atoms::input_tokens(),
        atoms::output_tokens(),
        atoms::total_tokens(),
        atoms::cached_tokens(),
        atoms::reasoning_tokens(),
    ];
    let values = [
        usage.input,
        usage.output,
        usage.total,
        usage.cached,
        usage.reasoning,
    ];
    let values = values.map(|number| number.encode(env));
    Encoder::copying(env).fields(&keys, &values)
}
