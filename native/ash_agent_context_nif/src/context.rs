//! The NIFs of a context.

use ash_agent_context_core::{Context, Cost, Defaults, Iteration, Origin, Stamp};
use rustler::{Encoder as _, Env, Term};

use crate::argument::{Any, At, Attributes, Id, Items, Metadata, Of, Results};
use crate::atoms;
use crate::clock;
use crate::decode::Number;
use crate::encode::{Encoder, FieldTerms};
use crate::error::NifError;
use crate::nif::{change, nif};
use crate::resource::{answer, ContextHandle};
use crate::scheduler::Scheduler;

nif!(
    context_new_normal,
    context_new_dirty,
    |env, _scheduler, input: Items, system_prompt: Items, id: Id, metadata: Metadata, at: At| {
        Ok(answer(
            env,
            Context::new(&id, input, system_prompt, Stamp { at, metadata })?,
        ))
    }
);

change!(
    context_add_user_message_normal,
    context_add_user_message_dirty,
    |context, input: Items, metadata: Metadata, at: At| (
        context.append_cost(),
        context.add_user_message(input, Stamp { at, metadata })
    )
);

change!(
    context_add_assistant_message_normal,
    context_add_assistant_message_dirty,
    |context, content: Items, calls: Items, metadata: Metadata, at: At| (
        context.append_cost(),
        context.add_assistant_message(content, calls, Stamp { at, metadata })
    )
);

change!(
    context_add_tool_results_normal,
    context_add_tool_results_dirty,
    |context, results: Results, metadata: Metadata, at: At| (
        context.append_cost(),
        context.add_tool_results(results, Stamp { at, metadata })
    )
);

change!(
    context_interrupt_normal,
    context_interrupt_dirty,
    |context, reason: Any, cancelled: bool, metadata: Metadata, at: At| (
        context.append_cost().plus(context.interrupt_cost(&reason)),
        match cancelled {
            true => context.cancel(&reason, Stamp { at, metadata }),
            false => context.interrupt(&reason, Stamp { at, metadata }),
        }
    )
);

change!(
    context_fork_normal,
    context_fork_dirty,
    |context, id: Id, at: At| (context.fork_cost(), context.fork(&id, at))
);

change!(
    context_rewind_normal,
    context_rewind_dirty,
    |context, to: Number| (context.rewind_cost(to), context.rewind(to))
);

change!(
    context_put_system_prompt_normal,
    context_put_system_prompt_dirty,
    |context, prompt: Items, at: At| (
        context.system_prompt_cost(),
        context.put_system_prompt(prompt, at)
    )
);

change!(
    context_put_metadata_normal,
    context_put_metadata_dirty,
    |context, key: Any, value: Any, at: At| context.put_metadata(key, value, at)
);

change!(
    context_put_iteration_metadata_normal,
    context_put_iteration_metadata_dirty,
    |context, number: Number, key: Any, value: Any, at: At| {
        context.put_iteration_metadata(number, key, value, at)
    }
);

change!(
    context_update_normal,
    context_update_dirty,
    |context, attributes: Attributes, at: At| context.update_attributes(attributes, at)
);

nif!(
    context_create_normal,
    context_create_dirty,
    |env, _scheduler, attributes: Attributes, at: At| {
        let id = &clock::id(atoms::nil().to_term(env))?;
        let defaults = Defaults { id, at };
        Ok(answer(env, Context::from_attributes(attributes, defaults)?))
    }
);

nif!(
    context_system_prompt_normal,
    context_system_prompt_dirty,
    |env, scheduler, context: ContextHandle| {
        let Some(system) = context.get().system() else {
            return Ok(atoms::nil().to_term(env));
        };
        scheduler.allow(Cost::handing_out(system.size()))?;
        Ok(Encoder::new_sharing(env, &context).content(&system.content))
    }
);

// The number of the last iteration that two conversations have in common, or `nil`.
nif!(
    context_last_common_normal,
    context_last_common_dirty,
    |env, scheduler, a: ContextHandle, b: ContextHandle| {
        scheduler.allow(a.get().whole_cost())?;
        Ok(a.get().last_common(b.get()).encode(env))
    }
);

nif!(
    context_equal_normal,
    context_equal_dirty,
    |env, scheduler, a: ContextHandle, b: ContextHandle| {
        scheduler.allow(a.get().whole_cost())?;
        Ok((a.get() == b.get()).encode(env))
    }
);

nif!(
    context_to_messages_normal,
    context_to_messages_dirty,
    |env, scheduler, context: ContextHandle, log: bool| {
        let encoder = Encoder::new_sharing(env, &context);
        if log || !context.get().has_view() {
            scheduler.allow(Cost::handing_out(context.get().size()))?;
            return Ok(encoder.messages(context.get().log()));
        }
        scheduler.allow(context.get().messages_cost())?;
        Ok(encoder.encode_shown(context.get().messages()))
    }
);

nif!(
    context_iteration_normal,
    context_iteration_dirty,
    |env, scheduler, context: ContextHandle, number: Number| {
        let iteration = allowed_iteration(scheduler, &context, number)?;
        let encoder = Encoder::new_sharing(env, &context);
        Ok(match iteration {
            Some(iteration) => encoder.iteration(context.get(), iteration),
            None => atoms::nil().to_term(env),
        })
    }
);

