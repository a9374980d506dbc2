//! The NIFs of requests.

use ash_agent_context_core::{
    json, Dialect, Error, KeptBytes, Known, Located, Options, Prompt, Provider, Segment,
    SystemRole, Thinking, Unready,
};
use rustler::{Atom, Encoder as _, Env, NewBinary, Resource, ResourceArc, Term};

use crate::atoms;
use crate::decode::{self, Around, Number};
use crate::encode::{self, Encoder, SHARED};
use crate::error::NifError;
use crate::resource::{ContextResource, Handle};
use crate::scheduler::{nif, Scheduler};
use crate::words::Word;

type Reply<'a> = Result<Term<'a>, NifError>;

nif!(context_encode_request_normal, context_encode_request_dirty(context: Handle, options: Term<'a>, body: Term<'a>) => encode_request);
nif!(context_request_normal, context_request_dirty(context: Handle, options: Term<'a>) => request);
nif!(context_request_report_normal, context_request_report_dirty(context: Handle, options: Term<'a>) => request_report);
nif!(context_to_prompt_normal, context_to_prompt_dirty(context: Handle, mode: Atom) => to_prompt);
nif!(context_unready_normal, context_unready_dirty(context: Handle) => unready);

/// Bytes that a normal scheduler encodes in well under a millisecond.
const ENCODED: usize = 128 * 1024;

/// Messages and pieces that a normal scheduler looks at in well under a millisecond: 100 ns each.
const LOOKED_AT: usize = 2_000;

/// `{provider, model | nil, thinking, system_role, cache?,
/// {from | nil, max_result_bytes | nil, dialect | nil, {response?, id} | nil}, interrupt?}`
pub struct Given {
    provider: Provider,
    model: Option<String>,
    thinking: Thinking,
    system_role: SystemRole,
    cache: bool,
    from: Option<u64>,
    interrupt: bool,
    max_result_bytes: Option<usize>,
    dialect: Option<Dialect>,
    /// Whether it is a response's, and the id.
    known: Option<(bool, String)>,
}

/// A request's options as they come.
type Terms = (
    Atom,
    Option<String>,
    Atom,
    String,
    bool,
    (
        Option<Number>,
        Option<Number>,
        Option<String>,
        Option<(bool, String)>,
    ),
    bool,
);

impl Given {
    /// Reads them.
    pub fn decode(term: Term<'_>) -> Result<Self, NifError> {
        let (
            provider,
            model,
            thinking,
            system_role,
            cache,
            (from, most, dialect, known),
            interrupt,
        ): Terms = term.decode()?;
        Ok(Self {
            provider: Provider::of(provider)?,
            model,
            thinking: Thinking::of(thinking)?,
            system_role: SystemRole::from_name(&system_role).ok_or(NifError::BadArg)?,
            cache,
            from: from.map(|Number(from)| u64::try_from(from).unwrap_or(0)),
            interrupt,
            dialect: dialect.as_deref().and_then(Dialect::from_name),
            known,
            max_result_bytes: most.map(|Number(most)| usize::try_from(most).unwrap_or(0)),
        })
    }

    /// The options, with as much to encode as fits the scheduler.
    pub fn options(&self, scheduler: Scheduler) -> Options<'_> {
        Options {
            model: self.model.as_deref(),
            thinking: self.thinking,
            system_role: self.system_role,
            cache: self.cache,
            from: self.from,
            max_result_bytes: self.max_result_bytes,
            dialect: self.dialect,
            known: match &self.known {
                None => Known::Nothing,
                Some((true, id)) => Known::Response(id),
                Some((false, id)) => Known::Conversation(id),
            },
            most: scheduler.limit(ENCODED),
            steps: scheduler.limit(LOOKED_AT),
            ..Options::new(self.provider)
        }
    }

    /// The context to project, with pending calls interrupted where that is wanted.
    fn context(&self, context: Handle) -> Handle {
        let interrupted = self.interrupt.then(|| context.get().without_pending());
        interrupted.flatten().map_or(context, ContextResource::wrap)
    }
}

/// The scheduler is told by what has to be encoded: everything else is cheap.
fn within_work<T>(result: Result<T, Error>) -> Result<T, NifError> {
    result.map_err(|error| match error {
        Error::TooMuchWork => NifError::Dirty,
        other => NifError::Core(other),
    })
}

fn encode_request<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    options: Term<'a>,
    body: Term<'a>,
) -> Reply<'a> {
    let given = Given::decode(options)?;
    scheduler.allow(context.get().encode_cost(&given.options(scheduler)))?;
    let body = decode::metadata(body, scheduler)?.unwrap_or_default();
    let context = given.context(context);
    let options = given.options(scheduler);
    let segments = within_work(context.get().encode_request(&options, &body))?;
    let encoder = Encoder::sharing(env, &context);
    let mut kept = Vec::with_capacity(segments.len());
    let shared = |segment| match segment {
        Segment::Kept(bytes) if bytes.bytes().len() >= SHARED => {
            kept.push(bytes);
            None
        }
        segment => Some(segment),
    };
    // What is nothing here is shared.
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

/// What the binaries of a request point into, for as long as one of them is used.
struct KeptResource(Vec<KeptBytes>);

#[rustler::resource_impl]
impl Resource for KeptResource {}

impl KeptResource {
    fn bytes(&self, index: usize) -> &[u8] {
        self.0.get(index).map(KeptBytes::bytes).unwrap_or_default()
    }
}

fn request<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    options: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(context.get().request_cost())?;
    let given = Given::decode(options)?;
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

fn request_report<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    options: Term<'a>,
) -> Reply<'a> {
    scheduler.allow(context.get().request_cost())?;
    let given = Given::decode(options)?;
    let context = given.context(context);
    let report = within_work(context.get().request_report(&given.options(scheduler)))?;
    let encoder = Encoder::copying(env);
    let list = encoder.list(report.iter().map(|change| located(&encoder, change)));
    Ok(list)
}

fn located<'e>(encoder: &Encoder<'_, 'e>, located: &Located) -> Term<'e> {
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

fn to_prompt<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle, mode: Atom) -> Reply<'a> {
    scheduler.allow(context.get().request_cost())?;
    let prompt = context.get().to_prompt(Prompt::of(mode)?);
    Ok(NewBinary::from_slice(env, prompt.as_bytes()).into())
}

/// The reasons why nothing can be sent.
fn unready<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle) -> Reply<'a> {
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
