//! NIFs for price files and bills.

use std::time::SystemTime;

use ash_agent_context_core::{read_file, read_list, Error, PriceFile, Prices, Value};
use rustler::{Env, Resource, ResourceArc, Term};

use crate::argument::{arguments, handle};
use crate::clock;
use crate::error::NifError;
use crate::to_term::{terms, Returned, ToTerm};

/// A list of prices behind a reference.
pub struct PricesResource(Prices);

#[rustler::resource_impl]
impl Resource for PricesResource {}

arguments! {
    &'a Prices = |term, _scheduler| Ok(&handle::<PricesResource>(term)?.0);
}

pub fn list(list: Value) -> Result<ResourceArc<PricesResource>, Error> {
    Ok(ResourceArc::new(PricesResource(read_list(&list)?)))
}

pub fn file(text: &[u8], provider: Option<&str>) -> Result<PriceFile, Error> {
    read_file(text, provider)
}

/// `{handle, sha256, how many models, [{provider, model, what}], [{provider, model, which}]}`
impl Returned for PriceFile {
    fn returned(self, env: Env<'_>) -> Result<Term<'_>, NifError> {
        let handle = ResourceArc::new(PricesResource(self.prices));
        Ok((handle, self.sha256, self.models, self.skipped, self.rounded).to_term(env))
    }
}

terms! {
    [String; 3] = |of, env| {
        let [provider, model, what] = of;
        (provider, model, what).to_term(env)
    };
}

/// Returns true if a model has a price now.
pub fn is_known(prices: &Prices, model: Option<&str>) -> Result<bool, NifError> {
    let now = clock::at_system_time(SystemTime::now())?;
    Ok(prices.find(None, [model, None], now).is_some())
}
