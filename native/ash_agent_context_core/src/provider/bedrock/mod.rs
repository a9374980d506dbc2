//! Bedrock Converse.

mod accepts;
mod formats;
mod output;
mod read;
mod response;
mod usage;
mod write;

/// The room of this provider.
pub(crate) struct Room;
