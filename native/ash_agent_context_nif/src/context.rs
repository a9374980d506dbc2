//! NIFs for conversations: adding messages and results, reading them, and deciding about calls.

use ash_agent_context_core::{
    Context, Cost, Defaults, Error, Iteration, Origin, Stamp, Time, Value,
};
use rustler::Term;

use crate::argument::{Attributes, Id, Items, Lender, Metadata, Results};
use crate::clock;
use crate::error::NifError;
use crate::to_term::{maps, Maybe};

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
    let cost = Cost::from(reason.size()).times(context.current().count_pending());
    context.scheduler.allow(cost)?;
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

pub fn rewind(context: Lender<'_>, to: i64) -> Result<Context, NifError> {
    context.scheduler.allow(context.rewind_cost(to))?;
    Ok(context.rewind(to)?)
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
        true => context.encoder().messages(context.all_messages()),
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

/// Returns an iteration, if there is one and the scheduler allows its size.
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

/// The term of `to_map/1`.
pub struct Whole<'a>(Lender<'a>);

pub const fn to_map(context: Lender<'_>) -> Whole<'_> {
    Whole(context)
}

/// Returns the facts that a run needs before it begins: `{id, first iteration of the turn, reported tokens, pending calls,
/// recall?}`.
pub fn outline(context: &Context) -> (&str, u64, u64, usize, bool) {
    let (tokens, pending) = (context.usage().total, context.current().count_pending());
    let (id, turn) = (context.id(), context.turn());
    (id, turn, tokens, pending, context.has_recall())
}

/// The facts that take constant time.
pub struct Summary<'a>(&'a Context);

pub const fn summary(context: &Context) -> Summary<'_> {
    Summary(context)
}

maps! {
    Whole<'_> = |of| {
        id: of.0.id(), iterations: of.0.encoder().iterations(&of.0), current_iteration: of.0.current_iteration(),
        metadata: of.0.encoder().notes(of.0.metadata()), created_at: of.0.created_at(), updated_at: of.0.updated_at(),
        origin: Maybe(of.0.origin()),
    }
    Summary<'_> = |of| {
        id: of.0.id(), messages: of.0.count_messages(), hidden: of.0.has_view(), pending: of.0.current().count_pending(),
        origin: of.0.origin(), created_at: of.0.created_at(), updated_at: of.0.updated_at(),
    }
    Origin = |of| { id, iteration }
}

pub fn approve(
    context: &Context,
    id: &str,
    shown: Option<Value>,
    by: Value,
    at: Time,
) -> Result<Context, Error> {
    context.approve_tool_call(id, shown.as_ref(), by, at)
}

pub fn is_approved(context: &Context, id: &str, arguments: Value) -> bool {
    context.is_approved(id, &arguments)
}

pub fn undecided_calls(context: Lender<'_>, asked: bool) -> Term<'_> {
    context.encoder().calls_with(context.undecided_calls(asked))
}

/// The times at which a call started and ended.
pub struct Times(Time, Time);

pub fn times(context: &Context, id: &str) -> Option<Times> {
    let (started, ended) = context.tool_call_times(id)?;
    Some(Times(started, ended))
}

maps! {
    Times = |of| { started_at: of.0, ended_at: of.1 }
}
