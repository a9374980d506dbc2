//! The cost of answers: the counts to pay for, and the prices of models.

pub mod bill;
pub mod file;
pub mod list;
pub mod rates;
pub mod read;
pub mod usage;
