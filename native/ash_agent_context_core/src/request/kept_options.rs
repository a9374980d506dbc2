//! Reads the options of a sent request from its note.

use crate::context::Context;
use crate::log::iteration::Iteration;
use crate::log::provider::Provider;
use crate::provider::options::{Dialect, Known, Options, SystemRole, Thinking};
use crate::value::Map;

/// The key for options in the note of a request's fields; only those that are not the defaults are there.
const OPTIONS: &str = "request";

impl Context {
    /// Returns the options of the last request of an iteration: those that are noted, with the provider and the model that its
    /// answer names.
    pub(super) fn noted_options<'a>(&'a self, iteration: &'a Iteration) -> Option<Options<'a>> {
        let answer = iteration.entries().rfind(|entry| entry.is_model());
        let reply = answer.and_then(|entry| entry.message.reply.as_deref());
        let fields = self.inputs.fields.of(iteration.number);
        let fields = fields.and_then(|(_, fields)| fields.as_map());
        let named = fields.and_then(|fields| text(fields, "provider"));
        let named = named.and_then(Provider::from_name);
        let provider = named.or(reply.and_then(|reply| reply.provider))?;
        let model = fields.and_then(|fields| text(fields, "model"));
        let mut options = Options {
            model: model.or(reply.and_then(|reply| reply.model.as_deref())),
            ..Options::new(provider)
        };
        options.cache = fields.is_some_and(|fields| text(fields, "cache") == Some("auto"));
        let Some(noted) = fields.and_then(|fields| fields.get_named(OPTIONS)?.as_map()) else {
            return Some(options);
        };
        if text(noted, "thinking") == Some("text") {
            options.thinking = Thinking::Text;
        }
        let role = text(noted, "system_role").and_then(SystemRole::from_name);
        options.system_role = role.unwrap_or(options.system_role);
        options.dialect = text(noted, "dialect").and_then(Dialect::from_name);
        (options.from, options.max_result_bytes) = self.noted_range(iteration.number);
        let response = text(noted, "previous_response_id").map(Known::Response);
        let conversation = text(noted, "conversation").map(Known::Conversation);
        options.known = response.or(conversation).unwrap_or(options.known);
        Some(options)
    }

    /// Returns the first iteration that a request sent and the most bytes of its results, if these are noted.
    pub(super) fn noted_range(&self, number: u64) -> (Option<u64>, Option<usize>) {
        let fields = self.inputs.fields.of(number);
        let fields = fields.and_then(|(_, fields)| fields.as_map());
        let noted = fields.and_then(|fields| fields.get_named(OPTIONS)?.as_map());
        let count = |name| noted?.get_named(name)?.as_count();
        let most = count("max_result_bytes").and_then(|most| usize::try_from(most).ok());
        (count("since"), most)
    }
}

fn text<'a>(map: &'a Map, name: &str) -> Option<&'a str> {
    map.get_named(name)?.as_str()
}
