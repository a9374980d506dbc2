//! The NIFs of import.

use ash_agent_context_core::{Context, Defaults, Imported, Provider, Repair, Value};
use rustler::{Atom, Encoder as _, Env, Term};

use crate::atoms;
use crate::clock;
use crate::decode::{self, Around};
use crate::encode::{self, Encoder, Fields};
use crate::error::NifError;
use crate::resource::answer;
use crate::scheduler::{nif, Scheduler};
use crate::words::Word;

type Reply<'a> = Result<Term<'a>, NifError>;

nif!(import_request_normal, import_request_dirty(body: Term<'a>, provider: Atom, id: Term<'a>, at: Term<'a>) => request);
nif!(import_atif_normal, import_atif_dirty(document: Term<'a>, id: Term<'a>, at: Term<'a>) => atif);
nif!(import_messages_normal, import_messages_dirty(list: Term<'a>, id: Term<'a>, at: Term<'a>) => messages);

fn request<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    body: Term<'a>,
    provider: Atom,
    id: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    let provider = Provider::of(provider)?;
    let body = decode::value(body, Around::Body, scheduler)?;
    scheduler.allow(Context::from_request_cost(&body))?;
    let defaults = Defaults {
        id: &clock::id(id)?,
        at: clock::at(at, scheduler)?,
    };
    let imported = Context::from_request(body, provider, defaults)?;
    Ok(encode(env, imported))
}

fn messages<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    list: Term<'a>,
    id: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    let list = decode::value(list, Around::Body, scheduler)?;
    scheduler.allow(Context::from_messages_cost(&list))?;
    let defaults = Defaults {
        id: &clock::id(id)?,
        at: clock::at(at, scheduler)?,
    };
    Ok(encode(env, Context::from_messages(list, defaults)?))
}

fn atif<'a>(
    env: Env<'a>,
    scheduler: Scheduler,
    document: Term<'a>,
    id: Term<'a>,
    at: Term<'a>,
) -> Reply<'a> {
    let document = decode::value(document, Around::Body, scheduler)?;
    scheduler.allow(Context::from_request_cost(&document))?;
    let defaults = Defaults {
        id: &clock::id(id)?,
        at: clock::at(at, scheduler)?,
    };
    Ok(encode(env, Context::from_atif(document, defaults)?))
}

/// `{{handle, current_iteration}, repairs, rest}`
fn encode(env: Env<'_>, imported: Imported) -> Term<'_> {
    let encoder = Encoder::copying(env);
    let repairs = imported.repairs.iter();
    let repairs = encoder.list(repairs.map(|of| repair(env, of)));
    let rest = encode::value(env, &Value::Map(imported.rest));
    (answer(env, imported.context), repairs, rest).encode(env)
}

fn repair<'a>(env: Env<'a>, repair: &Repair) -> Term<'a> {
    let mut fields = Fields::new(env);
    fields.put(atoms::repair(), repair.kind.atom().encode(env));
    fields.put(atoms::message(), repair.message.encode(env));
    for (key, id) in [(atoms::id(), &repair.id), (atoms::to(), &repair.to)] {
        if let Some(id) = id {
            fields.put(key, id.encode(env));
        }
    }
    fields.end()
}
