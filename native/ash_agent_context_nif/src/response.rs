//! The NIFs of responses.

use std::sync::atomic::{AtomicUsize, Ordering};

use ash_agent_context_core::{
    AnswerTimes, Delta, Event, Fault, Finish, Framing, Given, MessageRef, Provider, Reading, Reply,
    Response, Size, Stamp, State, ToolCall, Value,
};
use rustler::{
    Atom, Binary, Encoder as _, Env, NifMap, NifTaggedEnum, Resource, ResourceArc, Term,
};

use crate::argument::{Any, At, Metadata, Of, Worded};
use crate::atoms;
use crate::clock;
use crate::decode::{self, Around, Number};
use crate::encode::{Encoder, FieldTerms};
use crate::error::{encode_fault, NifError};
use crate::nif::nif;
use crate::resource::{answer, bury, note_freed, ContextHandle};
use crate::scheduler::Scheduler;
use crate::words::Word as _;

type ResponseResult<'a> = Result<Term<'a>, NifError>;

/// Bytes that a normal scheduler reads in well under a millisecond: real streams take 5 to 10 ns a byte,
/// the worst ones (an event in ten bytes) 20.
const FED: usize = 32 * 1024;

/// Bytes that it may parse at once beside them.
const PARSED: usize = 64 * 1024;

static LIVE: AtomicUsize = AtomicUsize::new(0);

/// A response behind a reference.
pub struct ResponseResource {
    response: Option<Response>,
}

#[rustler::resource_impl]
impl Resource for ResponseResource {}

/// Holds what NIFs take and give.
pub type ResponseHandle = ResourceArc<ResponseResource>;

impl ResponseResource {
    fn wrap(response: Response) -> ResponseHandle {
        LIVE.fetch_add(1, Ordering::Relaxed);
        ResourceArc::new(Self {
            response: Some(response),
        })
    }

    /// Only a handle that is being dropped has none.
    fn get(&self) -> Result<&Response, NifError> {
        self.response.as_ref().ok_or(NifError::BadArg)
    }
}

impl Drop for ResponseResource {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
        note_freed();
        if let Some(response) = self.response.take_if(Response::let_go) {
            bury(Box::new(response));
        }
    }
}

/// Number of responses that are alive, for tests.
#[rustler::nif]
fn live_responses() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// How to read a response, see `AshAgent.Response.new/2`.
#[derive(NifMap)]
#[rustler(decode)]
struct ReadingOptions<'a> {
    provider: Option<Worded<Provider>>,
    framing: Option<Atom>,
    content_type: Option<&'a str>,
    model: Option<&'a str>,
    max_bytes: Number,
}

impl<'a> ReadingOptions<'a> {
    fn reading(&self) -> Reading<'a> {
        // A response that is pushed has no provider of its own.
        let provider = self
            .provider
            .as_ref()
            .map_or(Provider::Anthropic, |named| named.0);
        let reading = Reading::of(provider);
        let named = self.framing.and_then(|given| Framing::of(given).ok());
        let told = || self.content_type.and_then(Framing::of_content_type);
        Reading {
            framing: named.or_else(told).unwrap_or(reading.framing),
            model: self.model,
            max_bytes: usize::try_from(self.max_bytes.0).unwrap_or(reading.max_bytes),
            ..reading
        }
    }
}

/// A response of which nothing came yet.
#[rustler::nif]
fn response_new_normal<'a>(env: Env<'a>, options: Term<'a>) -> ResponseResult<'a> {
    let options: ReadingOptions<'a> = options.decode()?;
    let response = match options.provider {
        Some(_) => Response::new(&options.reading()),
        None => Response::neutral(&options.reading()),
    };
    Ok(ResponseResource::wrap(response).encode(env))
}

nif!(
    response_feed_normal,
    response_feed_dirty,
    |env, scheduler, response: ResponseHandle, bytes: Binary<'a>| {
        if scheduler.is_normal() && bytes.len() > FED {
            return Err(NifError::Dirty);
        }
        let (next, events) = response
            .get()?
            .feed(bytes.as_slice(), scheduler.limit(PARSED))?;
        Ok(news(env, next, &events))
    }
);

