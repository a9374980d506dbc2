//! NIFs for conversations: adding messages and results, reading them, and deciding about calls.

use ash_agent_context_core::{
    Arrived, CallKey, Context, Cost, Defaults, Entry, Error, Iteration, LateState, Origin, Stamp,
    Time, ToolCall, Value,
};
use rustler::Term;

use crate::argument::{Attributes, On};
use crate::atoms;
use crate::clock;
use crate::error::NifError;
use crate::to_term::{map, maps, Maybe};

pub fn create(Attributes(attributes): Attributes, at: Time) -> Result<Context, Error> {
    let id = &clock::new_id();
    Context::from_attributes(attributes, Defaults { id, at })
}

pub fn interrupt(
    context: On<'_, Context>,
    reason: Value,
    cancelled: bool,
    stamp: Stamp,
) -> Result<Context, NifError> {
    // Every pending call gets the reason.
    let cost = Cost::from(reason.size()).times(context.current().count_pending());
    context.scheduler.allow(cost)?;
    Ok(match cancelled {
        true => context.cancel(&reason, stamp),
        false => context.interrupt(&reason, stamp),
    })
}

/// Takes a late result. The call is named by its id or by a handle.
pub fn arrive(
    context: &Context,
    is_handle: bool,
    name: String,
    result: Value,
    from: Value,
    at: Time,
    awaited_by: Option<String>,
) -> Result<Context, Error> {
    let name = name.into_boxed_str();
    let key = match is_handle {
        true => CallKey::Handle(name),
        false => CallKey::Id(name),
    };
    let awaited_by = awaited_by.map(String::into_boxed_str);
    context.arrive_as(&key, result, Arrived::new(at, from, awaited_by))
}

