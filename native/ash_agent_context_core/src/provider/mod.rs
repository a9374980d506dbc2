//! The rooms of the providers. A room has its provider's facts, writes and reads its messages, reads its responses, and reads its
//! reports on tokens.
//!
//! A new provider is a folder, declared here, and a line in [`providers`].

pub mod accepts;
mod answer;
pub mod block;
pub mod block_text;
pub mod constraint;
pub mod dialect;
pub mod draft;
pub mod event;
pub mod facts;
pub mod faults;
pub mod figures;
pub mod foreign;
pub mod format;
pub(crate) mod frame;
pub mod framing;
pub(crate) mod late;
pub mod listener;
pub mod node;
pub mod options;
mod order;
pub mod rope;
pub mod usage;
pub mod writer;

pub mod anthropic;
pub mod bedrock;
pub mod gemini;
pub mod mistral;
pub mod ollama;
pub mod openai_chat;
pub mod openai_responses;

use crate::log::provider::{providers, Provider};
use format::Format;

macro_rules! rooms {
    ($($(#[doc = $doc:literal])* $variant:ident $name:literal $room:ident,)*) => {
        /// Returns the room of a provider.
        pub(crate) fn room(provider: Provider) -> &'static dyn Format {
            match provider {
                $(Provider::$variant => &$room::Room,)*
            }
        }
    };
}
providers!(rooms);
