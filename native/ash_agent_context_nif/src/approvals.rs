//! The NIFs of decisions about tool calls.

use ash_agent_context_core::{Cost, Size, Value};
use rustler::{Encoder as _, Env, Term};

use crate::atoms;
use crate::clock;
use crate::decode::{self, Around};
use crate::encode::{Encoder, Fields};
use crate::error::NifError;
use crate::resource::{answer, Handle};
use crate::scheduler::{nif, Scheduler};
use crate::words;

type Reply<'a> = Result<Term<'a>, NifError>;

nif!(context_ask_normal, context_ask_dirty(context: Handle, id: Term<'a>, arguments: Term<'a>, at: Term<'a>) => ask);
nif!(context_approve_normal, context_approve_dirty(context: Handle, id: Term<'a>, arguments: Term<'a>, by: Term<'a>, at: Term<'a>) => approve);
nif!(context_is_approved_normal, context_is_approved_dirty(context: Handle, id: Term<'a>, arguments: Term<'a>) => is_approved);
nif!(context_undecided_calls_normal, context_undecided_calls_dirty(context: Handle) => undecided_calls);
nif!(context_deny_normal, context_deny_dirty(context: Handle, id: Term<'a>, reason: Term<'a>, by: Term<'a>, at: Term<'a>) => deny);
nif!(context_call_status_normal, context_call_status_dirty(context: Handle, id: Term<'a>) => call_status);
nif!(context_call_times_normal, context_call_times_dirty(context: Handle, id: Term<'a>) => call_times);
nif!(context_call_decision_normal, context_call_decision_dirty(context: Handle, id: Term<'a>) => call_decision);

fn ask<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    id: Term<'a>,
    arguments: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(context.get().append_cost())?;
    let arguments = decode::value(arguments, Around::Nothing, scheduler)?;
    let at = clock::at(at, scheduler)?;
    let id = id.decode()?;
    scheduler.allow(context.get().decide_cost(id))?;
    let next = context.get().ask_about_tool_call(id, arguments, at)?;
    Ok(answer(env, next))
}

fn approve<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    id: Term<'a>,
    arguments: Term<'a>,
    by: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(context.get().digest_cost())?;
    let arguments = match decode::value(arguments, Around::Nothing, scheduler)? {
        Value::Nil => None,
        arguments => Some(arguments),
    };
    let by = decode::value(by, Around::Nothing, scheduler)?;
    let at = clock::at(at, scheduler)?;
    let id = id.decode()?;
    scheduler.allow(context.get().decide_cost(id))?;
    let next = context.get().approve_tool_call(id, arguments, by, at)?;
    Ok(answer(env, next))
}

fn is_approved<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    id: Term<'a>,
    arguments: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(context.get().digest_cost())?;
    let arguments = decode::value(arguments, Around::Nothing, scheduler)?;
    let is_approved = context.get().is_approved(id.decode()?, &arguments);
    Ok(is_approved.encode(env))
}

fn undecided_calls<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle) -> Reply<'a> {
    scheduler.allow(Cost::handing_out(context.get().current().size()))?;
    Ok(Encoder::sharing(env, &context).calls_with(context.get().undecided_calls()))
}

fn deny<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    id: Term<'a>,
    reason: Term<'a>,
    by: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(context.get().append_cost())?;
    let reason = decode::value(reason, Around::Nothing, scheduler)?;
    let by = decode::value(by, Around::Nothing, scheduler)?;
    let at = clock::at(at, scheduler)?;
    let id = id.decode()?;
    scheduler.allow(context.get().decide_cost(id))?;
    let next = context.get().deny_tool_call(id, reason, by, at)?;
    Ok(answer(env, next))
}

fn call_status<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle, id: Term<'a>) -> Reply<'a> {
    scheduler.allow(context.get().find_call_cost())?;
    let status = context.get().tool_call_status(id.decode()?);
    Ok(status.map(words::call_status).encode(env))
}

fn call_times<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle, id: Term<'a>) -> Reply<'a> {
    scheduler.allow(context.get().find_call_cost())?;
    let Some((started, ended)) = context.get().tool_call_times(id.decode()?) else {
        return Ok(atoms::nil().to_term(env));
    };
    let encoder = Encoder::copying(env);
    let mut fields = Fields::new(env);
    fields.put(atoms::started_at(), encoder.time(started));
    fields.put(atoms::ended_at(), encoder.time(ended));
    Ok(fields.end())
}

fn call_decision<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    id: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(context.get().find_call_cost())?;
    let Some(decision) = context.get().tool_call_decision(id.decode()?) else {
        return Ok(atoms::nil().to_term(env));
    };
    let terms = [
        Some(&decision.by),
        Some(&decision.reason),
        decision.arguments.as_ref(),
    ];
    let terms = terms.into_iter().flatten().map(Value::size);
    scheduler.allow(terms.fold(Size::default(), Size::plus))?;
    let encoder = Encoder::sharing(env, &context);
    let name = if decision.approved {
        atoms::approved()
    } else {
        atoms::denied()
    };
    let mut fields = Fields::new(env);
    fields.put(atoms::decision(), name.to_term(env));
    fields.put(atoms::by(), encoder.value(&decision.by));
    fields.put(atoms::at(), encoder.time(decision.at));
    fields.put(atoms::reason(), encoder.value(&decision.reason));
    if let Some(arguments) = &decision.arguments {
        fields.put(atoms::arguments(), encoder.value(arguments));
    }
    Ok(fields.end())
}
