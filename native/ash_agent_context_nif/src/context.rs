//! What a conversation is told, and what it tells.

use ash_agent_context_core::{
    Context, Cost, Defaults, Error, Iteration, Origin, Stamp, Time, Value,
};
use rustler::{Encoder as _, Term};

use crate::argument::{Attributes, Id, Items, Lender, Metadata, Results};
use crate::atoms;
use crate::clock;
use crate::encode::FieldTerms;
use crate::error::NifError;
use crate::to_term::{maps, ToTerm};

type Next = Result<Context, Error>;

pub fn new(
    Items(input): Items,
    Items(prompt): Items,
    Id(id): Id,
    metadata: Metadata,
    at: Time,
) -> Next {
    Context::new(&id, input, prompt, stamp(at, metadata))
}

pub fn create(Attributes(attributes): Attributes, at: Time) -> Next {
    let id = &clock::new_id();
    Context::from_attributes(attributes, Defaults { id, at })
}

pub fn update(context: &Context, Attributes(attributes): Attributes, at: Time) -> Next {
    context.update_attributes(attributes, at)
}

pub fn add_user_message(
    context: &Context,
    Items(input): Items,
    metadata: Metadata,
    at: Time,
) -> Next {
    context.add_user_message(input, stamp(at, metadata))
}

pub fn add_assistant_message(
    context: &Context,
    Items(content): Items,
    Items(calls): Items,
    metadata: Metadata,
    at: Time,
) -> Next {
    context.add_assistant_message(content, calls, stamp(at, metadata))
}

pub fn add_tool_results(
    context: &Context,
    Results(results): Results,
    metadata: Metadata,
    at: Time,
) -> Next {
    context.add_tool_results(results, stamp(at, metadata))
}

pub fn interrupt(
    context: Lender<'_>,
    reason: Value,
    cancelled: bool,
    metadata: Metadata,
    at: Time,
) -> Result<Context, NifError> {
    // Every pending call gets the reason.
    let pending = context.current().count_pending();
    context
        .scheduler
        .allow(Cost::from(reason.size()).times(pending))?;
    let stamp = stamp(at, metadata);
    Ok(match cancelled {
        true => context.cancel(&reason, stamp),
        false => context.interrupt(&reason, stamp),
    })
}

pub fn stamp(at: Time, Metadata(metadata): Metadata) -> Stamp {
    Stamp { at, metadata }
}

pub fn fork(context: &Context, Id(id): Id, at: Time) -> Context {
    context.fork(&id, at)
}

pub fn put_system_prompt(context: &Context, Items(prompt): Items, at: Time) -> Next {
    context.put_system_prompt(prompt, at)
}

pub fn system_prompt(context: Lender<'_>) -> Option<Term<'_>> {
    let system = context.system()?;
    Some(context.encoder().content(&system.content))
}

pub fn to_messages(context: Lender<'_>, log: bool) -> Term<'_> {
    match log || !context.has_view() {
        true => context.encoder().messages(context.log()),
        false => context.encoder().encode_shown(context.messages()),
    }
}

pub fn iteration(context: Lender<'_>, number: i64) -> Result<Option<Term<'_>>, NifError> {
    let iteration = allowed_iteration(&context, number)?;
    let encoder = context.encoder();
    Ok(iteration.map(|iteration| encoder.iteration(&context, iteration)))
}

pub fn iteration_messages(context: Lender<'_>, number: i64) -> Result<Term<'_>, NifError> {
    let iteration = allowed_iteration(&context, number)?.into_iter();
    let messages = iteration.flat_map(|iteration| context.messages_of(iteration));
    Ok(context.encoder().messages(messages))
}

pub fn message(
    context: Lender<'_>,
    number: i64,
    position: i64,
) -> Result<Option<Term<'_>>, NifError> {
    allowed_iteration(&context, number)?;
    let place = usize::try_from(position).ok();
    let message = place.and_then(|place| context.message(number, place));
    Ok(message.map(|message| context.encoder().message_with_reply(message)))
}

/// An iteration, if there is one and the scheduler allows its size.
fn allowed_iteration<'c>(
    context: &'c Lender<'_>,
    number: i64,
) -> Result<Option<&'c Iteration>, NifError> {
    let iteration = context.iteration(number);
    context.scheduler.allow(context.iteration_cost(iteration))?;
    Ok(iteration)
}

pub fn iterations(context: Lender<'_>) -> Term<'_> {
    context.encoder().iterations(&context)
}

pub fn tool_calls(context: Lender<'_>) -> Term<'_> {
    let last = context.current().last().into_iter();
    let calls = last.flat_map(|entry| entry.message.calls.iter());
    context.encoder().calls(calls)
}

pub fn pending_tool_calls(context: Lender<'_>) -> Term<'_> {
    context.encoder().calls(context.current().pending())
}

pub fn metadata(context: Lender<'_>) -> Term<'_> {
    context.encoder().notes(context.metadata())
}

pub fn to_map(context: Lender<'_>) -> Term<'_> {
    let (env, encoder) = (context.env, context.encoder());
    let mut fields = FieldTerms::new(env);
    fields.put(atoms::id(), encoder.text(context.id()));
    fields.put(atoms::iterations(), encoder.iterations(&context));
    let current = context.current_iteration().encode(env);
    fields.put(atoms::current_iteration(), current);
    fields.put(atoms::metadata(), encoder.notes(context.metadata()));
    fields.put(atoms::created_at(), encoder.time(context.created_at()));
    fields.put(atoms::updated_at(), encoder.time(context.updated_at()));
    if let Some(origin) = context.origin() {
        fields.put(atoms::origin(), origin.to_term(env));
    }
    fields.end()
}

/// What can be told in constant time.
pub struct Summary<'a>(&'a Context);

pub const fn summary(context: &Context) -> Summary<'_> {
    Summary(context)
}

maps! {
    Summary<'_> = |of| {
        id: of.0.id(), messages: of.0.count_messages(), hidden: of.0.has_view(), pending: of.0.current().count_pending(),
        origin: of.0.origin(), created_at: of.0.created_at(), updated_at: of.0.updated_at(),
    }
    Origin = |of| { id, iteration }
}
