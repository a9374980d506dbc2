//! NIFs for storage: snapshots, chats, foreign histories and JSON.

use ash_agent_context_core::{
    join_rows, json, put_media_back as put_back, read_terms, take_media as take, write_terms,
    Branch, BranchRow, Changes, Chat, Context, Cost, Defaults, Error, Imported, LoadedBranch,
    LoadedChat, Map, Provider, Structs, Time, Trust, Value, NESTING,
};
use rustler::{Encoder as _, Env, Resource, ResourceArc, Term};

use crate::argument::{arguments, Argument, Body, Document, Id, Json, Lender, Metadata};
use crate::decode;
use crate::error::NifError;
use crate::resource::note_freed;
use crate::scheduler::Scheduler;
use crate::to_term::{Bytes, Made, Returned, ToTerm};

/// A text that a binary points into, so that a snapshot is not copied once more.
struct SnapshotText(Vec<u8>);

#[rustler::resource_impl]
impl Resource for SnapshotText {}

impl Drop for SnapshotText {
    fn drop(&mut self) {
        note_freed();
    }
}

/// Returns the document as a term; all of it since iteration 0.
pub fn dump(context: Lender<'_>, since: i64) -> Result<Value, NifError> {
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

pub fn load(Document(document): Document, trust: Trust) -> Result<Context, Error> {
    Context::load_with(document, trust)
}

pub fn load_delta(
    context: Lender<'_>,
    Document(delta): Document,
    trust: Trust,
) -> Result<Context, NifError> {
    context.scheduler.allow(context.load_delta_size(&delta))?;
    Ok(context.load_delta_with(delta, trust)?)
}

pub fn encode(context: Lender<'_>) -> Term<'_> {
    let mut text = context.to_snapshot();
    // The text lives as long as the binary, so memory from a far too large estimate is given back.
    if text.capacity() > text.len() / 4 * 5 {
        text.shrink_to_fit();
    }
    let owner = ResourceArc::new(SnapshotText(text));
    let binary = owner.make_binary(context.env, |owner| &owner.0);
    binary.encode(context.env)
}

/// A snapshot.
pub struct Snapshot<'a>(&'a [u8]);

arguments! {
    Snapshot<'a> = |term, scheduler| {
        let Json(text) = Json::read(term, scheduler)?;
        scheduler.allow(Context::from_snapshot_cost(text))?;
        Ok(Self(text))
    };
}

pub fn decode(Snapshot(text): Snapshot<'_>, trust: Trust) -> Result<Context, Error> {
    Context::from_snapshot_with(text, trust)
}

/// Returns the parts to write for a store that has the other context, or nothing yet.
pub fn changes(context: &Context, base: Option<&Context>) -> Changes {
    context.changes(base)
}

/// Returns all iterations from the first one on that the other context does not have.
pub fn changes_from(context: &Context, other: &Context) -> Vec<(u64, Bytes)> {
    documents(context.changes_from(other))
}

/// Rows of branches, each `{number, base | nil, since | nil, updated_at, label | nil, head, iterations | nil}`.
pub struct Rows<'a>(Vec<BranchRow<'a>>);

arguments! {
    Rows<'a> = |term, scheduler| {
        type Given<'a> = (u64, Option<u64>, Option<u64>, &'a str, Option<&'a [u8]>, &'a [u8], Option<&'a [u8]>);
        let rows: Vec<Given<'a>> = Argument::read(term, scheduler)?;
        let rows = rows.into_iter().map(|(number, base, since, updated_at, label, head, iterations)| {
            let iterations = iterations.unwrap_or_default();
            BranchRow { number, base, since, updated_at, label, head, iterations }
        });
        Ok(Self(rows.collect()))
    };
}

/// Joins rows to a document.
pub fn join(chat: Option<&[u8]>, Rows(rows): Rows<'_>) -> Result<Bytes, Error> {
    join_rows(chat, &rows).map(Bytes)
}

/// Returns `{text, [{digest, id, base64}]}`: a text without its media, and those that are not among the known ones.
pub fn take_media<'a>(Json(text): Json<'a>, known: Term<'a>) -> Term<'a> {
    let env = known.get_env();
    let id = |digest: &[u8]| {
        let digest = Bytes(digest.to_vec()).to_term(env);
        known.map_get(digest).ok()?.decode().ok()
    };
    let (taken, media) = take(text, id);
    let media = media.iter().map(|media| {
        let (digest, data) = (media.digest.to_vec(), media.data.to_vec());
        (Bytes(digest), media.id.as_str(), Bytes(data))
    });
    (Bytes(taken), media.collect::<Vec<_>>()).to_term(env)
}

