//! An LLM agent's conversation as an immutable value, structured in iterations.
//!
//! All behaviour of the package lives here, in plain Rust that knows no BEAM. Time and ids come
//! in from outside: nothing here reads a clock or rolls dice.

mod context;
mod error;
mod import;
mod log;
mod provider;
mod request;
mod storage;
mod tokens;
mod value;
mod view;

pub use context::{Context, Stamp};
pub use error::{Error, Path, Unsupported};
pub use import::attributes::Defaults;
pub use import::{Imported, Repair, RepairKind, BODY_DEPTH};
pub use log::call::{Arguments, Name, ToolCall};
pub use log::decision::{CallStatus, Decision};
pub use log::iteration::{Entry, Exchange, Iteration, MessageRef};
pub use log::kind::CallKind;
pub use log::message::{Message, Outcome, Output, Role, Status};
pub use log::notes::Notes;
pub use log::part::{Content, Part, PartKind, Place, Source};
pub use log::provider::Provider;
pub use log::usage::{Reported, Usage};
pub use provider::options::{Dialect, Known, Options, SystemRole, Thinking};
pub use request::{Located, Segment};
pub use storage::{has_masks, NESTING};
pub use tokens::{Method, Tokens};
pub use value::time::Time;
pub use value::{json, time};
pub use value::{Bytes, Map, Size, Value, MAX_DEPTH};
pub use view::budget::Fit;
pub use view::change::Change;
pub use view::look::{Seen, Shown};
pub use view::masks::Masks;
pub use view::prompt::{Prompt, Unready};
pub use view::{Cleared, Cover, View};
