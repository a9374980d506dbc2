//! The NIFs of a context.

use ash_agent_context_core::{Context, Cost, Defaults, Iteration, Origin, Stamp};
use rustler::{Encoder as _, Env, Term};

use crate::atoms;
use crate::clock;
use crate::decode::{self, Around, Number};
use crate::encode::{Encoder, Fields};
use crate::error::NifError;
use crate::resource::{answer, Handle};
use crate::scheduler::{nif, Scheduler};

type Reply<'a> = Result<Term<'a>, NifError>;

nif!(context_new_normal, context_new_dirty(input: Term<'a>, system_prompt: Term<'a>, id: Term<'a>, metadata: Term<'a>, at: Term<'a>) => new);
nif!(context_add_user_message_normal, context_add_user_message_dirty(context: Handle, input: Term<'a>, metadata: Term<'a>, at: Term<'a>) => add_user_message);
nif!(context_add_assistant_message_normal, context_add_assistant_message_dirty(context: Handle, content: Term<'a>, calls: Term<'a>, metadata: Term<'a>, at: Term<'a>) => add_assistant_message);
nif!(context_add_tool_results_normal, context_add_tool_results_dirty(context: Handle, results: Term<'a>, metadata: Term<'a>, at: Term<'a>) => add_tool_results);
nif!(context_interrupt_normal, context_interrupt_dirty(context: Handle, reason: Term<'a>, cancelled: bool, metadata: Term<'a>, at: Term<'a>) => interrupt);
nif!(context_fork_normal, context_fork_dirty(context: Handle, id: Term<'a>, at: Term<'a>) => fork);
nif!(context_put_metadata_normal, context_put_metadata_dirty(context: Handle, key: Term<'a>, value: Term<'a>, at: Term<'a>) => put_metadata);
nif!(context_put_iteration_metadata_normal, context_put_iteration_metadata_dirty(context: Handle, number: Number, key: Term<'a>, value: Term<'a>, at: Term<'a>) => put_iteration_metadata);
nif!(context_create_normal, context_create_dirty(attributes: Term<'a>, at: Term<'a>) => create);
nif!(context_update_normal, context_update_dirty(context: Handle, attributes: Term<'a>, at: Term<'a>) => update);
nif!(context_to_messages_normal, context_to_messages_dirty(context: Handle, log: bool) => to_messages);
nif!(context_iteration_normal, context_iteration_dirty(context: Handle, number: Number) => iteration);
nif!(context_iteration_messages_normal, context_iteration_messages_dirty(context: Handle, number: Number) => iteration_messages);
nif!(context_iterations_normal, context_iterations_dirty(context: Handle) => iterations);
nif!(context_tool_calls_normal, context_tool_calls_dirty(context: Handle) => tool_calls);
nif!(context_pending_tool_calls_normal, context_pending_tool_calls_dirty(context: Handle) => pending_tool_calls);
nif!(context_rewind_normal, context_rewind_dirty(context: Handle, to: Number) => rewind);
nif!(context_put_system_prompt_normal, context_put_system_prompt_dirty(context: Handle, prompt: Term<'a>, at: Term<'a>) => put_system_prompt);
nif!(context_system_prompt_normal, context_system_prompt_dirty(context: Handle) => system_prompt);
nif!(context_last_common_normal, context_last_common_dirty(a: Handle, b: Handle) => last_common);
nif!(context_message_normal, context_message_dirty(context: Handle, number: Number, position: Number) => message);
nif!(context_metadata_normal, context_metadata_dirty(context: Handle) => metadata);
nif!(context_to_map_normal, context_to_map_dirty(context: Handle) => to_map);
nif!(context_equal_normal, context_equal_dirty(a: Handle, b: Handle) => equal);

fn new<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    input: Term<'a>,
    system_prompt: Term<'a>,
    id: Term<'a>,
    metadata: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    let input = decode::value(input, Around::Items, scheduler)?;
    let system_prompt = decode::value(system_prompt, Around::Items, scheduler)?;
    let stamp = stamp(metadata, at, scheduler)?;
    let context = Context::new(&clock::id(id)?, input, system_prompt, stamp)?;
    Ok(answer(env, context))
}

fn stamp(metadata: Term<'_>, at: Term<'_>, scheduler: Scheduler) -> Result<Stamp, NifError> {
    Ok(Stamp {
        at: clock::at(at, scheduler)?,
        metadata: decode::metadata(metadata, scheduler)?,
    })
}

fn add_user_message<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    input: Term<'a>,
    metadata: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(context.get().append_cost())?;
    let input = decode::value(input, Around::Items, scheduler)?;
    let stamp = stamp(metadata, at, scheduler)?;
    Ok(answer(env, context.get().add_user_message(input, stamp)?))
}

fn add_assistant_message<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    content: Term<'a>,
    calls: Term<'a>,
    metadata: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(context.get().append_cost())?;
    let content = decode::value(content, Around::Items, scheduler)?;
    let calls = decode::value(calls, Around::Items, scheduler)?;
    let stamp = stamp(metadata, at, scheduler)?;
    let next = context.get().add_assistant_message(content, calls, stamp)?;
    Ok(answer(env, next))
}

fn add_tool_results<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    results: Term<'a>,
    metadata: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(context.get().append_cost())?;
    let results = decode::value(results, Around::Results, scheduler)?;
    let stamp = stamp(metadata, at, scheduler)?;
    Ok(answer(env, context.get().add_tool_results(results, stamp)?))
}

fn interrupt<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    reason: Term<'a>,
    cancelled: bool,
    metadata: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(context.get().append_cost())?;
    let reason = decode::value(reason, Around::Nothing, scheduler)?;
    let stamp = stamp(metadata, at, scheduler)?;
    scheduler.allow(context.get().interrupt_cost(&reason))?;
    let next = match cancelled {
        true => context.get().cancel(&reason, stamp),
        false => context.get().interrupt(&reason, stamp),
    };
    Ok(answer(env, next))
}

fn rewind<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle, to: Number) -> Reply<'a> {
    scheduler.allow(context.get().rewind_cost(to.0))?;
    Ok(answer(env, context.get().rewind(to.0)?))
}

fn put_system_prompt<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    prompt: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    let prompt = decode::value(prompt, Around::Items, scheduler)?;
    scheduler.allow(context.get().system_prompt_cost())?;
    let at = clock::at(at, scheduler)?;
    Ok(answer(env, context.get().put_system_prompt(prompt, at)?))
}

fn system_prompt<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle) -> Reply<'a> {
    let Some(system) = context.get().system() else {
        return Ok(atoms::nil().to_term(env));
    };
    scheduler.allow(Cost::handing_out(system.size()))?;
    Ok(Encoder::sharing(env, &context).content(&system.content))
}

/// The number of the last iteration that two conversations have in common, or `nil`.
fn last_common<'a>(env: Env<'a>, scheduler: Scheduler, a: Handle, b: Handle) -> Reply<'a> {
    scheduler.allow(a.get().whole_cost())?;
    Ok(a.get().last_common(b.get()).encode(env))
}