/// Puts media back into a text, with the base64 of each id, or with one for all.
pub fn put_media_back<'a>(Json(text): Json<'a>, data: Term<'a>) -> Result<Bytes, NifError> {
    let find = |id: &str| <&[u8]>::read(data.map_get(id).unwrap_or(data), Scheduler::Dirty).ok();
    put_back(text, find).map(Bytes).ok_or(NifError::BadArg)
}

fn documents(iterations: Vec<(u64, Vec<u8>)>) -> Vec<(u64, Bytes)> {
    let documents = iterations.into_iter();
    documents
        .map(|(number, text)| (number, Bytes(text)))
        .collect()
}

impl Returned for Changes {
    // `{head | nil, updated_at, [{number, document}]}`
    fn returned(self, env: Env<'_>) -> Result<Term<'_>, NifError> {
        let head = self.head.map(Bytes);
        Ok((head, self.updated_at, documents(self.iterations)).to_term(env))
    }
}

/// The map of a chat's own fields, for `ChatContext`.
pub struct Head(Map);

/// Fields that other versions wrote.
pub struct Extra(Map);

/// Branches, each `{name, number, origin | nil, extra, context}`.
pub struct Branches<'a>(Vec<Branch<'a>>);

arguments! {
    Head = |term, scheduler| map(decode::value(term, decode::ATTRIBUTES, scheduler)?).map(Self);
    Extra = |term, scheduler| map(decode::json(term, NESTING, scheduler)?).map(Self);
    Branches<'a> = |term, scheduler| {
        type Given<'a> = (Value, u64, Option<u64>, Extra, &'a Context);
        let branches: Vec<Given<'a>> = Argument::read(term, scheduler)?;
        // Comparing two branches may take as long as writing one of them.
        let sizes = branches.iter().map(|(.., context)| Cost::from(context.size()));
        scheduler.allow(sizes.fold(Cost::default(), Cost::plus))?;
        let branches = branches.into_iter().map(|(name, number, origin, Extra(extra), context)| {
            Branch { name, number, origin, extra, context }
        });
        Ok(Self(branches.collect()))
    };
}

fn map(value: Value) -> Result<Map, NifError> {
    match value {
        Value::Map(map) => Ok(map),
        _ => Err(NifError::BadArg),
    }
}

fn chat<'a>(
    Head(head): Head,
    Extra(extra): Extra,
    Extra(config_extra): Extra,
    Branches(branches): Branches<'a>,
) -> Chat<'a> {
    Chat {
        head,
        extra,
        config_extra,
        branches,
    }
}

pub fn dump_chat(
    head: Head,
    extra: Extra,
    config: Extra,
    branches: Branches<'_>,
) -> Result<Value, Error> {
    chat(head, extra, config, branches).dump()
}

pub fn encode_chat(
    head: Head,
    extra: Extra,
    config: Extra,
    branches: Branches<'_>,
) -> Result<Bytes, Error> {
    chat(head, extra, config, branches).to_snapshot().map(Bytes)
}

/// Returns `{head, extra, config_extra, [{name, base | nil, context, extra}]}`.
pub fn load_chat(
    document: Nested,
    config_keys: Vec<&str>,
    trust: Trust,
) -> Result<LoadedChat, Error> {
    LoadedChat::read(document.0, &config_keys, trust)
}

/// A dumped chat.
pub struct Nested(Value);

arguments! {
    Nested = |term, scheduler| decode::json(term, decode::CHAT, scheduler).map(Self);
}

impl Returned for LoadedChat {
    fn returned(self, env: Env<'_>) -> Result<Term<'_>, NifError> {
        let branch = |branch: LoadedBranch| {
            let context = Made::from(branch.context);
            (branch.name, branch.base, context, branch.extra).to_term(env)
        };
        let branches: Vec<_> = self.branches.into_iter().map(branch).collect();
        Ok((self.head, self.extra, self.config_extra, branches).to_term(env))
    }
}

pub fn seed(
    parent: &Context,
    first: i64,
    last: i64,
    Id(id): Id,
    at: Time,
) -> Result<Context, Error> {
    parent.seed(first, last, &id, at)
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

impl Returned for Imported {
    fn returned(self, env: Env<'_>) -> Result<Term<'_>, NifError> {
        Ok((Made::from(self.context), self.repairs, self.rest).to_term(env))
    }
}

pub fn decode_json(Json(text): Json<'_>) -> Result<Value, Error> {
    json::read(text, NESTING)
}

pub fn encode_json(term: Value) -> String {
    json::write(&term)
}

/// Writes terms that JSON lacks as stored conversations have them.
pub fn encode_terms(Metadata(terms): Metadata) -> Bytes {
    Bytes(write_terms(&terms.unwrap_or_default()))
}

pub fn decode_terms(Json(text): Json<'_>) -> Result<Map, Error> {
    read_terms(text, Structs::Keep)
}
