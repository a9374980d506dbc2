//! The NIFs of prices.

use ash_agent_context_core::{read_file, read_list, Cost, Prices};
use rustler::{Binary, Encoder as _, Resource, ResourceArc};

use crate::argument::{Any, Of, Unsigned};
use crate::atoms;
use crate::clock;
use crate::nif::nif;
use crate::resource::ContextHandle;

/// A list of prices behind a reference.
pub struct PricesResource(Prices);

#[rustler::resource_impl]
impl Resource for PricesResource {}

/// Holds what NIFs take and give.
pub type PricesHandle = ResourceArc<PricesResource>;

impl PricesResource {
    /// The prices.
    pub const fn get(&self) -> &Prices {
        &self.0
    }
}

// A list of maps.
nif!(
    prices_list_normal,
    prices_list_dirty,
    |env, _scheduler, given: Any| {
        Ok(ResourceArc::new(PricesResource(read_list(&given)?)).encode(env))
    }
);

// A file's text. Its patterns are compiled.
nif!(prices_file_normal, prices_file_dirty, |env,
                                             scheduler,
                                             text: Binary<'a>,
                                             provider: Of<
    'a,
    Option<&'a str>,
>| {
    scheduler.allow(Cost::LONG)?;
    let file = read_file(&text, provider)?;
    let list = |of: Vec<[String; 3]>| -> Vec<(String, String, String)> {
        of.into_iter().map(|[a, b, c]| (a, b, c)).collect()
    };
    let (skipped, rounded) = (list(file.skipped), list(file.rounded));
    let handle = ResourceArc::new(PricesResource(file.prices));
    Ok((handle, file.sha256, file.models, skipped, rounded).encode(env))
});

// Returns what the answers from an iteration on cost.
nif!(
    context_spent_normal,
    context_spent_dirty,
    |env,
     scheduler,
     handle: ContextHandle,
     prices: PricesHandle,
     asked: Of<'a, Option<&'a str>>,
     since: Unsigned| {
        let context = handle.get();
        scheduler.allow(context.spending_cost(since))?;
        Ok(context
            .sum_spending(prices.get(), asked, since)?
            .encode(env))
    }
);

// Returns whether a model has a price now.
nif!(
    price_known_normal,
    price_known_dirty,
    |env, scheduler, prices: PricesHandle, model: Of<'a, Option<&'a str>>| {
        let now = clock::at(atoms::nil().to_term(env), scheduler)?;
        let found = prices.get().find(None, [model, None], now);
        Ok(found.is_some().encode(env))
    }
);
