//! Pins.

use ash_agent_context_core::{Context, Pin, Time};
use rustler::Atom;

use crate::argument::{arguments, Lender};
use crate::atoms;
use crate::error::NifError;
use crate::to_term::ToTerm;
use rustler::Term;

arguments! {
    // `{:iteration, number}`, `{:message, number, position}`, `{:result, number, slot}` or `{:fact, text}`
    Pin = |term, scheduler| {
        if let Ok((kind, number)) = <(Atom, u64)>::read(term, scheduler) {
            let is_iteration = kind == atoms::iteration();
            return is_iteration.then_some(Self::Iteration(number)).ok_or(NifError::BadArg);
        }
        if let Ok((_, text)) = <(Atom, String)>::read(term, scheduler) {
            return Ok(Self::Fact(text.into()));
        }
        let (kind, number, place) = <(Atom, u64, usize)>::read(term, scheduler)?;
        Ok(match kind == atoms::message() {
            true => Self::Message(number, place),
            false => Self::Result(number, place),
        })
    };
}

pub fn unpin(context: &Context, pin: Pin, at: Time) -> Context {
    context.unpin(&pin, at)
}

pub fn list(context: Lender<'_>) -> Vec<Term<'_>> {
    let env = context.env;
    let pins = context.pins().map(|pin| match pin {
        Pin::Iteration(number) => (atoms::iteration(), number).to_term(env),
        Pin::Message(number, position) => (atoms::message(), number, position).to_term(env),
        Pin::Result(number, slot) => {
            let iteration = i64::try_from(*number).ok();
            let iteration = iteration.and_then(|number| context.iteration(number));
            let call = iteration.and_then(|iteration| iteration.calls().nth(*slot));
            (atoms::call(), call.map(|(call, _)| &*call.id)).to_term(env)
        }
        Pin::Fact(words) => (atoms::fact(), words).to_term(env),
    });
    pins.collect()
}
