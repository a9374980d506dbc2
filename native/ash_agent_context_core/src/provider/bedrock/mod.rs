//! Bedrock Converse.

pub mod facts;
mod formats;
mod read;
mod response;
mod usage;
mod write;

pub(crate) struct Room;
