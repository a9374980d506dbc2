//! Imports foreign histories: requests in the form of providers, and lists of messages.
//!
//! This is the only place where history is repaired; see [`Repair`]. Valid history needs no repair.
//!
//! The neutral form has no place for some fields of providers. So messages and exchanges that no repair touched keep the elements
//! they were made of, see [`crate::log::original::Original`], and their own provider gets those back. Every other provider gets
//! the neutral form.

pub mod defaults;
mod elements;
mod fits;
pub mod importer;
mod looks;
mod messages;
pub mod repair;
mod written;

use crate::context::Context;
use crate::error::Error;
use crate::import::defaults::Defaults;
use crate::import::repair::Imported;
use crate::log::provider::Provider;
use crate::value::json;
use crate::value::{Map, Value, MAX_DEPTH};

use crate::provider;
use crate::value::fields::Fields;
use importer::Importer;
use written::Written;

/// The most levels of a request's body: its own, and around them values of [`MAX_DEPTH`].
pub const BODY_DEPTH: usize = MAX_DEPTH + 8;

impl Context {
    /// Returns a context from a request: a map, or its JSON text.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the path of what cannot be read, [`Error::TooDeep`].
    pub fn from_request(
        body: Value,
        provider: Provider,
        defaults: Defaults<'_>,
    ) -> Result<Imported, Error> {
        let (body, written) = match body {
            Value::Binary(text) => {
                let (body, doubled, text) = json::read_whole(&text, BODY_DEPTH)?;
                // Of a key that is there twice, two readers may take two values, so its text is not kept.
                let written = match doubled {
                    true => Written::default(),
                    false => Written::of(&text, provider.facts().list, provider.facts().prompts),
                };
                (body, written)
            }
            body => (body, Written::default()),
        };
        let mut body = Fields::read(body, "a request's body, a map or its JSON text")?;
        let list = provider.facts().list;
        if let Some(Value::List(messages)) = body.get(list) {
            if let Some(error) = looks::find(messages, Some(provider)) {
                return Err(error.within(body.key(list)));
            }
        } else if let Some(error) = looks::find_list(&body, provider) {
            return Err(error);
        }
        let mut history = Importer::of(Some(provider), written);
        provider::room(provider).read(&mut body, &mut history)?;
        let rest = body.rest().unwrap_or_default();
        Ok(history.finish(rest, defaults))
    }

    /// Returns a context from messages in OpenAI's chat format or in the neutral form, in any mixture.
    ///
    /// # Errors
    /// As [`Context::from_request`].
    pub fn from_messages(messages: Value, defaults: Defaults<'_>) -> Result<Imported, Error> {
        let Value::List(messages) = messages else {
            return Err(Error::invalid(Vec::new(), "a list of messages"));
        };
        if let Some(error) = looks::find(&messages, None) {
            return Err(error);
        }
        let mut history = Importer::of(None, Written::default());
        messages::read(messages.into_vec(), &mut history)?;
        Ok(history.finish(Map::default(), defaults))
    }
}
