//! The NIFs of decisions about tool calls.

use ash_agent_context_core::Size;
use rustler::{Encoder as _, Env, Term};

use crate::atoms;
use crate::clock;
use crate::context::exchange_size;
use crate::decode::{self, Around};
use crate::encode::Encoder;
use crate::error::NifError;
use crate::lane::{nif, Lane};
use crate::resource::{answer, Handle};
use crate::words;

type Reply<'a> = Result<Term<'a>, NifError>;

nif!(context_approve_normal, context_approve_dirty(context: Handle, id: Term<'a>, by: Term<'a>, at: Term<'a>) => approve);
nif!(context_deny_normal, context_deny_dirty(context: Handle, id: Term<'a>, reason: Term<'a>, by: Term<'a>, at: Term<'a>) => deny);
nif!(context_call_status_normal, context_call_status_dirty(context: Handle, id: Term<'a>) => call_status);
nif!(context_call_decision_normal, context_call_decision_dirty(context: Handle, id: Term<'a>) => call_decision);

fn approve<'a>(
    env: Env<'a>,
    lane: Lane,
    context: Handle,
    id: Term<'a>,
    by: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    lane.allow(exchange_size(context.get().current()))?;
    let by = decode::value(by, Around::Nothing, lane)?;
    let at = clock::at(at, lane)?;
    let id = id.decode()?;
    find(lane, &context, id)?;
    Ok(answer(env, context.get().approve_tool_call(id, by, at)?))
}

fn deny<'a>(
    env: Env<'a>,
    lane: Lane,
    context: Handle,
    id: Term<'a>,
    reason: Term<'a>,
    by: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    lane.allow(exchange_size(context.get().current()))?;
    let reason = decode::value(reason, Around::Nothing, lane)?;
    let by = decode::value(by, Around::Nothing, lane)?;
    let at = clock::at(at, lane)?;
    let id = id.decode()?;
    find(lane, &context, id)?;
    let next = context.get().deny_tool_call(id, reason, by, at)?;
    Ok(answer(env, next))
}

/// A call that is not pending is looked for in the whole conversation.
fn find(lane: Lane, context: &Handle, id: &str) -> Result<(), NifError> {
    if context
        .get()
        .current()
        .pending()
        .any(|call| &*call.id == id)
    {
        return Ok(());
    }
    search(lane, context)
}

fn search(lane: Lane, context: &Handle) -> Result<(), NifError> {
    lane.allow(Size::new(context.get().size().terms, 0))
}

fn call_status<'a>(env: Env<'a>, lane: Lane, context: Handle, id: Term<'a>) -> Reply<'a> {
    search(lane, &context)?;
    let status = context.get().tool_call_status(id.decode()?);
    Ok(status.map(words::call_status).encode(env))
}

fn call_decision<'a>(env: Env<'a>, lane: Lane, context: Handle, id: Term<'a>) -> Reply<'a> {
    search(lane, &context)?;
    let Some(decision) = context.get().tool_call_decision(id.decode()?) else {
        return Ok(atoms::nil().to_term(env));
    };
    lane.allow(decision.by.size().plus(decision.reason.size()))?;
    let encoder = Encoder::sharing(env, &context);
    let keys = [atoms::decision(), atoms::by(), atoms::at(), atoms::reason()];
    let name = if decision.approved {
        atoms::approved()
    } else {
        atoms::denied()
    };
    let values = [
        name.to_term(env),
        encoder.value(&decision.by),
        encoder.time(decision.at),
        encoder.value(&decision.reason),
    ];
    Ok(encoder.fields(&keys, &values))
}
