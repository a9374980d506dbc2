//! Reads requests to Mistral.

use super::Room;
use crate::error::Error;
use crate::log::provider::Provider;
use crate::provider::dialect::chat::read::{self, ChatDialect};
use crate::provider::format::Reads;
use crate::provider::listener::Listener;
use crate::value::fields::Fields;
use crate::value::Map;

const RULES: ChatDialect = ChatDialect {
    provider: Provider::Mistral,
    empty_calls: true,
};

impl Reads for Room {
    fn read(&self, body: &mut Fields, history: &mut Listener) -> Result<(), Error> {
        read::read(body, history, &RULES)
    }

    fn is_row(&self, element: &Map) -> bool {
        read::is_row(element)
    }
}
