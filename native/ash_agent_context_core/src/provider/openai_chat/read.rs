//! Reads requests to OpenAI Chat Completions.

use super::Room;
use crate::error::Error;
use crate::provider::dialect::chat::read::{self, OPENAI};
use crate::provider::format::Reads;
use crate::provider::listener::Listener;
use crate::value::fields::Fields;
use crate::value::Map;

impl Reads for Room {
    fn read(&self, body: &mut Fields, history: &mut Listener) -> Result<(), Error> {
        read::read(body, history, &OPENAI)
    }

    fn is_row(&self, element: &Map) -> bool {
        read::is_row(element)
    }
}
