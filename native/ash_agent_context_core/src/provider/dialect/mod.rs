//! Shares what several providers have in common.

pub mod blocks;
pub mod breakpoints;
pub mod chat;
pub mod facts;