/// Says what a model says, see `t:AshAgent.Response.delta/0`.
#[derive(NifTaggedEnum)]
#[rustler(decode)]
enum Pushed<'a> {
    Text(&'a str),
    Thinking(&'a str),
    ToolCallStarted(u64, &'a str, &'a str),
    ToolCallArguments(u64, &'a str),
    Usage(Term<'a>),
    Finish(&'a str),
}

impl<'a> Pushed<'a> {
    fn delta(self, scheduler: Scheduler) -> Result<Delta<'a>, NifError> {
        Ok(match self {
            Self::Text(text) => Delta::Text(text),
            Self::Thinking(text) => Delta::Thinking(text),
            Self::ToolCallStarted(call, id, name) => Delta::CallStarted(call, id, name),
            Self::ToolCallArguments(call, json) => Delta::CallArguments(call, json),
            Self::Usage(report) => Delta::Usage(report_value(report, scheduler)?),
            Self::Finish(word) => Delta::Finish(word),
        })
    }
}

/// A report on tokens. One that cannot be kept is not a reason to lose an answer.
fn report_value(report: Term<'_>, scheduler: Scheduler) -> Result<Value, NifError> {
    match decode::value(report, Around::Nothing, scheduler) {
        Err(NifError::Dirty) => Err(NifError::Dirty),
        usage => Ok(usage.unwrap_or(Value::Nil)),
    }
}

nif!(
    response_push_normal,
    response_push_dirty,
    |env, scheduler, response: ResponseHandle, pushed: Of<'a, Vec<Pushed<'a>>>| {
        let deltas = pushed.into_iter().map(|one| one.delta(scheduler));
        let deltas = deltas.collect::<Result<Vec<_>, _>>()?;
        let bytes = deltas.iter().map(Delta::len).sum();
        scheduler.allow(Size::new(deltas.len(), bytes))?;
        let (next, events) = response.get()?.push(&deltas, scheduler.limit(PARSED))?;
        Ok(news(env, next, &events))
    }
);

nif!(
    response_finish_normal,
    response_finish_dirty,
    |env, scheduler, response: ResponseHandle| {
        let (next, events) = response.get()?.finish(scheduler.limit(PARSED))?;
        Ok(news(env, next, &events))
    }
);

nif!(
    response_interrupt_normal,
    response_interrupt_dirty,
    |env, _scheduler, response: ResponseHandle, reason: Any| {
        Ok(news(env, response.get()?.interrupt(reason), &[]))
    }
);

nif!(
    response_decode_normal,
    response_decode_dirty,
    |env, scheduler, body: Binary<'a>, options: Of<'a, ReadingOptions<'a>>| {
        if scheduler.is_normal() && body.len() > FED {
            return Err(NifError::Dirty);
        }
        let response = Response::decode(body.as_slice(), &options.reading())?;
        Ok(news(env, response, &[]))
    }
);

nif!(
    response_read_refusal_normal,
    response_read_refusal_dirty,
    |env, scheduler, status: Number, name: Of<'a, Option<&'a str>>, body: Binary<'a>| {
        if scheduler.is_normal() && body.len() > FED {
            return Err(NifError::Dirty);
        }
        let status = u16::try_from(status).unwrap_or_default();
        Ok(encode_fault(
            env,
            &Fault::refusal(status, name, body.as_slice()),
        ))
    }
);

/// A whole answer, see `AshAgent.Response.from_message/1`.
#[derive(NifMap)]
#[rustler(decode)]
struct Whole<'a> {
    content: Term<'a>,
    tool_calls: Term<'a>,
    usage: Term<'a>,
    model: Option<&'a str>,
    finish_reason: Option<&'a str>,
}

nif!(
    response_from_message_normal,
    response_from_message_dirty,
    |env, scheduler, given: Of<'a, Whole<'a>>| {
        let response = Response::from_message(Given {
            content: decode::value(given.content, Around::Items, scheduler)?,
            calls: decode::value(given.tool_calls, Around::Items, scheduler)?,
            usage: report_value(given.usage, scheduler)?,
            model: given.model,
            finish: given.finish_reason,
        })?;
        Ok(news(env, response, &[]))
    }
);

/// `{handle, state, events}`
fn news<'a>(env: Env<'a>, response: Response, events: &[Event]) -> Term<'a> {
    let state = state_atom(response.state());
    let encoder = Encoder::new_copying(env);
    let events = encoder.list(events.iter().map(|event| encode_event(&encoder, event)));
    (ResponseResource::wrap(response), state, events).encode(env)
}

fn state_atom(state: &State) -> Atom {
    match state {
        State::Open => atoms::open(),
        State::Queued => atoms::queued(),
        State::Complete => atoms::complete(),
        State::Interrupted(_) => atoms::interrupted(),
        State::Failed(_) => atoms::failed(),
    }
}