fn put_metadata<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    key: Term<'a>,
    value: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    let key = decode::value(key, Around::Nothing, scheduler)?;
    let value = decode::value(value, Around::Nothing, scheduler)?;
    let next = context
        .get()
        .put_metadata(key, value, clock::at(at, scheduler)?);
    Ok(answer(env, next))
}

fn put_iteration_metadata<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    number: Number,
    key: Term<'a>,
    value: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    let key = decode::value(key, Around::Nothing, scheduler)?;
    let value = decode::value(value, Around::Nothing, scheduler)?;
    let at = clock::at(at, scheduler)?;
    let next = context
        .get()
        .put_iteration_metadata(number.0, key, value, at)?;
    Ok(answer(env, next))
}

fn create<'a>(env: Env<'a>, scheduler: Scheduler, attributes: Term<'a>, at: Term<'a>) -> Reply<'a> {
    let attributes = decode::value(attributes, Around::Attributes, scheduler)?;
    let defaults = Defaults {
        id: &clock::id(atoms::nil().to_term(env))?,
        at: clock::at(at, scheduler)?,
    };
    Ok(answer(env, Context::from_attributes(attributes, defaults)?))
}

fn update<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    attributes: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    let attributes = decode::value(attributes, Around::Attributes, scheduler)?;
    let next = context
        .get()
        .update_attributes(attributes, clock::at(at, scheduler)?)?;
    Ok(answer(env, next))
}

fn to_messages<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle, log: bool) -> Reply<'a> {
    let encoder = Encoder::sharing(env, &context);
    if log || !context.get().has_view() {
        scheduler.allow(Cost::handing_out(context.get().size()))?;
        return Ok(encoder.messages(context.get().log()));
    }
    scheduler.allow(context.get().messages_cost())?;
    Ok(encoder.shown(context.get().messages()))
}

fn iteration<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle, number: Number) -> Reply<'a> {
    with_iteration(scheduler, &context, number, |iteration| match iteration {
        Some(iteration) => Encoder::sharing(env, &context).iteration(context.get(), iteration),
        None => atoms::nil().to_term(env),
    })
}

fn iteration_messages<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    number: Number,
) -> Reply<'a> {
    with_iteration(scheduler, &context, number, |iteration| {
        let messages = iteration
            .into_iter()
            .flat_map(|iteration| context.get().messages_of(iteration));
        Encoder::sharing(env, &context).messages(messages)
    })
}

