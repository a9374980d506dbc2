//! Foreign histories: requests as providers get them, and lists of messages.
//!
//! Here, and only here, history is repaired; see [`Repair`]. Valid history needs none.
//!
//! The neutral form has no place for everything that a provider's has. So messages and exchanges
//! that no repair touched keep the elements they were made of, see [`crate::log::wire::Wire`], and their
//! own provider gets those back; every other provider gets what the neutral form says.

pub mod attributes;
mod elements;
mod fits;
pub mod history;
mod messages;
mod written;

use crate::context::Context;
use crate::error::Error;
use crate::import::attributes::Defaults;
use crate::log::provider::Provider;
use crate::value::json;
use crate::value::{Map, Value, MAX_DEPTH};

use crate::provider;
use crate::provider::foreign::Object;
use history::History;
use written::Written;

/// Levels that a request's body may have: those of its own around values of [`MAX_DEPTH`].
pub const BODY_DEPTH: usize = MAX_DEPTH + 8;

/// A history that was read.
#[derive(Debug)]
pub struct Imported {
    /// The conversation.
    pub context: Context,
    /// What had to be changed, in the order of the messages.
    pub repairs: Vec<Repair>,
    /// The fields of the request that are no part of the conversation, as they were given.
    pub rest: Map,
}

/// A change that made a context of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// What was done.
    pub kind: RepairKind,
    /// 0-based position of the message (content, item) in the list that was given.
    pub message: usize,
    /// The id of the call or result.
    pub id: Option<Box<str>>,
    /// The id that the call has now.
    pub to: Option<Box<str>>,
}

/// The kinds of repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairKind {
    /// A message that says nothing was left out.
    DroppedEmptyMessage,
    /// A second result for a call was left out.
    DroppedDuplicateResult,
    /// A result without a call was left out.
    DroppedOrphanResult,
    /// A call with text or thinking behind it was moved behind that.
    MovedCall,
    /// A result that did not stand directly behind its call was moved there.
    MovedResult,
    /// A call whose id another call of the message has was given a new one.
    RenamedCall,
    /// A call without a result, with something behind it, was given an error.
    SynthesisedResult,
}

impl RepairKind {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DroppedEmptyMessage => "dropped_empty_message",
            Self::DroppedDuplicateResult => "dropped_duplicate_result",
            Self::DroppedOrphanResult => "dropped_orphan_result",
            Self::MovedCall => "moved_call",
            Self::MovedResult => "moved_result",
            Self::RenamedCall => "renamed_call",
            Self::SynthesisedResult => "synthesised_result",
        }
    }
}

impl Context {
    /// A context from a request: a map, or its JSON text.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the path of what cannot be read, [`Error::TooDeep`].
    pub fn from_request(
        body: Value,
        provider: Provider,
        defaults: Defaults<'_>,
    ) -> Result<Imported, Error> {
        let room = provider::room(provider);
        let (body, written) = match body {
            Value::Binary(text) => {
                let (body, doubled) = json::read_noting(&text, BODY_DEPTH)?;
                // Who reads a key twice reads one thing or the other.
                let written = match doubled {
                    true => Written::default(),
                    false => Written::of(&text, room.list(), room.prompts()),
                };
                (body, written)
            }
            body => (body, Written::default()),
        };
        let mut body = Object::read(body, "a request's body, a map or its JSON text")?;
        let mut history = History::of(Some(provider)).written(written);
        room.read(&mut body, &mut history)?;
        let rest = body.rest().unwrap_or_default();
        Ok(history.finish(rest, defaults))
    }

    /// A context from messages in OpenAI's chat format or in the neutral form, in any mixture.
    ///
    /// # Errors
    /// As [`Context::from_request`].
    pub fn from_messages(messages: Value, defaults: Defaults<'_>) -> Result<Imported, Error> {
        let Value::List(messages) = messages else {
            return Err(Error::invalid(Vec::new(), "a list of messages"));
        };
        let mut history = History::of(None);
        messages::read(messages.into_vec(), &mut history)?;
        Ok(history.finish(Map::default(), defaults))
    }
}
