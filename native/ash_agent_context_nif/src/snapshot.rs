//! Storage.

use ash_agent_context_core::{json, Changes, Context, Error, Trust, Value, NESTING};
use rustler::{Encoder as _, Env, Resource, ResourceArc, Term};

use crate::argument::{arguments, Document, Json, Lender};
use crate::error::NifError;
use crate::resource::note_freed;
use crate::to_term::{Bytes, Returned, ToTerm};

/// Text that a binary points into: a snapshot is not copied once more.
struct SnapshotText(Vec<u8>);

#[rustler::resource_impl]
impl Resource for SnapshotText {}

impl Drop for SnapshotText {
    fn drop(&mut self) {
        note_freed();
    }
}

/// The document as a term; whole since iteration 0.
pub fn dump(context: Lender<'_>, since: i64) -> Result<Value, NifError> {
    context.scheduler.allow(context.dump_cost(since))?;
    let text = match since {
        0 => context.to_snapshot(),
        since => context.delta(since)?,
    };
    Ok(json::read(&text, NESTING)?)
}

/// What a context has beyond another one.
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
    // It lives as long as the binary: an estimate that was far too large is not kept.
    if text.capacity() > text.len() / 4 * 5 {
        text.shrink_to_fit();
    }
    let owner = ResourceArc::new(SnapshotText(text));
    owner
        .make_binary(context.env, |owner| &owner.0)
        .encode(context.env)
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

/// What a store has to write that keeps the other context, or nothing yet.
pub fn changes(context: &Context, base: Option<&Context>) -> Changes {
    context.changes(base)
}

/// All iterations from the first one on that the other context has not.
pub fn changes_from(context: &Context, other: &Context) -> Vec<(u64, Bytes)> {
    documents(context.changes_from(other))
}

fn documents(iterations: Vec<(u64, Vec<u8>)>) -> Vec<(u64, Bytes)> {
    let documents = iterations
        .into_iter()
        .map(|(number, text)| (number, Bytes(text)));
    documents.collect()
}

impl Returned for Changes {
    // `{head | nil, updated_at, [{number, document}]}`
    fn returned(self, env: Env<'_>) -> Result<Term<'_>, NifError> {
        Ok((
            self.head.map(Bytes),
            self.updated_at,
            documents(self.iterations),
        )
            .to_term(env))
    }
}
