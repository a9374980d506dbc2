//! What a person or a trace viewer reads. A trace is made of what is kept, at any time.

mod atif;
mod data;
mod page;
mod request;
mod said;
mod terminal;
mod texts;
mod told;
mod visible;

pub use atif::write::AtifOptions;
pub use page::PageOptions;
pub use terminal::Printed;
pub use told::{Told, Trace};
