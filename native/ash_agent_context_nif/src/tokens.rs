//! The NIFs of tokens.

use ash_agent_context_core::{time, Cost, Method, Price, Prices, Rates, Usage};
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
nif!(context_spent_normal, context_spent_dirty(context: Handle, prices: Term<'a>, asked: Term<'a>, since: Number) => spent);
nif!(price_known_normal, price_known_dirty(prices: Term<'a>, model: Term<'a>) => price_known);
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

/// `[{model | nil, microseconds since 1970 | nil, {input, cache read, cache write, output}}]`
type PriceTerms = Vec<(Option<String>, Option<i64>, (u64, u64, u64, u64))>;

/// A list of prices.
pub fn prices(term: Term<'_>) -> Result<Prices, NifError> {
    let terms: PriceTerms = term.decode()?;
    let price = |(model, from, rates): (Option<String>, Option<i64>, _)| {
        let (input, cache_read, cache_write, output) = rates;
        let valid_from = from.map(|from| time::from_micros(from).ok_or(NifError::BadTime));
        Ok(Price {
            model: model.map(String::into_boxed_str),
            valid_from: valid_from.transpose()?,
            rates: Rates {
                input,
                cache_read,
                cache_write,
                output,
            },
        })
    };
    let prices: Result<_, NifError> = terms.into_iter().map(price).collect();
    Ok(Prices::new(prices?))
}

/// What the answers from an iteration on cost.
fn spent<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    given: Term<'a>,
    asked: Term<'a>,
    since: Number,
) -> Reply<'a> {
    let context = context.get();
    let since = u64::try_from(since.0).unwrap_or(0);
    scheduler.allow(context.spent_cost(since))?;
    scheduler.allow(Cost::steps(given.list_length()?))?;
    let asked: Option<String> = asked.decode()?;
    let spent = context.spent(&prices(given)?, asked.as_deref(), since)?;
    Ok(spent.encode(env))
}

/// Whether a model has a price now.
fn price_known<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    given: Term<'a>,
    model: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(Cost::steps(given.list_length()?))?;
    let now = clock::at(atoms::nil().to_term(env), scheduler)?;
    let model: Option<String> = model.decode()?;
    let found = prices(given)?.find([model.as_deref(), None], now);
    Ok(found.is_some().encode(env))
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
        atoms::cache_write_tokens(),
        atoms::reasoning_tokens(),
    ];
    let values = [
        usage.input,
        usage.output,
        usage.total,
        usage.cached,
        usage.written,
        usage.reasoning,
    ];
    let values = values.map(|number| number.encode(env));
    Encoder::copying(env).fields(&keys, &values)
}
