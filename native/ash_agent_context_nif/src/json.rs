//! JSON text for Elixir releases without a JSON library.

use ash_agent_context_core::{json, text_cost};
use rustler::{Binary, NewBinary};

use crate::argument::Any;
use crate::decode::Around;
use crate::encode;
use crate::nif::nif;

nif!(
    json_decode_normal,
    json_decode_dirty,
    |env, scheduler, text: Binary<'a>| {
        scheduler.allow(text_cost(&text))?;
        let value = json::read(text.as_slice(), Around::Document.limit())?;
        Ok(encode::value(env, &value))
    }
);

nif!(
    json_encode_normal,
    json_encode_dirty,
    |env, _scheduler, term: Any| {
        Ok(NewBinary::from_slice(env, json::write(&term).as_bytes()).into())
    }
);
