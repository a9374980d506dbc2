//! Answers of a type, in a binary of their own, since the oracle brings a validator of schemas.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod answer_damage;
mod answer_oracle;
mod answer_requests;
mod answers;
#[path = "../support/part.rs"]
mod part;
