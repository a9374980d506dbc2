//! What was said.

pub mod call;
pub mod decision;
pub mod done;
pub mod entries;
pub mod hints;
pub mod ids;
pub mod iteration;
pub mod kind;
pub mod media;
pub mod media_type;
pub mod message;
pub mod notes;
pub mod once;
pub mod part;
pub mod provider;
pub mod results;
pub mod served;
pub mod usage;
pub mod wire;