/// Does something with an iteration, if there is one and the scheduler allows its size.
fn with_iteration<'r, 'a>(
    scheduler: Scheduler,
    context: &'r Handle,
    number: Number,
    work: impl FnOnce(Option<&'r Iteration>) -> Term<'a>,
) -> Reply<'a> {
    let iteration = context.get().iteration(number.0);
    scheduler.allow(context.get().iteration_cost(iteration))?;
    Ok(work(iteration))
}

fn iterations<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle) -> Reply<'a> {
    scheduler.allow(Cost::handing_out(context.get().size()))?;
    Ok(Encoder::sharing(env, &context).iterations(context.get()))
}

fn tool_calls<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle) -> Reply<'a> {
    let last = context.get().current().last();
    scheduler.allow(context.get().calls_cost())?;
    let calls = last
        .into_iter()
        .flat_map(|entry| entry.message.calls.iter());
    Ok(Encoder::sharing(env, &context).calls(calls))
}

fn pending_tool_calls<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle) -> Reply<'a> {
    scheduler.allow(context.get().calls_cost())?;
    Ok(Encoder::sharing(env, &context).calls(context.get().current().pending()))
}

fn message<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    number: Number,
    position: Number,
) -> Reply<'a> {
    let place = usize::try_from(position.0).ok();
    let message = place.and_then(|place| context.get().message(number.0, place));
    with_iteration(scheduler, &context, number, |_| match message {
        Some(message) => Encoder::sharing(env, &context).message_with_reply(message),
        None => atoms::nil().to_term(env),
    })
}

fn metadata<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle) -> Reply<'a> {
    let notes = context.get().metadata();
    scheduler.allow(Cost::handing_out(notes.size()))?;
    Ok(Encoder::sharing(env, &context).notes(notes))
}

fn to_map<'a>(env: Env<'a>, scheduler: Scheduler, handle: Handle) -> Reply<'a> {
    let context = handle.get();
    scheduler.allow(Cost::handing_out(context.size()))?;
    let encoder = Encoder::sharing(env, &handle);
    let mut fields = Fields::new(env);
    fields.put(atoms::id(), encoder.text(context.id()));
    fields.put(atoms::iterations(), encoder.iterations(context));
    let current = context.current_iteration().encode(env);
    fields.put(atoms::current_iteration(), current);
    fields.put(atoms::metadata(), encoder.notes(context.metadata()));
    fields.put(atoms::created_at(), encoder.time(context.created_at()));
    fields.put(atoms::updated_at(), encoder.time(context.updated_at()));
    if let Some(origin) = context.origin() {
        fields.put(atoms::origin(), self::origin(&encoder, origin));
    }
    Ok(fields.end())
}

/// Where a fork came from.
fn origin<'r, 'e>(encoder: &Encoder<'r, 'e>, origin: &'r Origin) -> Term<'e> {
    let keys = [atoms::id(), atoms::iteration()];
    let iteration = origin.iteration.encode(encoder.env());
    encoder.fields(&keys, &[encoder.text(&origin.id), iteration])
}

fn fork<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    handle: Handle,
    id: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(handle.get().fork_cost())?;
    let (id, at) = (clock::id(id)?, clock::at(at, scheduler)?);
    Ok(answer(env, handle.get().fork(&id, at)))
}

fn equal<'a>(env: Env<'a>, scheduler: Scheduler, a: Handle, b: Handle) -> Reply<'a> {
    scheduler.allow(a.get().whole_cost())?;
    Ok((a.get() == b.get()).encode(env))
}

/// What can be told in constant time.
#[rustler::nif(name = "context_summary_normal")]
fn context_summary<'a>(env: Env<'a>, context: Handle) -> Term<'a> {
    let encoder = Encoder::sharing(env, &context);
    let context = context.get();
    let keys = [
        atoms::id(),
        atoms::messages(),
        atoms::hidden(),
        atoms::pending(),
        atoms::origin(),
        atoms::created_at(),
        atoms::updated_at(),
    ];
    let values = [
        encoder.text(context.id()),
        context.count_messages().encode(env),
        context.has_view().encode(env),
        context.current().count_pending().encode(env),
        context
            .origin()
            .map(|origin| self::origin(&encoder, origin))
            .encode(env),
        encoder.time(context.created_at()),
        encoder.time(context.updated_at()),
    ];
    encoder.fields(&keys, &values)
}

/// The number of the first iteration.
#[rustler::nif(name = "context_first_iteration_normal")]
fn context_first_iteration(context: Handle) -> u64 {
    context.get().first_number()
}

/// Number of iterations.
#[rustler::nif(name = "context_count_iterations_normal")]
fn context_count_iterations(context: Handle) -> usize {
    context.get().count_iterations()
}

/// Number of messages.
#[rustler::nif(name = "context_count_messages_normal")]
fn context_count_messages(context: Handle) -> usize {
    context.get().count_messages()
}

/// The number of the iteration that began the current turn.
#[rustler::nif(name = "context_turn_normal")]
fn context_turn(context: Handle) -> u64 {
    context.get().turn()
}
