//! The NIFs of pins, and of what stands in the place of hidden iterations.

use ash_agent_context_core::{Context, Pin};
use rustler::{Atom, Encoder as _, Env, Term};

use crate::argument::{At, Of, Unsigned};
use crate::atoms;
use crate::error::NifError;
use crate::nif::{change, nif};
use crate::resource::{answer, ContextHandle};

/// `{:iteration, number}`, `{:message, number, position}`, `{:result, number, slot}` or `{:fact, text}`
fn decode_pin(term: Term<'_>) -> Result<Pin, NifError> {
    if let Ok((kind, Unsigned(number))) = term.decode::<(Atom, Unsigned)>() {
        let is_iteration = kind == atoms::iteration();
        return is_iteration
            .then_some(Pin::Iteration(number))
            .ok_or(NifError::BadArg);
    }
    if let Ok((_, text)) = term.decode::<(Atom, String)>() {
        return Ok(Pin::Fact(text.into()));
    }
    let (kind, number, place): (Atom, Unsigned, Unsigned) = term.decode()?;
    match kind == atoms::message() {
        true => Ok(Pin::Message(number.0, place.size())),
        false => Ok(Pin::Result(number.0, place.size())),
    }
}

fn encode_pin<'a>(env: Env<'a>, context: &Context, pin: &Pin) -> Term<'a> {
    match pin {
        Pin::Iteration(number) => (atoms::iteration(), number).encode(env),
        Pin::Message(number, position) => (atoms::message(), number, position).encode(env),
        Pin::Result(number, slot) => {
            let iteration = i64::try_from(*number).ok();
            let iteration = iteration.and_then(|number| context.iteration(number));
            let call = iteration.and_then(|iteration| iteration.calls().nth(*slot));
            (atoms::call(), call.map(|(call, _)| &*call.id)).encode(env)
        }
        Pin::Fact(words) => (atoms::fact(), &**words).encode(env),
    }
}

nif!(
    context_pin_normal,
    context_pin_dirty,
    |env, scheduler, context: ContextHandle, pin: Term<'a>, at: At| {
        scheduler.allow(context.get().receipt_cost())?;
        let next = context.get().pin(decode_pin(pin)?, at)?;
        Ok(answer(env, next))
    }
);

nif!(
    context_unpin_normal,
    context_unpin_dirty,
    |env, scheduler, context: ContextHandle, pin: Term<'a>, at: At| {
        scheduler.allow(context.get().receipt_cost())?;
        Ok(answer(env, context.get().unpin(&decode_pin(pin)?, at)))
    }
);

nif!(
    context_pins_normal,
    context_pins_dirty,
    |env, scheduler, context: ContextHandle| {
        // Of a result, its call is looked for.
        if context.get().pins().next().is_some() {
            scheduler.allow(context.get().find_call_cost())?;
        }
        let pins = context
            .get()
            .pins()
            .map(|pin| encode_pin(env, context.get(), pin));
        Ok(pins.collect::<Vec<_>>().encode(env))
    }
);

// `{iteration, slot}` of the newest call with an id, or `nil`.
nif!(
    context_place_of_call_normal,
    context_place_of_call_dirty,
    |env, scheduler, context: ContextHandle, id: Of<'a, &'a str>| {
        scheduler.allow(context.get().find_call_cost())?;
        Ok(context.get().place_of_call(id).encode(env))
    }
);

change!(
    context_put_index_normal,
    context_put_index_dirty,
    |context, share: Of<'a, Option<Unsigned>>, user_bytes: Of<'a, Option<Unsigned>>, at: At| (
        context.receipt_cost(),
        context.put_index(
            share.map(|share| share.size()),
            user_bytes.map(|bytes| bytes.size()),
            at
        )
    )
);