fn encode_event<'r, 'e>(encoder: &Encoder<'r, 'e>, event: &'r Event) -> Term<'e> {
    let env = encoder.env();
    match event {
        Event::Text { part, text } => (atoms::text(), part, encoder.text(text)).encode(env),
        Event::Thinking { part, text } => (atoms::thinking(), part, encoder.text(text)).encode(env),
        Event::CallStarted { position, name } => {
            (atoms::tool_call_started(), position, encoder.text(name)).encode(env)
        }
        Event::CallArguments { position, json } => {
            (atoms::tool_call_arguments(), position, encoder.text(json)).encode(env)
        }
        Event::Call(call) => (atoms::tool_call(), encoder.one_call(call)).encode(env),
        Event::Part(part) => (atoms::part(), encoder.part(part)).encode(env),
        Event::Usage(report) => {
            let report = crate::tokens::encode_report(env, report);
            (atoms::usage(), report).encode(env)
        }
        Event::Finish(finish) => (atoms::finish(), finish.atom()).encode(env),
        Event::Error(fault) => (atoms::error(), encode_fault(env, fault)).encode(env),
    }
}

nif!(
    response_message_normal,
    response_message_dirty,
    |env, scheduler, response: ResponseHandle| {
        let response = response.get()?;
        scheduler.allow(cost(response))?;
        let (message, half) = response.message();
        let encoder = Encoder::new_copying(env);
        let shown = encoder.message(MessageRef::Added(&message));
        if half.is_empty() {
            return Ok(shown);
        }
        let half = encoder.calls(half.iter());
        Ok(shown.map_put(atoms::unfinished_tool_calls(), half)?)
    }
);

/// Returns what there is to put together.
fn cost(response: &Response) -> Size {
    Size::new(response.count_received() / 64, response.count_received())
}

nif!(
    context_add_response_normal,
    context_add_response_dirty,
    |env,
     scheduler,
     context: ContextHandle,
     response: ResponseHandle,
     metadata: Metadata,
     times: Of<'a, (Term<'a>, Term<'a>)>,
     at: At| {
        let response = response.get()?;
        scheduler.allow(cost(response))?;
        scheduler.allow(context.get().append_cost())?;
        let read = |at: Term<'a>| {
            let is_given = at != atoms::nil().to_term(env);
            is_given.then(|| clock::at(at, scheduler)).transpose()
        };
        let times = AnswerTimes {
            requested_at: read(times.0)?,
            first_chunk_at: read(times.1)?,
        };
        let stamp = Stamp { at, metadata };
        let next = context.get().add_answer(response, times, stamp)?;
        Ok(answer(env, next))
    }
);

// `{id, model, usage, finish reason, the provider's word for it, bytes}`, `nil` for what is not known.
nif!(
    response_facts_normal,
    response_facts_dirty,
    |env, scheduler, response: ResponseHandle| {
        let response = response.get()?;
        // A provider may write megabytes where others write a name.
        let texts = [response.id(), response.model(), response.finish_word()];
        let bytes = texts.into_iter().flatten().map(str::len).sum();
        scheduler.allow(Size::new(texts.len(), bytes))?;
        let report = response.report();
        let usage = report.map(|report| crate::tokens::encode_report(env, &report));
        let finish = response.finish_reason().map(Finish::atom);
        let facts = (
            response.id(),
            response.model(),
            usage,
            finish,
            response.finish_word(),
            response.count_received(),
        );
        Ok(facts.encode(env))
    }
);

// Returns what else the provider says of its answer, `nil` when it says nothing.
nif!(
    response_details_normal,
    response_details_dirty,
    |env, scheduler, response: ResponseHandle| {
        let response = response.get()?;
        scheduler.allow(cost(response))?;
        let details = response.details();
        let nothing = || atoms::nil().to_term(env);
        Ok(details.map_or_else(nothing, |details| {
            Encoder::new_copying(env).value(&Value::Map(details))
        }))
    }
);

// Why a response failed or was interrupted, else `nil`.
nif!(
    response_reason_normal,
    response_reason_dirty,
    |env, scheduler, response: ResponseHandle| {
        Ok(match response.get()?.state() {
            // Its words are few, whatever the provider wrote.
            State::Failed(fault) => encode_fault(env, fault),
            State::Interrupted(reason) => {
                scheduler.allow(reason.size())?;
                Encoder::new_copying(env).value(reason)
            }
            _ => atoms::nil().to_term(env),
        })
    }
);

impl<'r, 'e> Encoder<'r, 'e> {
    /// A call alone.
    fn one_call(&self, call: &'r ToolCall) -> Term<'e> {
        self.call(call).end()
    }

    /// Where a message of the model came from.
    pub fn reply(&self, reply: &'r Reply) -> Term<'e> {
        let text = |text: &'r Option<Box<str>>| text.as_deref().map(|of| self.text(of));
        let reason = reply.interrupted.as_ref();
        let state = match reason {
            Some(_) => atoms::interrupted(),
            None => atoms::complete(),
        };
        let mut fields = FieldTerms::new(self.env());
        fields.put(atoms::provider(), reply.provider.map(Provider::atom));
        fields.put(atoms::model(), text(&reply.model));
        fields.put(atoms::id(), text(&reply.id));
        fields.put(atoms::finish_reason(), reply.finish.map(Finish::atom));
        fields.put(atoms::finish_word(), text(&reply.word));
        fields.put(atoms::state(), state);
        fields.put(atoms::reason(), reason.map(|reason| self.value(reason)));
        let details = reply.details.as_ref();
        fields.put_given(atoms::details(), details.map(|details| self.map(details)));
        for (key, at) in [
            (atoms::requested_at(), reply.requested_at),
            (atoms::first_chunk_at(), reply.first_chunk_at),
            (atoms::received_at(), reply.received_at),
        ] {
            fields.put_given(key, at.map(|at| self.time(at)));
        }
        fields.end()
    }
}
