//! JSON text for Elixir releases without a JSON library.

use ash_agent_context_core::{json, read_terms, write_terms, Error, Map, Structs, Value};

use crate::argument::{Json, Metadata};
use crate::decode::Around;
use crate::to_term::Bytes;

pub fn decode(Json(text): Json<'_>) -> Result<Value, Error> {
    json::read(text, Around::Document.limit())
}

pub fn encode(term: Value) -> String {
    json::write(&term)
}

/// Terms that JSON lacks are written as in stored conversations.
pub fn encode_terms(Metadata(terms): Metadata) -> Bytes {
    Bytes(write_terms(&terms.unwrap_or_default()))
}

pub fn decode_terms(Json(text): Json<'_>) -> Result<Map, Error> {
    read_terms(text, Structs::Keep)
}
