//! The NIFs of tokens.

use ash_agent_context_core::{time, Cost, Method, Price, Prices, Rates, Usage};
use rustler::{Decoder, Encoder as _, Env, NifResult, Term};

use crate::argument::{Any, At, Of, Unsigned, Worded};
use crate::atoms;
use crate::clock;
use crate::decode::Number;
use crate::encode::Encoder;
use crate::error::NifError;
use crate::nif::{change, nif};
use crate::resource::Handle;

/// How to count; `:auto` is `None`: from the last report on.
pub struct Counted(pub Option<Method>);

impl<'a> Decoder<'a> for Counted {
    fn decode(term: Term<'a>) -> NifResult<Self> {
        if atoms::auto() == term {
            return Ok(Self(None));
        }
        let Worded(method) = term.decode()?;
        Ok(Self(Some(method)))
    }
}

change!(
    context_add_usage_normal,
    context_add_usage_dirty,
    |context, usage: Any, at: At| (
        context.count_cost(None)?,
        context.add_token_usage(usage, at)
    )
);

nif!(
    context_count_tokens_normal,
    context_count_tokens_dirty,
    |env, scheduler, context: Handle, method: Of<'a, Counted>| {
        let Counted(method) = method;
        scheduler.allow(context.get().count_cost(method)?)?;
        Ok(context.get().count_tokens(method).encode(env))
    }
);

nif!(
    context_token_breakdown_normal,
    context_token_breakdown_dirty,
    |env, scheduler, context: Handle, method: Of<'a, Counted>| {
        let method = method.0.unwrap_or(Method::Estimate);
        scheduler.allow(context.get().count_cost(Some(method))?)?;
        let tokens = context.get().tokens(method);
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
);

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

// What the answers from an iteration on cost.
nif!(
    context_spent_normal,
    context_spent_dirty,
    |env,
     scheduler,
     handle: Handle,
     given: Term<'a>,
     asked: Of<'a, Option<&'a str>>,
     since: Unsigned| {
        let context = handle.get();
        scheduler.allow(context.spent_cost(since))?;
        scheduler.allow(Cost::steps(given.list_length()?))?;
        Ok(context.spent(&prices(given)?, asked, since)?.encode(env))
    }
);

// Whether a model has a price now.
nif!(price_known_normal, price_known_dirty, |env,
                                             scheduler,
                                             given: Term<'a>,
                                             model: Of<
    'a,
    Option<&'a str>,
>| {
    scheduler.allow(Cost::steps(given.list_length()?))?;
    let now = clock::at(atoms::nil().to_term(env), scheduler)?;
    let found = prices(given)?.find([model, None], now);
    Ok(found.is_some().encode(env))
});

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
