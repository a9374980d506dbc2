//! NIFs for responses: feeding them, and reading their messages and facts.

use ash_agent_context_core::{
    AnswerTimes, Context, Delta, Event, Fault, Framing, Given, MessageRef, Provider, Reading,
    Reply, Response, Size, Stamp, State, Value, MAX_DEPTH,
};
use rustler::{Atom, Env, NifTaggedEnum, Term};

use crate::argument::{arguments, elements, field, options, Items, On};
use crate::atoms;
use crate::decode;
use crate::encode::{self, Encoder};
use crate::error::NifError;
use crate::resource::{Handle, Holder};
use crate::to_term::{maps, results, terms, Maybe, ToTerm};
use crate::words::Word as _;

/// A normal scheduler reads so many bytes in well under a millisecond: real streams take 5 to 10 ns a byte, the worst ones
/// (an event in ten bytes) 20.
const FED: usize = 32 * 1024;

/// And it may parse so many bytes at once beside them.
const PARSED: usize = 64 * 1024;

/// Returns how much of a response there is to put together.
pub fn received(response: &Response) -> Size {
    let bytes = response.count_received();
    Size::new(bytes / 64, bytes)
}

/// Bytes from a provider.
pub struct Fed<'a>(pub &'a [u8]);

/// A report on tokens.
pub struct Reported(Value);

arguments! {
    Fed<'a> = |term, scheduler| {
        let bytes = <&[u8]>::read(term, scheduler)?;
        match bytes.len() > scheduler.limit(FED) {
            true => Err(NifError::Dirty),
            false => Ok(Self(bytes)),
        }
    };
    // A report that cannot be kept is not a reason to lose an answer.
    Reported = |term, scheduler| match decode::value(term, MAX_DEPTH, scheduler) {
        Err(NifError::Dirty) => Err(NifError::Dirty),
        report => Ok(Self(report.unwrap_or(Value::Nil))),
    };
}

/// Options for reading a response, see `AshAgent.Response.new/2`.
pub struct ReadingOptions<'a> {
    provider: Option<Provider>,
    framing: Option<Atom>,
    content_type: Option<&'a str>,
    model: Option<&'a str>,
    max_bytes: i64,
}

elements! {
    AnswerTimes { requested_at, first_chunk_at }
}

options! {
    ReadingOptions<'a> { provider, framing, content_type, model, max_bytes }
}

impl<'a> ReadingOptions<'a> {
    fn reading(&self) -> Reading<'a> {
        // A response that is pushed has no provider of its own.
        let reading = Reading::of(self.provider.unwrap_or_default());
        let named = self.framing.and_then(Framing::of);
        let told = || self.content_type.and_then(Framing::of_content_type);
        Reading {
            framing: named.or_else(told).unwrap_or(reading.framing),
            model: self.model,
            max_bytes: usize::try_from(self.max_bytes).unwrap_or(reading.max_bytes),
            ..reading
        }
    }
}

/// Returns an empty response.
pub fn new(options: ReadingOptions<'_>) -> Handle<Response> {
    Holder::hold(match options.provider {
        Some(_) => Response::new(&options.reading()),
        None => Response::neutral(&options.reading()),
    })
}

pub fn feed(response: On<'_, Response>, Fed(bytes): Fed<'_>) -> Result<News, Fault> {
    response.feed(bytes, response.scheduler.limit(PARSED))
}

/// A delta of a model, see `t:AshAgent.Response.delta/0`.
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

arguments! {
    Delta<'a> = |term, scheduler| Ok(match term.decode()? {
        Pushed::Text(text) => Self::Text(text),
        Pushed::Thinking(text) => Self::Thinking(text),
        Pushed::ToolCallStarted(call, id, name) => Self::CallStarted(call, id, name),
        Pushed::ToolCallArguments(call, json) => Self::CallArguments(call, json),
        Pushed::Usage(report) => Self::Usage(Reported::read(report, scheduler)?.0),
        Pushed::Finish(word) => Self::Finish(word),
    });
}

pub fn push(response: On<'_, Response>, deltas: Vec<Delta<'_>>) -> Result<News, NifError> {
    let bytes = deltas.iter().map(Delta::count_bytes).sum();
    response.scheduler.allow(Size::new(deltas.len(), bytes))?;
    Ok(response.push(&deltas, response.scheduler.limit(PARSED))?)
}

pub fn finish(response: On<'_, Response>) -> Result<News, Fault> {
    response.finish(response.scheduler.limit(PARSED))
}

pub fn decode(Fed(body): Fed<'_>, options: ReadingOptions<'_>) -> Result<Response, Fault> {
    Response::decode(body, &options.reading())
}

