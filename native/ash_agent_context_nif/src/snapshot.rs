//! The NIFs of storage.

use ash_agent_context_core::{join_rows, json, put_media_back, take_media, text_cost, BranchRow};
use ash_agent_context_core::{Context, NESTING};
use rustler::{Binary, Encoder as _, Env, NewBinary, Resource, ResourceArc, Term};

use crate::argument::{Document, Of, Trusted};
use crate::decode::Number;
use crate::encode;
use crate::error::NifError;
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

type Row<'a> = (
    u64,
    Option<u64>,
    Option<u64>,
    &'a str,
    Option<Binary<'a>>,
    Binary<'a>,
    Option<Binary<'a>>,
);

// The document of rows: of each branch its number, that of its base, its first iteration, its time, label, head and iterations.
nif!(snapshot_join_normal, snapshot_join_dirty, |env,
                                                 scheduler,
                                                 chat: Of<
    'a,
    Option<Binary<'a>>,
>,
                                                 rows: Of<
    'a,
    Vec<Row<'a>>,
>| {
    let rows = rows.iter().map(|row| BranchRow {
        number: row.0,
        base: row.1,
        since: row.2,
        updated_at: row.3,
        label: row.4.as_ref().map(Binary::as_slice),
        head: row.5.as_slice(),
        iterations: row.6.as_ref().map(Binary::as_slice).unwrap_or_default(),
    });
    let rows: Vec<BranchRow<'_>> = rows.collect();
    for row in &rows {
        scheduler.allow(text_cost(row.iterations))?;
    }
    let chat = chat.as_ref().map(Binary::as_slice);
    Ok(binary(env, &join_rows(chat, &rows)?))
});

// `{text, [{digest, id, base64}]}`: a text without its media, and those that are not among the known ones.
nif!(
    media_take_normal,
    media_take_dirty,
    |env, scheduler, text: Binary<'a>, known: Term<'a>| {
        scheduler.allow(text_cost(&text))?;
        let id = |digest: &[u8]| known.map_get(binary(env, digest)).ok()?.decode().ok();
        let (taken, media) = take_media(text.as_slice(), id);
        let media = media.iter().map(|media| {
            let digest = binary(env, &media.digest);
            (digest, media.id.as_str(), binary(env, media.data))
        });
        Ok((binary(env, &taken), media.collect::<Vec<_>>()).encode(env))
    }
);

// The reverse, with the base64 of each id, or with one for all.
nif!(
    media_put_back_normal,
    media_put_back_dirty,
    |env, scheduler, text: Binary<'a>, data: Term<'a>| {
        scheduler.allow(text_cost(&text))?;
        let find = |id: &str| -> Option<&'a [u8]> {
            let found = data.map_get(id).unwrap_or(data);
            Some(found.decode::<Binary<'a>>().ok()?.as_slice())
        };
        match put_media_back(text.as_slice(), find) {
            Some(text) => Ok(binary(env, &text)),
            None => Err(NifError::BadArg),
        }
    }
);
