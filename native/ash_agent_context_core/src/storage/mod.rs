//! The stored form of a conversation: JSON text, or the same as a value with string keys.
//!
//! The shape of the document is in [`write`] and, the other way round, in [`read`]; terms that JSON lacks are in [`tagged`]
//! and [`untagged`]. Fields that this version does not know are kept as they came.

pub mod attributes;
mod bases;
pub mod changes;
pub mod chat;
mod dump;
mod head;
mod iterations;
pub(crate) mod late;
pub mod limits;
pub mod load;
mod parse;
mod read;
mod read_call;
mod read_content;
mod read_shown;
pub mod rows;
mod seed;
mod spelling;
mod table;
mod tables;
pub mod tagged;
mod take;
pub mod trust;
pub mod untagged;
mod view;
mod write;
