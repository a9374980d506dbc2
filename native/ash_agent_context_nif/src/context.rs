//! The NIFs of a context.

use ash_agent_context_core::{Context, Defaults, Iteration, Origin, Size, Stamp, View};
use rustler::{Encoder as _, Env, Term};

use crate::atoms;
use crate::clock;
use crate::decode::{self, Around, Number};
use crate::encode::{Encoder, Fields};
use crate::error::NifError;
use crate::lane::{nif, Lane};
use crate::resource::{answer, Handle};

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
    lane: Lane,
    input: Term<'a>,
    system_prompt: Term<'a>,
    id: Term<'a>,
    metadata: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    let input = decode::value(input, Around::Items, lane)?;
    let system_prompt = decode::value(system_prompt, Around::Items, lane)?;
    let stamp = stamp(metadata, at, lane)?;
    let context = Context::new(&clock::id(id)?, input, system_prompt, stamp)?;
    Ok(answer(env, context))
}

fn stamp(metadata: Term<'_>, at: Term<'_>, lane: Lane) -> Result<Stamp, NifError> {
    Ok(Stamp {
        at: clock::at(at, lane)?,
        metadata: decode::metadata(metadata, lane)?,
    })
}

fn add_user_message<'a>(
    env: Env<'a>,
    lane: Lane,
    context: Handle,
    input: Term<'a>,
    metadata: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    lane.allow(exchange_size(context.get().current()))?;
    let input = decode::value(input, Around::Items, lane)?;
    let stamp = stamp(metadata, at, lane)?;
    Ok(answer(env, context.get().add_user_message(input, stamp)?))
}

fn add_assistant_message<'a>(
    env: Env<'a>,
    lane: Lane,
    context: Handle,
    content: Term<'a>,
    calls: Term<'a>,
    metadata: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    lane.allow(exchange_size(context.get().current()))?;
    let content = decode::value(content, Around::Items, lane)?;
    let calls = decode::value(calls, Around::Items, lane)?;
    let stamp = stamp(metadata, at, lane)?;
    let next = context.get().add_assistant_message(content, calls, stamp)?;
    Ok(answer(env, next))
}

fn add_tool_results<'a>(
    env: Env<'a>,
    lane: Lane,
    context: Handle,
    results: Term<'a>,
    metadata: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    lane.allow(exchange_size(context.get().current()))?;
    let results = decode::value(results, Around::Results, lane)?;
    let stamp = stamp(metadata, at, lane)?;
    Ok(answer(env, context.get().add_tool_results(results, stamp)?))
}

/// Filling one slot of an exchange touches all of its slots, and an error lists those that are empty.
pub fn exchange_size(iteration: &Iteration) -> Size {
    let calls = iteration
        .last()
        .map_or(0, |entry| entry.message.calls.len());
    Size::new(calls, 0)
}

fn interrupt<'a>(
    env: Env<'a>,
    lane: Lane,
    context: Handle,
    reason: Term<'a>,
    cancelled: bool,
    metadata: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    lane.allow(exchange_size(context.get().current()))?;
    let reason = decode::value(reason, Around::Nothing, lane)?;
    let stamp = stamp(metadata, at, lane)?;
    // Every pending call gets the reason.
    let pending = context.get().current().count_pending();
    let size = reason.size();
    lane.allow(Size::new(
        size.terms.saturating_mul(pending),
        size.bytes.saturating_mul(pending),
    ))?;
    let next = match cancelled {
        true => context.get().cancel(&reason, stamp),
        false => context.get().interrupt(&reason, stamp),
    };
    Ok(answer(env, next))
}

fn rewind<'a>(env: Env<'a>, lane: Lane, context: Handle, to: Number) -> Reply<'a> {
    lane.allow(context.get().rewind_size(to.0))?;
    if context.get().has_view() {
        lane.allow(Size::new(context.get().count_iterations(), 0))?;
    }
    Ok(answer(env, context.get().rewind(to.0)?))
}

fn put_system_prompt<'a>(
    env: Env<'a>,
    lane: Lane,
    context: Handle,
    prompt: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    let prompt = decode::value(prompt, Around::Items, lane)?;
    // The texts behind it are put behind it anew.
    lane.allow(context.get().view().map_or(Size::default(), View::size))?;
    let at = clock::at(at, lane)?;
    Ok(answer(env, context.get().put_system_prompt(prompt, at)?))
}

fn system_prompt<'a>(env: Env<'a>, lane: Lane, context: Handle) -> Reply<'a> {
    let Some(system) = context.get().system() else {
        return Ok(atoms::nil().to_term(env));
    };
    lane.allow_reading(system.size())?;
    Ok(Encoder::sharing(env, &context).content(&system.content))
}

/// The number of the last iteration that two conversations have in common, or `nil`.
fn last_common<'a>(env: Env<'a>, lane: Lane, a: Handle, b: Handle) -> Reply<'a> {
    lane.allow(a.get().size())?;
    Ok(a.get().last_common(b.get()).encode(env))
}

fn put_metadata<'a>(
    env: Env<'a>,
    lane: Lane,
    context: Handle,
    key: Term<'a>,
    value: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    let key = decode::value(key, Around::Nothing, lane)?;
    let value = decode::value(value, Around::Nothing, lane)?;
    let next = context.get().put_metadata(key, value, clock::at(at, lane)?);
    Ok(answer(env, next))
}

