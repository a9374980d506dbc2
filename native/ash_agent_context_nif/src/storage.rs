//! NIFs for storage: snapshots, chats, foreign histories and JSON.

use ash_agent_context_core::{
    json, put_media_back as put_back, read_terms, take_media as take, write_terms, Branch,
    BranchRow, Changes, Chat, Context, Cost, Defaults, Error, Imported, LoadedBranch, LoadedChat,
    Map, Provider, Structs, Time, Trust, Value, NESTING,
};
use rustler::{Encoder as _, Term};

use crate::argument::{arguments, elements, Argument, Body, Document, Id, Json, Metadata, On};
use crate::decode;
use crate::error::NifError;
use crate::resource::Holder;
use crate::scheduler::Scheduler;
use crate::to_term::{results, Made, ToTerm};

/// Returns the document as a term; all of it since iteration 0.
pub fn dump(context: On<'_, Context>, since: i64) -> Result<Value, NifError> {
    context.scheduler.allow(context.dump_cost(since))?;
    let text = match since {
        0 => context.to_snapshot(),
        since => context.delta(since)?,
    };
    Ok(json::read(&text, NESTING)?)
}

/// Returns the parts that a context has beyond another one.
pub fn dump_beside(context: &Context, other: &Context) -> Result<Value, Error> {
    json::read(&context.delta_beside(other), NESTING)
}

pub fn load_delta(
    context: On<'_, Context>,
    Document(delta): Document,
    trust: Trust,
) -> Result<Context, NifError> {
    context.scheduler.allow(context.load_delta_size(&delta))?;
    Ok(context.load_delta_with(delta, trust)?)
}

pub fn encode(context: On<'_, Context>) -> Term<'_> {
    let mut text = context.to_snapshot();
    // The text lives as long as the binary, so memory from a far too large estimate is given back.
    if text.capacity() > text.len() / 4 * 5 {
        text.shrink_to_fit();
    }
    let owner = Holder::hold(text);
    let binary = owner.make_binary(context.env, |owner| owner.0.as_slice());
    binary.encode(context.env)
}

/// A snapshot.
pub struct Snapshot<'a>(pub &'a [u8]);

arguments! {
    Snapshot<'a> = |term, scheduler| {
        let Json(text) = Json::read(term, scheduler)?;
        scheduler.allow(Context::from_snapshot_cost(text))?;
        Ok(Self(text))
    };
}

elements! {
    BranchRow<'a> { number, base, since, updated_at, label, head, iterations }
    Branch<'a> { name, number, origin, extra, context }
}

/// Rows of branches, each `{number, base | nil, since | nil, updated_at, label | nil, head, iterations | nil}`.
pub type Rows<'a> = Vec<BranchRow<'a>>;

/// Returns `{text, [{digest, id, base64}]}`: a text without its media, and those that are not among the known ones.
pub fn take_media<'a>(Json(text): Json<'a>, known: Term<'a>) -> Term<'a> {
    let env = known.get_env();
    let id = |digest: &[u8]| {
        let digest = digest.to_term(env);
        known.map_get(digest).ok()?.decode().ok()
    };
    let (taken, media) = take(text, id);
    let media = media
        .iter()
        .map(|media| (media.digest.as_slice(), &media.id, media.data));
    (taken, media.collect::<Vec<_>>()).to_term(env)
}

/// Puts media back into a text, with the base64 of each id, or with one for all.
pub fn put_media_back<'a>(Json(text): Json<'a>, data: Term<'a>) -> Result<Vec<u8>, NifError> {
    let find = |id: &str| <&[u8]>::read(data.map_get(id).unwrap_or(data), Scheduler::Dirty).ok();
    put_back(text, find).ok_or(NifError::BadArg)
}

results! {
    // `{head | nil, updated_at, [{number, document}]}`
    Changes = |of, _env| (of.head, of.updated_at, of.iterations);
    // `{context, repairs, rest}`
    Imported = |of, _env| (Made::from(of.context), of.repairs, of.rest);
    // `{head, extra, config_extra, [{name, base | nil, context, extra}]}`
    LoadedChat = |of, _env| {
        let branch = |of: LoadedBranch| (of.name, of.base, Made::from(of.context), of.extra);
        let branches: Vec<_> = of.branches.into_iter().map(branch).collect();
        (of.head, of.extra, of.config_extra, branches)
    };
}

/// The map of a chat's own fields, for `ChatContext`.
struct Head(Map);

/// A dumped chat.
pub struct Nested(pub Value);

/// The names of a configuration's fields.
pub type Names<'a> = Vec<&'a str>;

arguments! {
    Head = |term, scheduler| map(decode::value(term, decode::ATTRIBUTES, scheduler)?).map(Self);
    // Fields that other versions wrote.
    Map = |term, scheduler| map(decode::json(term, NESTING, scheduler)?);
    // `{head, extra, config_extra, branches}`
    Chat<'a> = |term, scheduler| {
        let (Head(head), extra, config_extra, branches) = Argument::read(term, scheduler)?;
        let chat = Self { head, extra, config_extra, branches };
        // Comparing two branches may take as long as writing one of them.
        let sizes = chat.branches.iter().map(|branch| Cost::from(branch.context.size()));
        scheduler.allow(sizes.fold(Cost::default(), Cost::plus))?;
        Ok(chat)
    };
    Nested = |term, scheduler| decode::json(term, decode::CHAT, scheduler).map(Self);
}

fn map(value: Value) -> Result<Map, NifError> {
    match value {
        Value::Map(map) => Ok(map),
        _ => Err(NifError::BadArg),
    }
}

pub fn import_request(
    Body(body): Body,
    provider: Provider,
    Id(id): Id,
    at: Time,
) -> Result<Imported, Error> {
    Context::from_request(body, provider, Defaults { id: &id, at })
}

pub fn import_messages(Body(list): Body, Id(id): Id, at: Time) -> Result<Imported, Error> {
    Context::from_messages(list, Defaults { id: &id, at })
}

pub fn decode_json(Json(text): Json<'_>) -> Result<Value, Error> {
    json::read_foreign(text, NESTING)
}

/// Writes terms that JSON lacks as stored conversations have them.
pub fn encode_terms(Metadata(terms): Metadata) -> Vec<u8> {
    write_terms(&terms.unwrap_or_default())
}

pub fn decode_terms(Json(text): Json<'_>) -> Result<Map, Error> {
    read_terms(text, Structs::Keep)
}
