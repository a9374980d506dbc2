//! The NIFs of tokens.

use ash_agent_context_core::{Count, Method, Report, Term as Word, Usage};
use rustler::{Atom, Decoder, Encoder as _, Env, NifResult, Term};

use crate::argument::{Any, At, Of, Worded};
use crate::atoms;
use crate::decode::Number;
use crate::encode::Encoder;
use crate::nif::{change, nif};
use crate::resource::ContextHandle;

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
    |env, scheduler, context: ContextHandle, method: Of<'a, Counted>| {
        let Counted(method) = method;
        scheduler.allow(context.get().count_cost(method)?)?;
        Ok(context.get().count_tokens(method).encode(env))
    }
);

nif!(
    context_token_breakdown_normal,
    context_token_breakdown_dirty,
    |env, scheduler, context: ContextHandle, method: Of<'a, Counted>| {
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
        Ok(Encoder::new_copying(env).fields(&keys, &values))
    }
);

/// All that providers reported.
#[rustler::nif(name = "context_usage_normal")]
fn context_usage<'a>(env: Env<'a>, context: ContextHandle) -> Term<'a> {
    encode(env, context.get().usage())
}

/// The tokens that providers reported in an iteration; `nil` when there is no such iteration.
#[rustler::nif(name = "context_iteration_usage_normal")]
fn context_iteration_usage<'a>(env: Env<'a>, context: ContextHandle, number: Number) -> Term<'a> {
    match context.get().iteration(number.0) {
        Some(iteration) => encode(env, iteration.usage()),
        None => atoms::nil().to_term(env),
    }
}

/// Returns what a provider reported of an answer: what is billed by itself stands there where there is any.
pub fn encode_report<'a>(env: Env<'a>, report: &Report) -> Term<'a> {
    let mut map = encode(env, report.usage);
    let bills = report.bills();
    let mut put = |name: &str, value: Term<'a>| {
        let key = Atom::from_str(env, name).map(|key| key.encode(env));
        if let Ok(with) = key.and_then(|key| map.map_put(key, value)) {
            map = with;
        }
    };
    for of in Count::ALL {
        let sum = report.count(of);
        if sum > 0 {
            put(of.name(), sum.encode(env));
        }
    }
    for of in Word::ALL {
        if let Some(word) = bills.iter().find_map(|bill| bill.term(of)) {
            put(of.name(), word.encode(env));
        }
    }
    map
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
    Encoder::new_copying(env).fields(&keys, &values)
}
