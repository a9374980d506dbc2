//! An LLM agent's conversation as an immutable value, structured in iterations.
//!
//! All behaviour of the package lives here, in plain Rust that knows no BEAM. Time and ids come
//! in from outside: nothing here reads a clock or rolls dice.

mod context;
mod error;
mod failure;
mod fault;
mod import;
mod log;
mod provider;
mod reason;
mod request;
mod response;
mod storage;
mod tokens;
mod trace;
mod value;
mod view;

pub use context::differing::{Look, Unseen};
pub use context::fit::Fit;
pub use context::prompt::{Prompt, Unready};
pub use context::recall::Hit;
pub use context::receipt::{FactState, Receipt, ReceiptFact};
pub use context::rent::{Due, Rent};
pub use context::verdict::{Check, Fate, Summarized};
pub use context::Context;
pub use error::{Error, Path, Unsupported};
pub use failure::FailureKind;
pub use fault::Fault;
pub use import::attributes::Defaults;
pub use import::repair::{Imported, Repair, RepairKind};
pub use import::BODY_DEPTH;
pub use log::bill::{Bill, Count, Report, Reported, Term};
pub use log::call::{Arguments, Name, ToolCall};
pub use log::decision::{CallStatus, Decision};
pub use log::exchange::{Entry, Exchange, MessageRef};
pub use log::failed::FailedRequest;
pub use log::iteration::Iteration;
pub use log::kind::CallKind;
pub use log::message::{Message, Outcome, Output, Role, Status};
pub use log::metadata::Metadata;
pub use log::origin::Origin;
pub use log::part::{Content, Part, PartKind, Place, Source};
pub use log::price::{Money, Rates, Unit};
pub use log::price_list::Prices;
pub use log::price_read::{read_file, read_list, PriceFile};
pub use log::provider::Provider;
pub use log::reply::{Finish, Reply};
pub use log::usage::Usage;
pub use log::Stamp;
pub use provider::event::Event;
pub use provider::framing::Framing;
pub use provider::options::{Dialect, Known, Options, SystemRole, Thinking};
pub use reason::{Detail, Reason};
pub use request::located::Located;
pub use request::segment::{KeptBytes, Segment};
pub use response::add::AnswerTimes;
pub use response::push::Delta;
pub use response::{Given, Reading, Response, State, MAX_BYTES};
pub use storage::changes::Changes;
pub use storage::chat::{Branch, Chat, LoadedBranch, LoadedChat, AROUND_CONTEXT};
pub use storage::cost::text_cost;
pub use storage::limits::NESTING;
pub use storage::load::has_masks;
pub use storage::terms::{read_terms, write_terms};
pub use storage::trust::{Approvals, Structs, Trust};
pub use tokens::{Method, Tokens};
pub use trace::{AtifOptions, PageOptions, Printed, Told, Trace};
#[cfg(feature = "otlp")]
pub use trace::{Conventions, OtlpOptions, Turns};
pub use value::cost::Cost;
#[cfg(feature = "steps")]
pub use value::steps;
pub use value::time::Time;
pub use value::{json, time};
pub use value::{Bytes, Map, Size, Value, MAX_DEPTH};
pub use view::change::{Change, ChangeKind};
pub use view::cover::Cover;
pub use view::excerpt::Excerpt;
pub use view::facts::FactKind;
pub use view::handle::{Handle, Handled};
pub use view::masks::Masks;
pub use view::pins::{Pin, Pins};
pub use view::rendering::{Seen, Shown};
pub use view::verdict::Verdict;
pub use view::{Cleared, View};
