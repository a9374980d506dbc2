//! OpenAI Responses.

mod accepts;
mod calls;
mod read;
mod usage;
mod write;

use crate::log::provider::Provider;

const PROVIDER: Provider = Provider::OpenAiResponses;

/// The room of this provider.
pub(crate) struct Room;
