//! An LLM agent's conversation as an immutable value, structured in iterations.
//!
//! All behaviour of the package lives here, in plain Rust that knows no BEAM. Time and ids come
//! in from outside: nothing here reads a clock or rolls dice.

mod attributes;
mod budget;
mod call;
mod context;
mod decision;
mod done;
mod entries;
mod error;
mod escape;
mod fields;
mod ids;
mod import;
mod iteration;
pub mod json;
mod look;
mod masks;
mod message;
mod notes;
mod once;
mod part;
mod patterns;
mod prompt;
mod provider;
mod reply;
mod request;
mod response;
mod results;
mod snapshot;
pub mod time;
mod tokens;
mod usage;
mod value;
mod view;
mod wire;
mod words;

pub use attributes::Defaults;
pub use budget::Fit;
pub use call::{Arguments, Name, ToolCall};
pub use context::{Context, Stamp};
pub use decision::{CallStatus, Decision};
pub use error::{Error, Path, Unsupported};
pub use import::{Imported, Repair, RepairKind, BODY_DEPTH};
pub use iteration::{Entry, Exchange, Iteration, MessageRef};
pub use look::{Seen, Shown};
pub use masks::Masks;
pub use message::{Message, Outcome, Output, Role, Status};
pub use notes::Notes;
pub use part::{Content, Part, PartKind, Place, Provider, Source};
pub use prompt::{Prompt, Unready};
pub use provider::event::{Event, Finish};
pub use provider::fault::Fault;
pub use reply::Reply;
pub use request::{Change, Located, Options, Segment, SystemRole, Thinking};
pub use response::{Framing, Reading, Response, State, MAX_BYTES};
pub use snapshot::{has_masks, NESTING};
pub use time::Time;
pub use tokens::{Method, Tokens};
pub use usage::{Reported, Usage};
pub use value::{Bytes, Map, Size, Value, MAX_DEPTH};
pub use view::{Cleared, Cover, View};
