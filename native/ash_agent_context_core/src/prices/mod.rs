//! What answers cost: what was counted of them, and the prices of models.

pub mod bill;
pub mod file;
pub mod list;
pub mod rates;
pub mod read;
pub mod usage;
