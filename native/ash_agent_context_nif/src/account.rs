//! The NIFs that tell what became of requests at a provider's cache.

use ash_agent_context_core::{
    AccountRow, Accounting, ExpectedBreak, Forecast, Options, Outlook, Provider,
};
use rustler::{Encoder as _, Env, Term};

use crate::argument::{At, Of, Unsigned};
use crate::atoms;
use crate::decode::Number;
use crate::encode::{Encoder, FieldTerms};
use crate::nif::nif;
use crate::prices::PricesHandle;
use crate::request::{within_work, RequestOptions};
use crate::resource::{answer, ContextHandle};
use crate::tokens;
use crate::words::Word as _;

// A map for each request, oldest first.
nif!(
    context_account_normal,
    context_account_dirty,
    |env,
     scheduler,
     context: ContextHandle,
     prices: Of<'a, Option<PricesHandle>>,
     model: Of<'a, Option<&'a str>>,
     since: Unsigned| {
        // A row without a cause may make two requests again.
        let again = context
            .get()
            .encode_cost(&Options::new(Provider::default()));
        scheduler.allow(context.get().spending_cost(since).plus(again.times(2)))?;
        let accounting = Accounting {
            prices: prices.as_ref().map(|prices| prices.get()),
            model,
            since,
        };
        let rows = context.get().account(&accounting);
        let encoder = Encoder::new_copying(env);
        Ok(encoder.list(rows.iter().map(|row| encode_row(env, row))))
    }
);

// The context with the digest of its next request.
nif!(
    context_note_sent_normal,
    context_note_sent_dirty,
    |env, scheduler, context: ContextHandle, given: Of<'a, RequestOptions<'a>>| {
        let options = given.options(scheduler);
        let cost = context.get().encode_cost(&options);
        scheduler.allow(cost.plus(context.get().asked_view_cost()))?;
        let next = within_work(context.get().note_sent(&options))?;
        Ok(answer(env, next))
    }
);

// The conversation as it was when an iteration's last request was made, or `nil`.
nif!(
    context_as_asked_normal,
    context_as_asked_dirty,
    |env, scheduler, context: ContextHandle, number: Number| {
        let context = context.get();
        scheduler.allow(context.as_asked_cost(number))?;
        let iteration = context.iteration(number);
        let asked = iteration.and_then(|iteration| context.as_asked(iteration));
        Ok(asked.map(|asked| answer(env, asked)).encode(env))
    }
);

// The id of the newest answer, or `nil`.
nif!(
    context_response_id_normal,
    context_response_id_dirty,
    |env, _scheduler, context: ContextHandle| Ok(context.get().last_response_id().encode(env))
);

// The forecast for the next request at the cache.
nif!(
    context_forecast_normal,
    context_forecast_dirty,
    |env,
     scheduler,
     context: ContextHandle,
     given: Of<'a, RequestOptions<'a>>,
     prices: Of<'a, Option<PricesHandle>>,
     at: At| {
        let options = given.options(scheduler);
        let cost = context.get().encode_cost(&options);
        let looks = context.get().looks_cost();
        scheduler.allow(
            cost.times(2)
                .plus(looks)
                .plus(context.get().asked_view_cost()),
        )?;
        let context = given.context(context);
        let accounting = Accounting {
            prices: prices.as_ref().map(|prices| prices.get()),
            model: options.model,
            since: 0,
        };
        let forecast = within_work(context.get().forecast(&options, &accounting, at))?;
        Ok(encode_forecast(env, &forecast))
    }
);

fn encode_forecast<'a>(env: Env<'a>, forecast: &Forecast) -> Term<'a> {
    let encoder = Encoder::new_copying(env);
    let mut fields = FieldTerms::new(env);
    fields.put(atoms::bytes(), forecast.bytes.encode(env));
    fields.put(atoms::same_bytes(), forecast.same_bytes.encode(env));
    fields.put(atoms::tokens(), forecast.tokens.encode(env));
    fields.put(atoms::read(), forecast.read.encode(env));
    fields.put(atoms::written(), forecast.written.encode(env));
    fields.put(atoms::fresh(), forecast.fresh.encode(env));
    fields.put(atoms::cost(), forecast.cost.encode(env));
    let breaks = forecast.breaks.iter().map(|one| encode_break(env, one));
    fields.put(atoms::breaks(), encoder.list(breaks));
    fields.end()
}

fn encode_break<'a>(env: Env<'a>, one: &ExpectedBreak) -> Term<'a> {
    let mut fields = FieldTerms::new(env);
    fields.put(atoms::cause(), one.cause.atom().encode(env));
    fields.put(atoms::iteration(), one.iteration.encode(env));
    fields.put(atoms::tokens(), one.tokens.encode(env));
    fields.end()
}

fn encode_row<'a>(env: Env<'a>, row: &AccountRow) -> Term<'a> {
    let encoder = Encoder::new_copying(env);
    let mut fields = FieldTerms::new(env);
    fields.put(atoms::iteration(), row.iteration.encode(env));
    let provider = row.provider.map(|provider| provider.atom());
    fields.put(atoms::provider(), provider.encode(env));
    fields.put(atoms::model(), row.model.as_deref().encode(env));
    let asked = row.requested_at.map(|at| encoder.time(at));
    fields.put(atoms::requested_at(), asked.encode(env));
    let idle = row.since.map(|since| since.num_milliseconds());
    fields.put(atoms::idle(), idle.encode(env));
    fields.put(atoms::usage(), tokens::encode(env, row.usage));
    fields.put(atoms::predicted(), row.predicted.encode(env));
    let verdict = match row.outlook {
        Outlook::First => atoms::first().encode(env),
        Outlook::Hit => atoms::hit().encode(env),
        Outlook::Broken(cause) => (atoms::broken(), cause.atom()).encode(env),
        Outlook::Expired => atoms::expired().encode(env),
        Outlook::Compacted => atoms::compacted().encode(env),
        Outlook::Provider => atoms::provider().encode(env),
        Outlook::Unexplained => atoms::unexplained().encode(env),
    };
    fields.put(atoms::verdict(), verdict);
    let diagnosis = row.diagnosis.as_ref().map(|says| {
        let mut fields = FieldTerms::new(env);
        fields.put(atoms::reason(), says.reason.encode(env));
        fields.put(atoms::tokens(), says.tokens.encode(env));
        fields.end()
    });
    fields.put(atoms::diagnosis(), diagnosis.encode(env));
    fields.put(atoms::cost(), row.cost.encode(env));
    fields.put(atoms::avoidable(), row.avoidable.encode(env));
    fields.end()
}
