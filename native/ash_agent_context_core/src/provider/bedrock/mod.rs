//! Bedrock Converse.

pub mod facts;
mod formats;
mod read;
mod response;
mod usage;
mod write;

/// The room of this provider.
pub(crate) struct Room;
