//! NIFs for requests: making them, explaining them, and making past ones again.

use ash_agent_context_core::{
    json, AccountRow, Accounting, Context, Cost, Deviation, DeviationCause, Dialect, Error, Fields,
    Forecast, KeptBytes, Known, Located, Map, Options, Prices, ReplayOutcome, ReplayRow,
    RequestChange, Segment, SentChange, SentPlace, Size, SystemRole, Time, Unready, Value, NESTING,
};
use rustler::{Encoder as _, NewBinary, Term};

use crate::argument::{arguments, field, Argument, Metadata, On};
use crate::atoms;
use crate::encode;
use crate::encode::SHARED;
use crate::error::NifError;
use crate::resource::Holder;
use crate::to_term::{maps, results, terms, Made, Maybe, ToTerm};

/// A normal scheduler encodes so many bytes in well under a millisecond.
const ENCODED: usize = 128 * 1024;

/// A normal scheduler looks at so many messages and pieces in well under a millisecond: 100 ns each.
const LOOKED_AT: usize = 2_000;

/// A request's options, see `AshAgent.Context.Requests`, with a limit on the bytes to encode that fits the scheduler.
pub struct RequestOptions<'a> {
    pub options: Options<'a>,
    interrupt: bool,
}

/// The fields beside the messages: a map, or the handle of those that were encoded before.
pub enum Fielded<'a> {
    Map(Map),
    Encoded(&'a Fields),
}

arguments! {
    Fielded<'a> = |term, scheduler| Ok(match term.is_ref() {
        true => Self::Encoded(Argument::read(term, scheduler)?),
        false => Self::Map(Metadata::read(term, scheduler)?.0.unwrap_or_default()),
    });
    SystemRole = |term, _scheduler| Self::from_name(term.decode()?).ok_or(NifError::BadArg);
    Options<'a> = |term, scheduler| {
        let dialect: Option<&str> = field(term, atoms::dialect(), scheduler)?;
        let response: Option<&str> = field(term, atoms::previous_response_id(), scheduler)?;
        let conversation: Option<&str> = field(term, atoms::conversation(), scheduler)?;
        let conversation = conversation.map(Known::Conversation);
        Ok(Self {
            model: field(term, atoms::model(), scheduler)?,
            thinking: field(term, atoms::thinking(), scheduler)?,
            system_role: field(term, atoms::system_role(), scheduler)?,
            cache: field(term, atoms::cache(), scheduler)?,
            cache_minimum: field(term, atoms::cache_minimum(), scheduler)?,
            from: field(term, atoms::since(), scheduler)?,
            max_result_bytes: field(term, atoms::max_result_bytes(), scheduler)?,
            dialect: dialect.and_then(Dialect::from_name),
            known: response.map(Known::Response).or(conversation).unwrap_or_default(),
            most: scheduler.limit(ENCODED),
            steps: scheduler.limit(LOOKED_AT),
            ..Self::new(field(term, atoms::provider(), scheduler)?)
        })
    };
    RequestOptions<'a> = |term, scheduler| Ok(Self {
        options: Argument::read(term, scheduler)?,
        interrupt: field(term, atoms::interrupt(), scheduler)?,
    });
}

impl RequestOptions<'_> {
    /// Returns the context to project, with pending calls interrupted if the options say so.
    fn lend<'a>(&self, context: On<'a, Context>) -> On<'a, Context> {
        let interrupted = self.interrupt.then(|| context.without_pending());
        match interrupted.flatten() {
            Some(interrupted) => On {
                handle: Holder::hold(interrupted),
                ..context
            },
            None => context,
        }
    }
}

pub fn encode<'a>(
    context: On<'a, Context>,
    given: RequestOptions<'a>,
    body: Fielded<'a>,
) -> Result<Term<'a>, NifError> {
    let options = &given.options;
    let cost = context.encode_cost(options).plus(match &body {
        Fielded::Encoded(fields) => Size::new(1, fields.count_bytes()).into(),
        Fielded::Map(_) => Cost::default(),
    });
    context.scheduler.allow(cost)?;
    let context = given.lend(context);
    let segments = match &body {
        Fielded::Encoded(fields) => context.encode_with(options, fields)?,
        Fielded::Map(body) => context.encode_request(options, body)?,
    };
    let encoder = context.encoder();
    let mut kept = Vec::with_capacity(segments.len());
    let shared = |segment| match segment {
        Segment::Kept(bytes) if bytes.bytes().len() >= SHARED => {
            kept.push(bytes);
            None
        }
        segment => Some(segment),
    };
    // Segments of a request are shared.
    let segments: Vec<_> = segments.into_iter().map(shared).collect();
    let env = context.env;
    let kept = Holder::hold(kept);
    let mut binaries = (0..kept.0.len())
        .map(|index| kept.make_binary(env, |kept| kept.0.get(index).map_or(&[], KeptBytes::bytes)));
    let list = segments.iter().map(|segment| match segment {
        None => binaries.next().encode(env),
        Some(Segment::Lent(bytes)) => encoder.binary(bytes),
        Some(segment) => NewBinary::from_slice(env, segment.bytes()).into(),
    });
    Ok(encoder.list(list))
}

/// Encodes the fields that many requests have.
pub fn read_fields(Metadata(body): Metadata) -> Result<Fields, Error> {
    Fields::new(&body.unwrap_or_default())
}

pub fn request(context: On<'_, Context>, given: RequestOptions<'_>) -> Result<Value, NifError> {
    let context = given.lend(context);
    let segments = context.encode_request(&given.options, &Map::default())?;
    let bytes = segments.iter().flat_map(|segment| segment.bytes());
    let text: Vec<u8> = bytes.copied().collect();
    Ok(json::read(&text, NESTING)?)
}

