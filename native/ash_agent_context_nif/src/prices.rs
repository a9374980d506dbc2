//! NIFs for price files and bills.

use std::time::SystemTime;

use ash_agent_context_core::{PriceFile, Prices};

use crate::clock;
use crate::error::NifError;
use crate::resource::Holder;
use crate::to_term::{results, terms};

results! {
    Prices = |of, _env| Holder::hold(of);
    // `{handle, sha256, how many models, [{provider, model, what}], [{provider, model, which}]}`
    PriceFile = |of, _env| (Holder::hold(of.prices), of.sha256, of.models, of.skipped, of.rounded);
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
