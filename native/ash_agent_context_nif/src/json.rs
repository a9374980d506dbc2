//! JSON text for Elixir releases without a JSON library.

use ash_agent_context_core::{json, read_terms, text_cost, write_terms, Structs, Value};
use rustler::{Binary, NewBinary};

use crate::argument::{Any, Metadata};
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

// Terms that JSON lacks are written as in stored conversations.
nif!(
    terms_encode_normal,
    terms_encode_dirty,
    |env, _scheduler, terms: Metadata| {
        let text = write_terms(&terms.unwrap_or_default());
        Ok(NewBinary::from_slice(env, &text).into())
    }
);

nif!(terms_decode_normal, terms_decode_dirty, |env,
                                               scheduler,
                                               text: Binary<
    'a,
>| {
    scheduler.allow(text_cost(&text))?;
    let terms = read_terms(text.as_slice(), Structs::Keep)?;
    Ok(encode::value(env, &Value::Map(terms)))
});