arguments! {
    // A whole answer, see `AshAgent.Response.from_message/1`.
    Given<'a> = |term, scheduler| {
        let Items(content) = field(term, atoms::content(), scheduler)?;
        let Items(calls) = field(term, atoms::tool_calls(), scheduler)?;
        let Reported(usage) = field(term, atoms::usage(), scheduler)?;
        let model = field(term, atoms::model(), scheduler)?;
        let finish = field(term, atoms::finish_reason(), scheduler)?;
        Ok(Self { content, calls, usage, model, finish })
    };
}

/// A response with its new events.
type News = (Response, Vec<Event>);

results! {
    News = |of, env| tell(of.0, of.1, env);
    Response = |of, env| tell(of, Vec::new(), env);
}

/// Returns `{handle, state, events}`.
fn tell(response: Response, events: Vec<Event>, env: Env<'_>) -> Term<'_> {
    let state = encode::word(env, response.state().name());
    (Holder::hold(response), state, events).to_term(env)
}

terms! {
    Event = |of, env| {
        let encoder = Encoder::new(env, None);
        match of {
            Self::Text { part, text } => (atoms::text(), part, text).to_term(env),
            Self::Thinking { part, text } => (atoms::thinking(), part, text).to_term(env),
            Self::CallStarted { position, name } => (atoms::tool_call_started(), position, name).to_term(env),
            Self::CallArguments { position, json } => (atoms::tool_call_arguments(), position, json).to_term(env),
            Self::Call(call) => (atoms::tool_call(), encoder.call(call).end()).to_term(env),
            Self::Part(part) => (atoms::part(), encoder.part(part)).to_term(env),
            Self::Usage(report) => (atoms::usage(), report).to_term(env),
            Self::Finish(finish) => (atoms::finish(), *finish).to_term(env),
            Self::Error(fault) => (atoms::error(), fault).to_term(env),
        }
    };
}

/// Returns the message with its facts, as `facts` does.
pub fn message(response: On<'_, Response>) -> Term<'_> {
    let (message, half) = response.message();
    let shown = Encoder::new(response.env, None).message(MessageRef::Added(&message));
    let half = (!half.is_empty()).then(|| {
        let half = Encoder::new(response.env, None).calls(half.iter());
        (atoms::unfinished_tool_calls(), half)
    });
    let shown = encode::with(shown, half.into_iter());
    (shown, known(&response).to_term(response.env)).to_term(response.env)
}

pub fn add_to(
    context: &Context,
    response: On<'_, Response>,
    times: AnswerTimes,
    stamp: Stamp,
) -> Result<Context, NifError> {
    response.scheduler.allow(received(&response))?;
    Ok(context.add_answer(&response, times, stamp)?)
}

pub fn facts(response: On<'_, Response>) -> Result<Term<'_>, NifError> {
    let texts = [response.id(), response.model(), response.finish_word()];
    // A provider may write megabytes where others write a name.
    let bytes = texts.into_iter().flatten().map(str::len).sum();
    response.scheduler.allow(Size::new(texts.len(), bytes))?;
    Ok(known(&response).to_term(response.env))
}

/// Returns `{id, model, usage, finish reason, the provider's word for it, bytes}`, `nil` for unknown ones.
fn known(response: &Response) -> impl ToTerm + '_ {
    (
        response.id(),
        response.model(),
        response.report(),
        response.finish_reason(),
        response.finish_word(),
        response.count_received(),
    )
}

/// Returns the reason why a response failed or was interrupted.
pub fn reason(response: On<'_, Response>) -> Result<Option<Term<'_>>, NifError> {
    Ok(match response.state() {
        // The words are few, whatever the provider wrote.
        State::Failed(fault) => Some(fault.to_term(response.env)),
        State::Interrupted(reason) => {
            response.scheduler.allow(reason.size())?;
            Some(reason.to_term(response.env))
        }
        _ => None,
    })
}

impl<'r, 'e> Encoder<'r, 'e> {
    /// Encodes the source of a model's message.
    pub fn reply(&self, reply: &'r Reply) -> Term<'e> {
        let reason = self.value(reply.interrupted.as_ref().unwrap_or(&Value::Nil));
        let details = reply.details.as_ref();
        let details = details.map(|details| (atoms::details(), self.map(details)));
        let more = [(atoms::reason(), reason)].into_iter().chain(details);
        encode::with(reply.to_term(self.env()), more)
    }
}

maps! {
    Reply = |of| {
        provider, model, id, finish_reason: of.finish, finish_word: of.word,
        state: match of.interrupted {
            Some(_) => atoms::interrupted(),
            None => atoms::complete(),
        },
        requested_at: Maybe(of.requested_at), first_chunk_at: Maybe(of.first_chunk_at), received_at: Maybe(of.received_at),
    }
}