pub fn report(context: On<'_, Context>, given: RequestOptions<'_>) -> Result<Vec<Located>, Error> {
    given.lend(context).request_report(&given.options)
}

results! {
    Fields = |of, _env| Holder::hold(of);
}

terms! {
    // The terms for a reason why nothing can be sent.
    Unready = |of, env| match of {
        Self::NoMessages => atoms::no_messages().to_term(env),
        Self::LastMessageFromAssistant => atoms::assistant_last().to_term(env),
        Self::PendingToolCalls(ids) => (atoms::pending_tool_calls(), ids).to_term(env),
    };
}

pub fn account(
    context: On<'_, Context>,
    prices: Option<&Prices>,
    model: Option<&str>,
    since: u64,
) -> Result<Vec<AccountRow>, NifError> {
    let allow = |cost| context.scheduler.allow(cost);
    allow(context.account_cost(since))?;
    let accounting = Accounting {
        prices,
        model,
        since,
    };
    context.try_account(&accounting, allow)
}

/// Returns the context with a note of its next request's digest.
pub fn note_sent(context: On<'_, Context>, given: RequestOptions<'_>) -> Result<Context, NifError> {
    let options = &given.options;
    let cost = context.encode_cost(options).plus(context.asked_view_cost());
    context.scheduler.allow(cost)?;
    Ok(context.note_sent(options)?)
}

/// Returns the conversation as it was when an iteration's last request was made.
pub fn as_asked(context: &Context, number: i64) -> Option<Made> {
    let asked = context.as_asked(context.iteration(number)?, false)?;
    Some(asked.into())
}

pub fn forecast(
    context: On<'_, Context>,
    given: RequestOptions<'_>,
    prices: Option<&Prices>,
    at: Time,
) -> Result<Forecast, NifError> {
    let options = &given.options;
    let cost = context.encode_cost(options).times(2);
    let view = context.looks_cost().plus(context.asked_view_cost());
    context.scheduler.allow(cost.plus(view))?;
    let accounting = Accounting {
        prices,
        model: options.model,
        since: 0,
    };
    Ok(given.lend(context).forecast(options, &accounting, at)?)
}

/// Returns a map of facts for each failure, oldest first.
pub fn failures(context: On<'_, Context>) -> Vec<Term<'_>> {
    let env = context.env;
    let failures = context.failures().map(|(iteration, failure)| {
        let asked = failure.requested_at;
        let asked = asked.map(|at| (atoms::requested_at(), at.to_term(env)));
        let more = [
            (atoms::iteration(), iteration.to_term(env)),
            (atoms::at(), failure.at.to_term(env)),
        ];
        encode::with(failure.facts().to_term(env), more.into_iter().chain(asked))
    });
    failures.collect()
}

pub fn note_request(
    context: &Context,
    fields: Value,
    tools: Value,
    hashed: bool,
) -> Result<Context, Error> {
    match hashed {
        true => context.note_request_hashes(fields, tools),
        false => context.note_request(fields, tools),
    }
}

/// Returns the fields, the tools and the digest of an iteration's request.
pub fn request_note(
    context: &Context,
    number: i64,
) -> (Option<&Value>, Option<&Value>, Option<&str>) {
    let iteration = context.iteration(number);
    let noted = iteration.map_or([None; 2], |iteration| context.request_note(iteration));
    let [fields, tools] = noted.map(|noted| noted.map(|(_, value)| value));
    let sent = iteration.and_then(|iteration| context.sent_note(iteration));
    (fields, tools, sent)
}

/// Returns the conversation that an iteration's last request was made from, but under the view of the request before.
pub fn as_asked_before(context: &Context, number: i64) -> Option<Made> {
    let asked = context.as_asked(context.iteration(number)?, true)?;
    Some(asked.into())
}

/// Returns the differences of another context's view, each with its cause and the first iteration.
pub fn view_changes(
    context: On<'_, Context>,
    other: &Context,
) -> Result<Vec<RequestChange>, NifError> {
    let cost = context.view_cost().plus(other.view_cost());
    context.scheduler.allow(cost)?;
    Ok(context.view_changes(other))
}

maps! {
    ReplayRow = |of| {
        iteration, outcome: &of.outcome, cause: Maybe(find_deviation(of).map(|deviation| &deviation.cause)),
        place: Maybe(find_deviation(of).map(|deviation| &deviation.place)),
        change: Maybe(find_deviation(of).map(|deviation| &deviation.change)),
    }
}

const fn find_deviation(row: &ReplayRow) -> Option<&Deviation> {
    match &row.outcome {
        ReplayOutcome::Different(deviation) => Some(deviation),
        _ => None,
    }
}

terms! {
    ReplayOutcome = |of, env| match of {
        Self::Same => atoms::same(),
        Self::Unnoted => atoms::unnoted(),
        Self::OtherPrompt => atoms::other_prompt(),
        Self::OtherMasks => atoms::other_masks(),
        Self::Follows => atoms::follows(),
        Self::Different(_) => atoms::different(),
    }.to_term(env);
    DeviationCause = |of, env| match of {
        Self::View => atoms::view().to_term(env),
        Self::Version(version) => (atoms::version(), version).to_term(env),
        Self::Log => atoms::log().to_term(env),
    };
    SentChange = |of, env| match of {
        Self::Other => atoms::other(),
        Self::Dropped => atoms::dropped_message(),
        Self::Added => atoms::added_message(),
    }.to_term(env);
    SentPlace = |of, env| (of.iteration, of.position, &of.call).to_term(env);
}
