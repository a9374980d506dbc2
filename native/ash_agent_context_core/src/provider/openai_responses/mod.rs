//! OpenAI Responses.

mod calls;
pub mod facts;
mod item_ids;
mod read;
mod read_calls;
mod response;
mod texts;
mod write;

use crate::log::provider::Provider;

const PROVIDER: Provider = Provider::OpenAiResponses;

pub(crate) struct Room;
