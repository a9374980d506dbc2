//! The NIFs of storage.

use ash_agent_context_core::{json, Context, Trust, NESTING};
use rustler::{Atom, Binary, Encoder as _, Env, NewBinary, Resource, ResourceArc, Term};

use crate::decode::{self, Around, Number};
use crate::encode;
use crate::error::NifError;
use crate::resource::{answer, freed, Handle};
use crate::scheduler::{nif, Scheduler};

/// Text that a binary points into: a snapshot is not copied once more.
struct Text(Vec<u8>);

#[rustler::resource_impl]
impl Resource for Text {}

impl Drop for Text {
    fn drop(&mut self) {
        freed();
    }
}

type Reply<'a> = Result<Term<'a>, NifError>;

nif!(snapshot_dump_normal, snapshot_dump_dirty(context: Handle, since: Number) => dump);
nif!(snapshot_dump_beside_normal, snapshot_dump_beside_dirty(context: Handle, base: Handle) => dump_beside);
nif!(snapshot_load_normal, snapshot_load_dirty(document: Term<'a>, trust: Term<'a>) => load);
nif!(snapshot_load_delta_normal, snapshot_load_delta_dirty(context: Handle, delta: Term<'a>, trust: Term<'a>) => load_delta);
nif!(snapshot_encode_normal, snapshot_encode_dirty(context: Handle) => encode);
nif!(snapshot_changes_normal, snapshot_changes_dirty(context: Handle, base: Term<'a>) => changes);
nif!(snapshot_changes_from_normal, snapshot_changes_from_dirty(context: Handle, base: Handle) => changes_from);
nif!(snapshot_decode_normal, snapshot_decode_dirty(text: Binary<'a>, trust: Term<'a>) => decode);

/// `{approvals, structs}`
pub fn trust(term: Term<'_>) -> Result<Trust, NifError> {
    let env = term.get_env();
    let (approvals, structs): (Atom, Atom) = term.decode()?;
    let name = |atom: Atom| atom.to_term(env).atom_to_string();
    Trust::from_names(&name(approvals)?, &name(structs)?).ok_or(NifError::BadArg)
}

/// The document as a term; whole since iteration 0.
fn dump<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle, since: Number) -> Reply<'a> {
    let context = context.get();
    scheduler.allow(context.dump_cost(since.0))?;
    let text = match since.0 {
        0 => context.to_snapshot(),
        since => context.delta(since)?,
    };
    Ok(encode::value(env, &json::read(&text, NESTING)?))
}

/// What a context has beyond another one.
fn dump_beside<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle, base: Handle) -> Reply<'a> {
    // To compare the two may take as long as to write one of them.
    scheduler.allow(context.get().whole_cost())?;
    let text = context.get().delta_beside(base.get());
    Ok(encode::value(env, &json::read(&text, NESTING)?))
}

fn load<'a>(env: Env<'a>, scheduler: Scheduler, document: Term<'a>, trust: Term<'a>) -> Reply<'a> {
    let trust = self::trust(trust)?;
    let document = decode::value(document, Around::Document, scheduler)?;
    scheduler.allow(Context::load_cost(&document))?;
    Ok(answer(env, Context::load_with(document, trust)?))
}

fn load_delta<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    delta: Term<'a>,
    trust: Term<'a>,
) -> Reply<'a> {
    let trust = self::trust(trust)?;
    let delta = decode::value(delta, Around::Document, scheduler)?;
    scheduler.allow(context.get().load_delta_cost(&delta))?;
    Ok(answer(env, context.get().load_delta_with(delta, trust)?))
}

fn encode<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle) -> Reply<'a> {
    scheduler.allow(context.get().whole_cost())?;
    let mut text = context.get().to_snapshot();
    // It lives as long as the binary: an estimate that was far too large is not kept.
    if text.capacity() > text.len() / 4 * 5 {
        text.shrink_to_fit();
    }
    let owner = ResourceArc::new(Text(text));
    Ok(owner.make_binary(env, |owner| &owner.0).to_term(env))
}

fn decode<'a>(env: Env<'a>, scheduler: Scheduler, text: Binary<'a>, trust: Term<'a>) -> Reply<'a> {
    let trust = self::trust(trust)?;
    scheduler.allow(Context::from_snapshot_cost(&text))?;
    Ok(answer(
        env,
        Context::from_snapshot_with(text.as_slice(), trust)?,
    ))
}

/// `{head | nil, updated_at, [{number, document}]}`: what a store has to write that keeps the other context, or
/// nothing yet.
fn changes<'a>(env: Env<'a>, scheduler: Scheduler, context: Handle, base: Term<'a>) -> Reply<'a> {
    let context = context.get();
    scheduler.allow(context.whole_cost())?;
    let base: Option<Handle> = base.decode()?;
    let changes = context.changes(base.as_ref().map(|base| base.get()));
    let head = changes.head.map(|head| binary(env, &head));
    Ok((
        head,
        changes.updated_at,
        documents(env, &changes.iterations),
    )
        .encode(env))
}

/// `[{number, document}]`: all iterations from the first one on that the other context has not.
fn changes_from<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    context: Handle,
    base: Handle,
) -> Reply<'a> {
    scheduler.allow(context.get().whole_cost())?;
    Ok(documents(env, &context.get().changes_from(base.get())))
}

fn documents<'a>(env: Env<'a>, iterations: &[(u64, Vec<u8>)]) -> Term<'a> {
    let documents = iterations
        .iter()
        .map(|(number, text)| (*number, binary(env, text)));
    documents.collect::<Vec<_>>().encode(env)
}

fn binary<'a>(env: Env<'a>, text: &[u8]) -> Term<'a> {
    NewBinary::from_slice(env, text).into()
}
