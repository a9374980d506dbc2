//! Bedrock Converse.

pub mod facts;
mod formats;
mod read;
mod response;
mod write;

pub(crate) struct Room;