fn put_iteration_metadata<'a>(
    env: Env<'a>,
    lane: Lane,
    context: Handle,
    number: Number,
    key: Term<'a>,
    value: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    let key = decode::value(key, Around::Nothing, lane)?;
    let value = decode::value(value, Around::Nothing, lane)?;
    let at = clock::at(at, lane)?;
    let next = context
        .get()
        .put_iteration_metadata(number.0, key, value, at)?;
    Ok(answer(env, next))
}

fn create<'a>(env: Env<'a>, lane: Lane, attributes: Term<'a>, at: Term<'a>) -> Reply<'a> {
    let attributes = decode::value(attributes, Around::Attributes, lane)?;
    let defaults = Defaults {
        id: &clock::id(atoms::nil().to_term(env))?,
        at: clock::at(at, lane)?,
    };
    Ok(answer(env, Context::from_attributes(attributes, defaults)?))
}

fn update<'a>(
    env: Env<'a>,
    lane: Lane,
    context: Handle,
    attributes: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    let attributes = decode::value(attributes, Around::Attributes, lane)?;
    let next = context
        .get()
        .update_attributes(attributes, clock::at(at, lane)?)?;
    Ok(answer(env, next))
}

fn to_messages<'a>(env: Env<'a>, lane: Lane, context: Handle, log: bool) -> Reply<'a> {
    lane.allow_reading(context.get().size())?;
    let encoder = Encoder::sharing(env, &context);
    if log || !context.get().has_view() {
        return Ok(encoder.messages(context.get().log()));
    }
    if context
        .get()
        .view()
        .is_some_and(|view| view.masks().is_some())
    {
        lane.allow(context.get().size())?; // masking reads all texts
    }
    Ok(encoder.shown(context.get().messages()))
}

/// What looks different from the log is made by reading and copying texts.
pub fn allow_looks(lane: Lane, context: &Context) -> Result<(), NifError> {
    match context.view().filter(|view| view.changes_looks()) {
        Some(view) => lane.allow(view.cost(context.size())),
        None => Ok(()),
    }
}

fn iteration<'a>(env: Env<'a>, lane: Lane, context: Handle, number: Number) -> Reply<'a> {
    with_iteration(lane, &context, number, |iteration| match iteration {
        Some(iteration) => Encoder::sharing(env, &context).iteration(context.get(), iteration),
        None => atoms::nil().to_term(env),
    })
}

fn iteration_messages<'a>(env: Env<'a>, lane: Lane, context: Handle, number: Number) -> Reply<'a> {
    with_iteration(lane, &context, number, |iteration| {
        let messages = iteration
            .into_iter()
            .flat_map(|iteration| context.get().messages_of(iteration));
        Encoder::sharing(env, &context).messages(messages)
    })
}

/// Does something with an iteration, if there is one and the lane allows its size.
fn with_iteration<'r, 'a>(
    lane: Lane,
    context: &'r Handle,
    number: Number,
    work: impl FnOnce(Option<&'r Iteration>) -> Term<'a>,
) -> Reply<'a> {
    let iteration = context.get().iteration(number.0);
    let system = context.get().system().map_or(Size::default(), |m| m.size());
    lane.allow_reading(iteration.map_or(system, |iteration| iteration.size().plus(system)))?;
    Ok(work(iteration))
}

fn iterations<'a>(env: Env<'a>, lane: Lane, context: Handle) -> Reply<'a> {
    lane.allow_reading(context.get().size())?;
    Ok(Encoder::sharing(env, &context).iterations(context.get()))
}

fn tool_calls<'a>(env: Env<'a>, lane: Lane, context: Handle) -> Reply<'a> {
    let last = context.get().current().last();
    lane.allow_reading(last.map_or(Size::default(), |entry| entry.message.size()))?;
    let calls = last
        .into_iter()
        .flat_map(|entry| entry.message.calls.iter());
    Ok(Encoder::sharing(env, &context).calls(calls))
}

fn pending_tool_calls<'a>(env: Env<'a>, lane: Lane, context: Handle) -> Reply<'a> {
    let last = context.get().current().last();
    lane.allow_reading(last.map_or(Size::default(), |entry| entry.message.size()))?;
    Ok(Encoder::sharing(env, &context).calls(context.get().current().pending()))
}

fn message<'a>(
    env: Env<'a>,
    lane: Lane,
    context: Handle,
    number: Number,
    position: Number,
) -> Reply<'a> {
    let place = usize::try_from(position.0).ok();
    let message = place.and_then(|place| context.get().message(number.0, place));
    with_iteration(lane, &context, number, |_| match message {
        Some(message) => Encoder::sharing(env, &context).message_with_reply(message),
        None => atoms::nil().to_term(env),
    })
}

fn metadata<'a>(env: Env<'a>, lane: Lane, context: Handle) -> Reply<'a> {
    let notes = context.get().metadata();
    lane.allow_reading(notes.size())?;
    Ok(Encoder::sharing(env, &context).notes(notes))
}

fn to_map<'a>(env: Env<'a>, lane: Lane, handle: Handle) -> Reply<'a> {
    let context = handle.get();
    lane.allow_reading(context.size())?;
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

fn fork<'a>(env: Env<'a>, lane: Lane, handle: Handle, id: Term<'a>, at: Term<'a>) -> Reply<'a> {
    // What is decided about the calls of the last message is looked at.
    lane.allow(handle.get().current().size())?;
    let (id, at) = (clock::id(id)?, clock::at(at, lane)?);
    Ok(answer(env, handle.get().fork(&id, at)))
}

fn equal<'a>(env: Env<'a>, lane: Lane, a: Handle, b: Handle) -> Reply<'a> {
    lane.allow(a.get().size())?;
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
