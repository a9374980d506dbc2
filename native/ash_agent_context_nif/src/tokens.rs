//! NIFs for counts and reports of tokens.

use ash_agent_context_core::{
    Context, Count, Method, Report, Term as Word, Time, Tokens, Usage, Value,
};

use crate::argument::{arguments, On};
use crate::atoms;
use crate::encode;
use crate::error::NifError;
use crate::to_term::terms;

/// A method of counting; `:auto` is `None`, which counts from the last report on.
pub struct Counted(pub Option<Method>);

arguments! {
    Counted = |term, scheduler| match atoms::auto() == term {
        true => Ok(Self(None)),
        false => Method::read(term, scheduler).map(|method| Self(Some(method))),
    };
}

pub fn add_usage(context: On<'_, Context>, usage: Value, at: Time) -> Result<Context, NifError> {
    context.scheduler.allow(context.count_cost(None)?)?;
    Ok(context.add_token_usage(usage, at)?)
}

pub fn count(context: On<'_, Context>, Counted(method): Counted) -> Result<u64, NifError> {
    context.scheduler.allow(context.count_cost(method)?)?;
    Ok(context.count_tokens(method))
}

pub fn breakdown(context: On<'_, Context>, Counted(method): Counted) -> Result<Tokens, NifError> {
    let method = method.unwrap_or(Method::Estimate);
    context.scheduler.allow(context.count_cost(Some(method))?)?;
    Ok(context.tokens(method))
}

/// Returns the tokens that providers reported in an iteration, if there is one.
pub fn iteration_usage(context: &Context, number: i64) -> Option<Usage> {
    Some(context.iteration(number)?.usage())
}

terms! {
    // A provider's report on an answer, with its bills if there are any.
    Report = |of, env| {
        let bills = of.bills();
        let counts = Count::ALL.into_iter().filter_map(|count| {
            let sum = of.count(count);
            (sum > 0).then(|| (encode::word(env, count.name()), sum.to_term(env)))
        });
        let words = Word::ALL.into_iter().filter_map(|term| {
            let word = bills.iter().find_map(|bill| bill.term(term))?;
            Some((encode::word(env, term.name()), word.to_term(env)))
        });
        encode::with(of.usage.to_term(env), counts.chain(words))
    };
}
