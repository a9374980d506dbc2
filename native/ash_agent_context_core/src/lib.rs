//! An LLM agent's conversation as an immutable value, structured in iterations.
//!
//! All behaviour of the package lives here, in plain Rust that knows no BEAM. Time and ids come
//! in from outside: nothing here reads a clock or rolls dice.

mod attributes;
mod call;
mod context;
mod entries;
mod error;
mod escape;
mod fields;
mod ids;
mod import;
mod iteration;
pub mod json;
mod message;
mod notes;
mod part;
mod patterns;
mod pieces;
mod prompt;
mod request;
mod results;
mod snapshot;
pub mod time;
mod value;
mod wire;
mod words;

pub use attributes::Defaults;
pub use call::{Arguments, Name, ToolCall};
pub use context::{Context, Stamp};
pub use error::{Error, Path, Unsupported};
pub use import::{Imported, Repair, RepairKind, BODY_DEPTH};
pub use iteration::{Entry, Exchange, Iteration, MessageRef};
pub use message::{Message, Outcome, Output, Role, Status};
pub use notes::Notes;
pub use part::{Content, Part, PartKind, Place, Provider, Source};
pub use request::{Change, Located, Options, Segment, SystemRole, Thinking};
pub use snapshot::NESTING;
pub use time::Time;
pub use value::{Bytes, Map, Size, Value, MAX_DEPTH};
