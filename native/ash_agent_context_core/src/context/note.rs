//! Records the inputs of a request besides its messages with the conversation, and reads them again.

use crate::context::inputs::{hash_fields, hash_tools, RequestNote};
use crate::context::since::Since;
use crate::context::Context;
use crate::error::Error;
use crate::log::iteration::Iteration;
#[cfg(feature = "otlp")]
use crate::log::message::Message;
use crate::value::Value;
use crate::view::View;

impl Context {
    /// Returns the view that an iteration's request was made from, where that is known, and the iteration since which it was
    /// used: an inner `None` is the log as it is. Masks are not kept with it.
    #[must_use]
    pub fn request_view(&self, iteration: &Iteration) -> Option<(u64, Option<&View>)> {
        let replies = iteration.entries().map(|entry| &entry.message.reply);
        let mut replies = replies.flatten();
        replies.find(|reply| reply.requested_at.is_some())?;
        let (since, view) = self.inputs.of(iteration.number)?;
        Some((since, view.map(|view| &**view)))
    }

    /// Notes the inputs of the current iteration's request beside its messages: the fields of its body, with the provider and
    /// model, and the tools. Parts that are unchanged since the request before take no room.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the fields are not a map or the tools not a list.
    ///
    /// # Complexity
    /// O(size of both)
    pub fn note_request(&self, fields: Value, tools: Value) -> Result<Self, Error> {
        let wrong = |key: &str, expected| Error::invalid(vec![Value::text(key)], expected);
        if !matches!(fields, Value::Nil | Value::Map(_)) {
            return Err(wrong("fields", "the fields of a request, a map"));
        }
        if !matches!(tools, Value::Nil | Value::List(_)) {
            return Err(wrong("tools", "a list of tools"));
        }
        let (number, mut next) = (self.next_number(), self.clone());
        let lacks =
            |noted: &Since<Value>, value: &Value| *value != Value::Nil && !noted.has(number, value);
        // Most requests ask for the same: to copy what is noted takes as long as all else.
        if lacks(&self.inputs.fields, &fields) || lacks(&self.inputs.tools, &tools) {
            let asked = next.inputs_mut();
            for (noted, value) in [(&mut asked.fields, fields), (&mut asked.tools, tools)] {
                if value != Value::Nil {
                    noted.note(number, value);
                }
            }
            next.weigh_view();
        }
        Ok(next)
    }

    /// Notes the view and the system prompt that an iteration's answer is made on.
    pub(crate) fn note_made_on(&mut self, number: u64) {
        let (view, system) = (self.view.clone(), self.log.system.clone());
        self.inputs_mut().note(number, view, system.as_ref());
        self.weigh_view();
    }

    /// Notes digests instead of the values of the body and of the tools, for requests that nobody may read later.
    ///
    /// # Errors
    /// As [`Context::note_request`].
    ///
    /// # Complexity
    /// O(size of both)
    pub fn note_request_hashes(&self, fields: Value, tools: Value) -> Result<Self, Error> {
        self.note_request(hash_fields(fields), hash_tools(tools))
    }

    /// Returns the fields and the tools of an iteration's request, if it was noted and made, each with the iteration since
    /// which it was used.
    #[must_use]
    pub fn request_note(&self, iteration: &Iteration) -> RequestNote<'_> {
        let replies = iteration.entries().map(|entry| &entry.message.reply);
        let is_answered = replies.flatten().any(|reply| reply.requested_at.is_some());
        match is_answered || iteration.failures.iter().next().is_some() {
            true => self.inputs.request_of(iteration.number),
            false => [None; 2],
        }
    }

    /// Returns the fields that are noted for an answer without any of its own: those of the body it was imported from.
    #[cfg(feature = "otlp")]
    pub(crate) fn imported_fields(&self, number: u64, message: &Message) -> Option<&Value> {
        let (_, fields) = self.inputs.fields.of(number)?;
        message.reply.is_none().then_some(fields)
    }
}