nif!(
    context_iteration_messages_normal,
    context_iteration_messages_dirty,
    |env, scheduler, context: ContextHandle, number: Number| {
        let iteration = allowed_iteration(scheduler, &context, number)?;
        let messages = iteration
            .into_iter()
            .flat_map(|iteration| context.get().messages_of(iteration));
        Ok(Encoder::new_sharing(env, &context).messages(messages))
    }
);

nif!(
    context_message_normal,
    context_message_dirty,
    |env, scheduler, context: ContextHandle, number: Number, position: Number| {
        allowed_iteration(scheduler, &context, number)?;
        let place = usize::try_from(position).ok();
        let message = place.and_then(|place| context.get().message(number, place));
        Ok(match message {
            Some(message) => Encoder::new_sharing(env, &context).message_with_reply(message),
            None => atoms::nil().to_term(env),
        })
    }
);

/// An iteration, if there is one and the scheduler allows its size.
fn allowed_iteration(
    scheduler: Scheduler,
    context: &ContextHandle,
    number: i64,
) -> Result<Option<&Iteration>, NifError> {
    let iteration = context.get().iteration(number);
    scheduler.allow(context.get().iteration_cost(iteration))?;
    Ok(iteration)
}

nif!(
    context_iterations_normal,
    context_iterations_dirty,
    |env, scheduler, context: ContextHandle| {
        scheduler.allow(Cost::handing_out(context.get().size()))?;
        Ok(Encoder::new_sharing(env, &context).iterations(context.get()))
    }
);

nif!(
    context_tool_calls_normal,
    context_tool_calls_dirty,
    |env, scheduler, context: ContextHandle| {
        let last = context.get().current().last();
        scheduler.allow(context.get().calls_cost())?;
        let calls = last
            .into_iter()
            .flat_map(|entry| entry.message.calls.iter());
        Ok(Encoder::new_sharing(env, &context).calls(calls))
    }
);

nif!(
    context_pending_tool_calls_normal,
    context_pending_tool_calls_dirty,
    |env, scheduler, context: ContextHandle| {
        scheduler.allow(context.get().calls_cost())?;
        Ok(Encoder::new_sharing(env, &context).calls(context.get().current().pending()))
    }
);

nif!(
    context_metadata_normal,
    context_metadata_dirty,
    |env, scheduler, context: ContextHandle| {
        let notes = context.get().metadata();
        scheduler.allow(Cost::handing_out(notes.size()))?;
        Ok(Encoder::new_sharing(env, &context).notes(notes))
    }
);

nif!(
    context_to_map_normal,
    context_to_map_dirty,
    |env, scheduler, handle: ContextHandle| {
        let context = handle.get();
        scheduler.allow(Cost::handing_out(context.size()))?;
        let encoder = Encoder::new_sharing(env, &handle);
        let mut fields = FieldTerms::new(env);
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
);

/// Where a fork came from.
fn origin<'r, 'e>(encoder: &Encoder<'r, 'e>, origin: &'r Origin) -> Term<'e> {
    let keys = [atoms::id(), atoms::iteration()];
    let iteration = origin.iteration.encode(encoder.env());
    encoder.fields(&keys, &[encoder.text(&origin.id), iteration])
}

/// Returns what can be told in constant time.
#[rustler::nif(name = "context_summary_normal")]
fn context_summary<'a>(env: Env<'a>, context: ContextHandle) -> Term<'a> {
    let encoder = Encoder::new_sharing(env, &context);
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

/// The conversation's id.
#[rustler::nif(name = "context_id_normal")]
fn context_id<'a>(env: Env<'a>, context: ContextHandle) -> Term<'a> {
    Encoder::new_sharing(env, &context).text(context.get().id())
}

/// What a run has to know before it begins: `{id, first iteration of the turn, reported tokens, pending calls, recall?}`.
#[rustler::nif(name = "context_outline_normal")]
fn context_outline<'a>(env: Env<'a>, context: ContextHandle) -> Term<'a> {
    let id = Encoder::new_sharing(env, &context).text(context.get().id());
    let context = context.get();
    let tokens = context.usage().total;
    let pending = context.current().count_pending();
    (id, context.turn(), tokens, pending, context.has_recall()).encode(env)
}

/// The number of the first iteration.
#[rustler::nif(name = "context_first_iteration_normal")]
fn context_first_iteration(context: ContextHandle) -> u64 {
    context.get().first_number()
}

/// Number of iterations.
#[rustler::nif(name = "context_count_iterations_normal")]
fn context_count_iterations(context: ContextHandle) -> usize {
    context.get().count_iterations()
}

/// Number of messages.
#[rustler::nif(name = "context_count_messages_normal")]
fn context_count_messages(context: ContextHandle) -> usize {
    context.get().count_messages()
}

// The first and the last iteration of a turn, or `nil`.
nif!(
    context_find_turn_normal,
    context_find_turn_dirty,
    |env, scheduler, handle: ContextHandle, name: Of<'a, &'a str>, text: Of<'a, &'a str>| {
        let context = handle.get();
        scheduler.allow(context.find_call_cost())?;
        Ok(context.find_turn(name, text).encode(env))
    }
);

/// The number of the iteration that began the current turn.
#[rustler::nif(name = "context_turn_normal")]
fn context_turn(context: ContextHandle) -> u64 {
    context.get().turn()
}
