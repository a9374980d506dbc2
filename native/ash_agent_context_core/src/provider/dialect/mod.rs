//! Rules that several providers share.

pub mod blocks;
pub mod chat;
pub mod facts;
