//! What became of requests at a provider's cache.

use ash_agent_context_core::{
    AccountRow, Accounting, Context, Forecast, Options, Prices, Provider, Time,
};

use crate::argument::Lender;
use crate::error::NifError;
use crate::request::{within_work, RequestOptions};
use crate::to_term::Made;

pub fn account(
    context: Lender<'_>,
    prices: Option<&Prices>,
    model: Option<&str>,
    since: u64,
) -> Result<Vec<AccountRow>, NifError> {
    // A row without a cause may make two requests again.
    let again = context.encode_cost(&Options::new(Provider::Anthropic));
    let cost = context.find_call_cost().plus(again.times(2));
    context.scheduler.allow(cost)?;
    Ok(context.account(&Accounting {
        prices,
        model,
        since,
    }))
}

/// The context with the digest of its next request.
pub fn note_sent(context: Lender<'_>, given: RequestOptions<'_>) -> Result<Context, NifError> {
    let options = given.options(context.scheduler);
    let cost = context.encode_cost(&options);
    context
        .scheduler
        .allow(cost.plus(context.asked_view_cost()))?;
    within_work(context.note_sent(&options))
}

/// The conversation as it was when an iteration's last request was made.
pub fn as_asked(context: &Context, number: i64) -> Option<Made> {
    let asked = context.as_asked(context.iteration(number)?)?;
    Some(asked.into())
}

pub fn forecast(
    context: Lender<'_>,
    given: RequestOptions<'_>,
    prices: Option<&Prices>,
    at: Time,
) -> Result<Forecast, NifError> {
    let options = given.options(context.scheduler);
    let cost = context.encode_cost(&options).times(2);
    let view = context.looks_cost().plus(context.asked_view_cost());
    context.scheduler.allow(cost.plus(view))?;
    let context = given.context(context.handle);
    let accounting = Accounting {
        prices,
        model: options.model,
        since: 0,
    };
    within_work(context.get().forecast(&options, &accounting, at))
}
