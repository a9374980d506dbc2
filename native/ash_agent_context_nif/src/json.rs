//! JSON text for Elixir releases without a JSON library.

use ash_agent_context_core::{json, text_cost};
use rustler::{Binary, Env, NewBinary, Term};

use crate::decode::{self, Around};
use crate::encode;
use crate::error::NifError;
use crate::scheduler::{nif, Scheduler};

nif!(json_decode_normal, json_decode_dirty(text: Binary<'a>) => read);
nif!(json_encode_normal, json_encode_dirty(term: Term<'a>) => write);

fn read<'a>(env: Env<'a>, scheduler: Scheduler, text: Binary<'a>) -> Result<Term<'a>, NifError> {
    scheduler.allow(text_cost(&text))?;
    let value = json::read(text.as_slice(), Around::Document.limit())?;
    Ok(encode::value(env, &value))
}

fn write<'a>(env: Env<'a>, scheduler: Scheduler, term: Term<'a>) -> Result<Term<'a>, NifError> {
    let value = decode::value(term, Around::Nothing, scheduler)?;
    let text = json::write(&value);
    Ok(NewBinary::from_slice(env, text.as_bytes()).into())
}
