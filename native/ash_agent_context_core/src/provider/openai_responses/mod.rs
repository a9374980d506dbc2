//! OpenAI Responses.

mod accepts;
mod assumed;
mod calls;
mod parts;
mod read;
mod read_calls;
mod read_media;
mod response;
mod usage;
mod write;

use crate::log::provider::Provider;

const PROVIDER: Provider = Provider::OpenAiResponses;

/// The room of this provider.
pub(crate) struct Room;
