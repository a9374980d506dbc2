//! The NIFs of what a view does not show: its receipt, and what it shows less of than another.

use ash_agent_context_core::{FactKind, FactState, Receipt, ReceiptFact, Unseen};
use rustler::{Encoder as _, Env, Term};

use crate::argument::{Of, Unsigned};
use crate::atoms;
use crate::encode::FieldTerms;
use crate::error::range;
use crate::nif::nif;
use crate::resource::ContextHandle;
use crate::words::Word as _;

// Of the view as it is, or of the request of an iteration; `nil` if that is not known.
nif!(
    context_receipt_normal,
    context_receipt_dirty,
    |env, scheduler, context: ContextHandle, request: Of<'a, Option<Unsigned>>, most: Unsigned| {
        scheduler.allow(context.get().receipt_cost())?;
        let most = Unsigned(most).size();
        let receipt = match request {
            None => Some(context.get().receipt(most)),
            Some(Unsigned(number)) => context.get().receipt_of_request(number, most),
        };
        let encode = |receipt: Receipt| encode_receipt(env, &receipt);
        Ok(receipt.map_or_else(|| atoms::nil().to_term(env), encode))
    }
);

fn encode_receipt<'a>(env: Env<'a>, receipt: &Receipt) -> Term<'a> {
    let counts = |count: &dyn Fn(FactState) -> usize| {
        let mut fields = FieldTerms::new(env);
        for state in FactState::ALL {
            fields.put(state.atom(), count(state).encode(env));
        }
        fields.end()
    };
    let mut kinds = FieldTerms::new(env);
    for kind in FactKind::ALL {
        let of_kind = |state| receipt.count_of(kind, state);
        if FactState::ALL.into_iter().any(|state| of_kind(state) > 0) {
            kinds.put(kind.atom(), counts(&of_kind));
        }
    }
    let facts = receipt.facts.iter().map(|fact| encode_fact(env, fact));
    let facts: Vec<Term<'a>> = facts.collect();
    let mut fields = FieldTerms::new(env);
    fields.put(atoms::counts(), counts(&|state| receipt.count(state)));
    fields.put(atoms::kinds(), kinds.end());
    fields.put(atoms::facts(), facts.encode(env));
    fields.end()
}

fn encode_fact<'a>(env: Env<'a>, fact: &ReceiptFact) -> Term<'a> {
    let handle = fact.handle.map(|handle| handle.to_string());
    let mut fields = FieldTerms::new(env);
    fields.put(atoms::kind(), fact.kind.atom().to_term(env));
    fields.put(atoms::state(), fact.state.atom().to_term(env));
    fields.put(atoms::text(), fact.text.encode(env));
    fields.put(atoms::handle(), handle.encode(env));
    fields.put(atoms::iteration(), fact.iteration.encode(env));
    fields.put(atoms::uses(), fact.uses.encode(env));
    fields.end()
}

// `{no longer, again}` of a view beside another one, or beside that of an iteration's request; `nil` if that is not known.
nif!(
    context_diff_views_normal,
    context_diff_views_dirty,
    |env,
     scheduler,
     context: ContextHandle,
     other: ContextHandle,
     request: Of<'a, Option<Unsigned>>| {
        let (context, other) = (context.get(), other.get());
        scheduler.allow(context.recall_cost().plus(other.recall_cost()))?;
        let asked = match request {
            None => Some(other.clone()),
            Some(Unsigned(number)) => other.asked_view_of(number),
        };
        let Some(asked) = asked else {
            return Ok(atoms::nil().to_term(env));
        };
        let encode = |unseen: Vec<Unseen>| -> Vec<Term<'a>> {
            let terms = unseen.iter().map(|one| encode_unseen(env, one));
            terms.collect()
        };
        let no_longer = encode(context.unseen_beside(&asked));
        Ok((no_longer, encode(asked.unseen_beside(context))).encode(env))
    }
);

fn encode_unseen<'a>(env: Env<'a>, unseen: &Unseen) -> Term<'a> {
    let mut fields = FieldTerms::new(env);
    fields.put(atoms::look(), unseen.look.atom().to_term(env));
    fields.put(atoms::was(), unseen.was.atom().to_term(env));
    let iterations = range(env, unseen.first, unseen.last);
    fields.put(atoms::iterations(), iterations);
    fields.put(atoms::call(), unseen.call.as_deref().encode(env));
    fields.put(atoms::handle(), unseen.handle.to_string().encode(env));
    fields.end()
}
