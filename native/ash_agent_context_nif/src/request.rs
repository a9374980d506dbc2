//! Requests.

use ash_agent_context_core::{
    json, Dialect, Error, KeptBytes, Known, Located, Options, Provider, Segment, SystemRole,
    Thinking, Unready, Value,
};
use rustler::{Encoder as _, NewBinary, Resource, ResourceArc, Term};

use crate::argument::{arguments, options, Lender, Metadata};
use crate::atoms;
use crate::decode::Around;
use crate::encode::SHARED;
use crate::error::NifError;
use crate::resource::{ContextHandle, ContextResource};
use crate::scheduler::Scheduler;
use crate::to_term::terms;

/// Bytes that a normal scheduler encodes in well under a millisecond.
const ENCODED: usize = 128 * 1024;

/// Messages and pieces that a normal scheduler looks at in well under a millisecond: 100 ns each.
const LOOKED_AT: usize = 2_000;

/// A request's options, see `AshAgent.Context.Requests`.
pub struct RequestOptions<'a> {
    provider: Provider,
    model: Option<&'a str>,
    thinking: Thinking,
    system_role: SystemRole,
    cache: bool,
    since: Option<u64>,
    max_result_bytes: Option<usize>,
    dialect: Option<&'a str>,
    previous_response_id: Option<&'a str>,
    conversation: Option<&'a str>,
    interrupt: bool,
}

options! {
    RequestOptions<'a> {
        provider, model, thinking, system_role, cache, since, max_result_bytes, dialect, previous_response_id, conversation,
        interrupt,
    }
}

arguments! {
    SystemRole = |term, _scheduler| Self::from_name(term.decode()?).ok_or(NifError::BadArg);
}

impl RequestOptions<'_> {
    /// The options, with as much to encode as fits the scheduler.
    pub fn options(&self, scheduler: Scheduler) -> Options<'_> {
        let (response, conversation) = (self.previous_response_id, self.conversation);
        Options {
            model: self.model,
            thinking: self.thinking,
            system_role: self.system_role,
            cache: self.cache,
            from: self.since,
            max_result_bytes: self.max_result_bytes,
            dialect: self.dialect.and_then(Dialect::from_name),
            known: response
                .map(Known::Response)
                .or(conversation.map(Known::Conversation))
                .unwrap_or(Known::Nothing),
            most: scheduler.limit(ENCODED),
            steps: scheduler.limit(LOOKED_AT),
            ..Options::new(self.provider)
        }
    }

    /// The context to project, with pending calls interrupted where that is wanted.
    pub fn context(&self, context: ContextHandle) -> ContextHandle {
        let interrupted = self.interrupt.then(|| context.get().without_pending());
        interrupted.flatten().map_or(context, ContextResource::wrap)
    }

    fn lend<'a>(&self, context: Lender<'a>) -> Lender<'a> {
        Lender {
            handle: self.context(context.handle),
            ..context
        }
    }
}

/// The scheduler is told by what has to be encoded: everything else is cheap.
pub fn within_work<T>(result: Result<T, Error>) -> Result<T, NifError> {
    result.map_err(|error| match error {
        Error::TooMuchWork => NifError::Dirty,
        other => NifError::Core(other),
    })
}

pub fn encode<'a>(
    context: Lender<'a>,
    given: RequestOptions<'a>,
    Metadata(body): Metadata,
) -> Result<Term<'a>, NifError> {
    let options = given.options(context.scheduler);
    context.scheduler.allow(context.encode_cost(&options))?;
    let context = given.lend(context);
    let segments = within_work(context.encode_request(&options, &body.unwrap_or_default()))?;
    let encoder = context.encoder();
    let mut kept = Vec::with_capacity(segments.len());
    let shared = |segment| match segment {
        Segment::Kept(bytes) if bytes.bytes().len() >= SHARED => {
            kept.push(bytes);
            None
        }
        segment => Some(segment),
    };
    // Options that are absent here are shared.
    let segments: Vec<_> = segments.into_iter().map(shared).collect();
    let env = context.env;
    let kept = ResourceArc::new(KeptResource(kept));
    let mut binaries =
        (0..kept.0.len()).map(|index| kept.make_binary(env, |kept| kept.bytes(index)));
    let list = segments.iter().map(|segment| match segment {
        None => binaries.next().encode(env),
        Some(Segment::Lent(bytes)) => encoder.binary(bytes),
        Some(segment) => NewBinary::from_slice(env, segment.bytes()).into(),
    });
    Ok(encoder.list(list))
}

/// What the binaries of a request point into, for as long as one of them is used.
struct KeptResource(Vec<KeptBytes>);

#[rustler::resource_impl]
impl Resource for KeptResource {}

impl KeptResource {
    fn bytes(&self, index: usize) -> &[u8] {
        self.0.get(index).map(KeptBytes::bytes).unwrap_or_default()
    }
}

pub fn request(context: Lender<'_>, given: RequestOptions<'_>) -> Result<Value, NifError> {
    let options = given.options(context.scheduler);
    let context = given.lend(context);
    let segments = within_work(context.encode_request(&options, &Default::default()))?;
    let bytes = segments.iter().flat_map(|segment| segment.bytes());
    let text: Vec<u8> = bytes.copied().collect();
    Ok(json::read(&text, Around::Document.limit())?)
}

pub fn report(context: Lender<'_>, given: RequestOptions<'_>) -> Result<Vec<Located>, NifError> {
    let options = given.options(context.scheduler);
    within_work(given.lend(context).request_report(&options))
}

terms! {
    // A reason why nothing can be sent.
    Unready = |of, env| match of {
        Self::NoMessages => atoms::no_messages().to_term(env),
        Self::LastMessageFromAssistant => atoms::assistant_last().to_term(env),
        Self::PendingToolCalls(ids) => (atoms::pending_tool_calls(), ids).to_term(env),
    };
}
