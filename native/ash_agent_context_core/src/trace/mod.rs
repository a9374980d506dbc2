//! Renders conversations for people and for trace viewers. A trace needs nothing but what the log keeps, so it can be made at any
//! time.

mod cache;
mod data;
mod html;
mod message_texts;
#[cfg(feature = "otlp")]
mod otlp;
mod page;
mod receipt;
mod request;
mod shown;
mod terminal;
mod texts;
mod visible;

#[cfg(feature = "otlp")]
pub use otlp::options::{Conventions, OtlpOptions, Turns};
pub use page::PageOptions;
pub use shown::{ShownConversation, Trace};
pub use terminal::Printed;
