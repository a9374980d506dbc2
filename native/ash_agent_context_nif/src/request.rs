//! The NIFs of requests.

use ash_agent_context_core::{
    json, Dialect, Error, KeptBytes, Known, Located, Options, Prompt, Provider, Segment,
    SystemRole, Thinking, Unready,
};
use rustler::{Decoder, Encoder as _, NewBinary, NifMap, NifResult, Resource, ResourceArc, Term};

use crate::argument::{Of, Unsigned, Worded};
use crate::atoms;
use crate::decode::{self, Around};
use crate::encode::{self, Encoder, SHARED};
use crate::error::NifError;
use crate::nif::nif;
use crate::resource::{ContextHandle, ContextResource};
use crate::scheduler::Scheduler;
use crate::words::Word;

/// Bytes that a normal scheduler encodes in well under a millisecond.
const ENCODED: usize = 128 * 1024;

/// Messages and pieces that a normal scheduler looks at in well under a millisecond: 100 ns each.
const LOOKED_AT: usize = 2_000;

/// A request's options, see `AshAgent.Context.Requests`.
#[derive(NifMap)]
#[rustler(decode)]
pub struct RequestOptions<'a> {
    provider: Worded<Provider>,
    model: Option<&'a str>,
    thinking: Worded<Thinking>,
    system_role: RoleOption,
    cache: bool,
    since: Option<Unsigned>,
    max_result_bytes: Option<Unsigned>,
    dialect: Option<&'a str>,
    previous_response_id: Option<&'a str>,
    conversation: Option<&'a str>,
    interrupt: bool,
}

struct RoleOption(SystemRole);

impl<'a> Decoder<'a> for RoleOption {
    fn decode(term: Term<'a>) -> NifResult<Self> {
        let role = SystemRole::from_name(term.decode()?);
        role.map(Self).ok_or(rustler::Error::BadArg)
    }
}

impl RequestOptions<'_> {
    /// The options, with as much to encode as fits the scheduler.
    pub fn options(&self, scheduler: Scheduler) -> Options<'_> {
        let (response, conversation) = (self.previous_response_id, self.conversation);
        Options {
            model: self.model,
            thinking: self.thinking.0,
            system_role: self.system_role.0,
            cache: self.cache,
            from: self.since.as_ref().map(|since| since.0),
            max_result_bytes: self.max_result_bytes.as_ref().map(Unsigned::size),
            dialect: self.dialect.and_then(Dialect::from_name),
            known: response
                .map(Known::Response)
                .or(conversation.map(Known::Conversation))
                .unwrap_or(Known::Nothing),
            most: scheduler.limit(ENCODED),
            steps: scheduler.limit(LOOKED_AT),
            ..Options::new(self.provider.0)
        }
    }

    /// The context to project, with pending calls interrupted where that is wanted.
    pub fn context(&self, context: ContextHandle) -> ContextHandle {
        let interrupted = self.interrupt.then(|| context.get().without_pending());
        interrupted.flatten().map_or(context, ContextResource::wrap)
    }
}

/// The scheduler is told by what has to be encoded: everything else is cheap.
pub fn within_work<T>(result: Result<T, Error>) -> Result<T, NifError> {
    result.map_err(|error| match error {
        Error::TooMuchWork => NifError::Dirty,
        other => NifError::Core(other),
    })
}

nif!(
    context_encode_request_normal,
    context_encode_request_dirty,
    |env, scheduler, context: ContextHandle, given: Of<'a, RequestOptions<'a>>, body: Term<'a>| {
        scheduler.allow(context.get().encode_cost(&given.options(scheduler)))?;
        let body = decode::metadata(body, scheduler)?.unwrap_or_default();
        let context = given.context(context);
        let options = given.options(scheduler);
        let segments = within_work(context.get().encode_request(&options, &body))?;
        let encoder = Encoder::new_sharing(env, &context);
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
);

/// Holds what the binaries of a request point into, for as long as one of them is used.
struct KeptResource(Vec<KeptBytes>);

#[rustler::resource_impl]
impl Resource for KeptResource {}

impl KeptResource {
    fn bytes(&self, index: usize) -> &[u8] {
        self.0.get(index).map(KeptBytes::bytes).unwrap_or_default()
    }
}

nif!(
    context_request_normal,
    context_request_dirty,
    |env, scheduler, context: ContextHandle, given: Of<'a, RequestOptions<'a>>| {
        scheduler.allow(context.get().request_cost())?;
        let context = given.context(context);
        let options = given.options(scheduler);
        let segments = within_work(context.get().encode_request(&options, &Default::default()))?;
        let text: Vec<u8> = segments
            .iter()
            .flat_map(|segment| segment.bytes())
            .copied()
            .collect();
        let value = json::read(&text, Around::Document.limit())?;
        Ok(encode::value(env, &value))
    }
);

nif!(
    context_request_report_normal,
    context_request_report_dirty,
    |env, scheduler, context: ContextHandle, given: Of<'a, RequestOptions<'a>>| {
        scheduler.allow(context.get().request_cost())?;
        let context = given.context(context);
        let report = within_work(context.get().request_report(&given.options(scheduler)))?;
        let encoder = Encoder::new_copying(env);
        let list = encoder.list(report.iter().map(|change| encode_located(&encoder, change)));
        Ok(list)
    }
);

fn encode_located<'e>(encoder: &Encoder<'_, 'e>, located: &Located) -> Term<'e> {
    let env = encoder.env();
    let keys = [
        atoms::change(),
        atoms::from(),
        atoms::to(),
        atoms::iteration(),
        atoms::position(),
    ];
    let values = [
        located.change.what.atom().encode(env),
        located.change.from.as_str().encode(env),
        located.change.to.as_deref().encode(env),
        located.iteration.encode(env),
        located.position.encode(env),
    ];
    encoder.fields(&keys, &values)
}

nif!(
    context_to_prompt_normal,
    context_to_prompt_dirty,
    |env, scheduler, context: ContextHandle, mode: Worded<Prompt>| {
        scheduler.allow(context.get().request_cost())?;
        let prompt = context.get().to_prompt(mode);
        Ok(NewBinary::from_slice(env, prompt.as_bytes()).into())
    }
);

// The reasons why nothing can be sent.
nif!(
    context_unready_normal,
    context_unready_dirty,
    |env, scheduler, context: ContextHandle| {
        scheduler.allow(context.get().unready_cost())?;
        let reasons = context.get().unready();
        let reasons: Vec<Term<'a>> = reasons
            .iter()
            .map(|reason| match reason {
                Unready::NoMessages => atoms::no_messages().encode(env),
                Unready::LastMessageFromAssistant => atoms::assistant_last().encode(env),
                Unready::PendingToolCalls(ids) => {
                    let ids: Vec<&str> = ids.iter().map(|id| &**id).collect();
                    (atoms::pending_tool_calls(), ids).encode(env)
                }
            })
            .collect();
        Ok(reasons.encode(env))
    }
);
