//! What a view does not show: its receipt, and what it shows less of than another.

use ash_agent_context_core::{Context, FactKind, FactState, Receipt, Unseen};

use crate::argument::Lender;
use crate::atoms;
use crate::encode::FieldTerms;
use crate::error::NifError;
use crate::to_term::terms;
use crate::words::Word as _;

/// Of the view as it is, or of the request of an iteration; `None` if that is not known.
pub fn receipt(context: &Context, request: Option<u64>, most: usize) -> Option<Receipt> {
    match request {
        None => Some(context.receipt(most)),
        Some(number) => context.receipt_of_request(number, most),
    }
}

terms! {
    Receipt = |of, env| {
        let counts = |count: &dyn Fn(FactState) -> usize| {
            let mut fields = FieldTerms::new(env);
            for state in FactState::ALL {
                fields.put(state.atom(), count(state).to_term(env));
            }
            fields.end()
        };
        let mut kinds = FieldTerms::new(env);
        for kind in FactKind::ALL {
            let of_kind = |state| of.count_of(kind, state);
            if FactState::ALL.into_iter().any(|state| of_kind(state) > 0) {
                kinds.put(kind.atom(), counts(&of_kind));
            }
        }
        let mut fields = FieldTerms::new(env);
        fields.put(atoms::counts(), counts(&|state| of.count(state)));
        fields.put(atoms::kinds(), kinds.end());
        fields.put(atoms::facts(), of.facts.to_term(env));
        fields.end()
    };
}

/// What a view no longer shows and shows again, beside another one, or beside that of an iteration's request; `None` if
/// that is not known.
pub fn diff_views(
    context: Lender<'_>,
    other: &Context,
    request: Option<u64>,
) -> Result<Option<(Vec<Unseen>, Vec<Unseen>)>, NifError> {
    let cost = context.recall_cost().plus(other.recall_cost());
    context.scheduler.allow(cost)?;
    let asked = match request {
        None => Some(other.clone()),
        Some(number) => other.asked_view_of(number),
    };
    Ok(asked.map(|asked| (context.unseen_beside(&asked), asked.unseen_beside(&context))))
}
