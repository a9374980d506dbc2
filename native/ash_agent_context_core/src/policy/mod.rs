//! Policies: what a view leaves out and when, what is kept in its place, and what that costs at the provider's cache.

pub mod account;
pub mod check;
mod claims;
pub mod diagnosis;
mod fact_pieces;
mod facts;
pub mod fit;
mod hidden_note;
mod known_facts;
pub mod recall;
pub mod receipt;
pub mod rent;
pub mod shorten;