/// Returns the calls that wait or waited; only those in this state, if one is given.
pub fn late_calls(context: On<'_, Context>, state: Option<LateState>) -> Term<'_> {
    let encoder = context.encoder();
    if state == Some(LateState::Open) {
        let calls = context.waiting_calls();
        return encoder.list(calls.map(|call| encoder.late_call(&call)));
    }
    let calls = context.late_calls();
    let calls = calls.filter(|call| state.is_none_or(|state| call.state == state));
    encoder.list(calls.map(|call| encoder.late_call(&call)))
}

/// Returns the calls that wait or waited under these handles.
pub fn find_late_calls(context: On<'_, Context>, handles: Vec<String>) -> Term<'_> {
    let encoder = context.encoder();
    let calls = context.find_late_calls(handles.iter().map(String::as_str));
    encoder.list(calls.map(|call| encoder.late_call(&call)))
}

/// Returns the late calls that may have changed since another conversation: those of this one, and those of that one.
pub fn late_changes<'a>(context: On<'a, Context>, other: On<'a, Context>) -> (Term<'a>, Term<'a>) {
    let [now, before] = context.late_changes(&other);
    let (own, others) = (context.encoder(), other.encoder());
    (
        own.list(now.iter().map(|call| own.late_call(call))),
        others.list(before.iter().map(|call| others.late_call(call))),
    )
}

/// Returns whether any call waits here, and whether any waits or did.
pub fn has_late(context: &Context) -> (bool, bool) {
    let is_waiting = context.waiting_calls().next().is_some();
    (is_waiting, context.late_calls().next().is_some())
}

pub fn rewind(context: On<'_, Context>, to: i64) -> Result<Context, NifError> {
    context.scheduler.allow(context.rewind_cost(to))?;
    Ok(context.rewind(to)?)
}

pub fn system_prompt(context: On<'_, Context>) -> Option<Term<'_>> {
    let system = context.system()?;
    Some(context.encoder().content(&system.content))
}

pub fn to_messages(context: On<'_, Context>, log: bool) -> Term<'_> {
    match log || !context.has_view() {
        true => context.encoder().messages(context.all_messages()),
        false => context.encoder().encode_shown(context.messages()),
    }
}

pub fn iteration(context: On<'_, Context>, number: i64) -> Result<Option<Term<'_>>, NifError> {
    let iteration = allowed_iteration(&context, number)?;
    let encoder = context.encoder();
    Ok(iteration.map(|iteration| encoder.iteration(&context, iteration)))
}

pub fn iteration_messages(context: On<'_, Context>, number: i64) -> Result<Term<'_>, NifError> {
    let iteration = allowed_iteration(&context, number)?.into_iter();
    let messages = iteration.flat_map(|iteration| context.messages_of(iteration));
    Ok(context.encoder().messages(messages))
}

pub fn message(
    context: On<'_, Context>,
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
    context: &'c On<'_, Context>,
    number: i64,
) -> Result<Option<&'c Iteration>, NifError> {
    let iteration = context.iteration(number);
    context.scheduler.allow(context.iteration_cost(iteration))?;
    Ok(iteration)
}

pub fn iterations(context: On<'_, Context>) -> Term<'_> {
    context.encoder().iterations(&context)
}

pub fn tool_calls(context: On<'_, Context>) -> Term<'_> {
    let last = context.current().last().into_iter();
    let calls = last.flat_map(Entry::said_calls);
    context.encoder().calls(calls)
}

pub fn pending_tool_calls(context: On<'_, Context>) -> Term<'_> {
    context.encoder().calls(context.current().pending())
}

pub fn metadata(context: On<'_, Context>) -> Term<'_> {
    context.encoder().notes(context.metadata())
}

pub fn to_map(context: On<'_, Context>) -> Term<'_> {
    let encoder = context.encoder();
    let mut asked = context.calls_to_ask().peekable();
    let is_asked = asked.peek().is_some();
    map!(
        context.env,
        context {
            id: context.id(),
            iterations: encoder.iterations(&context),
            current_iteration: context.current_iteration(),
            metadata: encoder.notes(context.metadata()),
            created_at: context.created_at(),
            updated_at: context.updated_at(),
            origin: Maybe(context.origin()),
            asked: Maybe(is_asked.then(|| encoder.calls_with(asked, |_| Default::default()))),
            late: Maybe(context.late_document()),
        }
    )
}

/// Returns the facts that a run needs before it begins: `{id, first iteration of the turn, reported tokens, pending calls,
/// recall?, answered?}`.
pub fn outline(context: &Context) -> (&str, u64, u64, usize, bool, bool) {
    let (tokens, pending) = (context.usage().total, context.current().count_pending());
    let (id, turn) = (context.id(), context.turn());
    let answered = context.is_answered();
    (id, turn, tokens, pending, context.has_recall(), answered)
}

/// Returns the facts that take constant time.
pub fn summary(context: On<'_, Context>) -> Term<'_> {
    map!(
        context.env,
        context {
            id: context.id(),
            messages: context.count_messages(),
            hidden: context.has_view(),
            pending: context.current().count_pending(),
            origin: context.origin(),
            created_at: context.created_at(),
            updated_at: context.updated_at(),
        }
    )
}

maps! {
    Origin = |of| { id, iteration }
}

pub fn approve(
    context: &Context,
    id: &str,
    shown: Option<Value>,
    edited: Option<Value>,
    by: Value,
    at: Time,
) -> Result<Context, Error> {
    context.approve_edited(id, shown.as_ref(), edited, by, at)
}

pub fn deny(
    context: &Context,
    id: &str,
    shown: Option<Value>,
    reason: Value,
    by: Value,
    at: Time,
) -> Result<Context, Error> {
    context.deny_tool_call(id, shown.as_ref(), reason, by, at)
}

pub fn undecided_calls(context: On<'_, Context>, asked: bool) -> Term<'_> {
    let calls = context.undecided_calls(asked);
    let mark = |call: &ToolCall| match context.edited_arguments(&call.id) {
        Some(_) => Some(atoms::edited()),
        None => context.is_question(&call.id).then(atoms::question),
    };
    let marks = |call: &ToolCall| (mark(call), context.next_attempt(&call.id));
    context.encoder().calls_with(calls, marks)
}

/// Returns the times at which a call started and ended.
pub fn times<'a>(context: On<'a, Context>, id: &str) -> Option<Term<'a>> {
    let (started, ended) = context.tool_call_times(id)?;
    Some(map!(
        context.env,
        context {
            started_at: started,
            ended_at: ended
        }
    ))
}
