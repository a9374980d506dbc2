//! The NIFs of storage.

use ash_agent_context_core::{json, Context, NESTING};
use rustler::{Binary, Encoder as _, Env, NewBinary, Resource, ResourceArc, Term};

use crate::argument::{Document, Of, Trusted};
use crate::decode::Number;
use crate::encode;
use crate::nif::{change, nif};
use crate::resource::{answer, note_freed, ContextHandle};

/// Text that a binary points into: a snapshot is not copied once more.
struct SnapshotText(Vec<u8>);

#[rustler::resource_impl]
impl Resource for SnapshotText {}

impl Drop for SnapshotText {
    fn drop(&mut self) {
        note_freed();
    }
}

// The document as a term; whole since iteration 0.
nif!(
    snapshot_dump_normal,
    snapshot_dump_dirty,
    |env, scheduler, context: ContextHandle, since: Number| {
        let context = context.get();
        scheduler.allow(context.dump_cost(since))?;
        let text = match since {
            0 => context.to_snapshot(),
            since => context.delta(since)?,
        };
        Ok(encode::value(env, &json::read(&text, NESTING)?))
    }
);

// Returns what a context has beyond another one.
nif!(
    snapshot_dump_beside_normal,
    snapshot_dump_beside_dirty,
    |env, scheduler, context: ContextHandle, base: ContextHandle| {
        // To compare the two may take as long as to write one of them.
        scheduler.allow(context.get().whole_cost())?;
        let text = context.get().delta_beside(base.get());
        Ok(encode::value(env, &json::read(&text, NESTING)?))
    }
);

nif!(
    snapshot_load_normal,
    snapshot_load_dirty,
    |env, scheduler, document: Document, trust: Trusted| {
        scheduler.allow(Context::load_cost(&document))?;
        Ok(answer(env, Context::load_with(document, trust)?))
    }
);

change!(
    snapshot_load_delta_normal,
    snapshot_load_delta_dirty,
    |context, delta: Document, trust: Trusted| (
        context.load_delta_cost(&delta),
        context.load_delta_with(delta, trust)
    )
);

nif!(
    snapshot_encode_normal,
    snapshot_encode_dirty,
    |env, scheduler, context: ContextHandle| {
        scheduler.allow(context.get().whole_cost())?;
        let mut text = context.get().to_snapshot();
        // It lives as long as the binary: an estimate that was far too large is not kept.
        if text.capacity() > text.len() / 4 * 5 {
            text.shrink_to_fit();
        }
        let owner = ResourceArc::new(SnapshotText(text));
        Ok(owner.make_binary(env, |owner| &owner.0).to_term(env))
    }
);

nif!(
    snapshot_decode_normal,
    snapshot_decode_dirty,
    |env, scheduler, text: Binary<'a>, trust: Trusted| {
        scheduler.allow(Context::from_snapshot_cost(&text))?;
        Ok(answer(
            env,
            Context::from_snapshot_with(text.as_slice(), trust)?,
        ))
    }
);

// `{head | nil, updated_at, [{number, document}]}`: what a store has to write that keeps the other context, or
// nothing yet.
nif!(
    snapshot_changes_normal,
    snapshot_changes_dirty,
    |env, scheduler, context: ContextHandle, base: Of<'a, Option<ContextHandle>>| {
        let context = context.get();
        scheduler.allow(context.whole_cost())?;
        let changes = context.changes(base.as_ref().map(|base| base.get()));
        let head = changes.head.map(|head| binary(env, &head));
        Ok((
            head,
            changes.updated_at,
            documents(env, &changes.iterations),
        )
            .encode(env))
    }
);

// `[{number, document}]`: all iterations from the first one on that the other context has not.
nif!(
    snapshot_changes_from_normal,
    snapshot_changes_from_dirty,
    |env, scheduler, context: ContextHandle, base: ContextHandle| {
        scheduler.allow(context.get().whole_cost())?;
        Ok(documents(env, &context.get().changes_from(base.get())))
    }
);

fn documents<'a>(env: Env<'a>, iterations: &[(u64, Vec<u8>)]) -> Term<'a> {
    let documents = iterations
        .iter()
        .map(|(number, text)| (*number, binary(env, text)));
    documents.collect::<Vec<_>>().encode(env)
}

fn binary<'a>(env: Env<'a>, text: &[u8]) -> Term<'a> {
    NewBinary::from_slice(env, text).into()
}
