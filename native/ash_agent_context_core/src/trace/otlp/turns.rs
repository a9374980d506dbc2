//! The span of a turn, which is around the others.

use crate::error::Error;
use crate::log::exchange::Entry;
use crate::log::failed::FailedRequest;
use crate::log::iteration::Iteration;
use crate::trace::otlp::answers::asked_model;
use crate::trace::otlp::attributes::{
    failure, name_provider, provider_name, SpanAttributes, UNKNOWN,
};
use crate::trace::otlp::ids::{self, IdOf};
use crate::trace::otlp::messages;
use crate::trace::otlp::proto::SpanKind;
use crate::trace::otlp::spans::{Conversation, SpanPlace, SpanWriter};
use crate::trace::otlp::times::{self, Times};
use crate::trace::otlp::unread::{Read, Unread};
use crate::trace::said::spoken_text;
use crate::trace::told::Looked;
use crate::value::Value;

/// Returns the failed request that ended a turn: no message of the model came after it.
fn find_ending(last: &Iteration) -> Option<&FailedRequest> {
    let failure = last.failures.iter().next_back()?;
    let reply = last.last().and_then(|entry| entry.message.reply.as_deref());
    let answered = reply.and_then(|reply| reply.received_at);
    let is_last = answered.is_none_or(|answered| failure.at > answered);
    // The application's own model fails in its own ways.
    let is_known = failure.provider.is_some();
    (is_known && is_last && !last.last().is_some_and(Entry::is_model)).then_some(failure)
}

impl<'a> SpanWriter<'_, 'a> {
    /// Writes the iterations of a turn. Those before `unread` are written already.
    pub fn turn(
        &mut self,
        of: &Conversation<'_, 'a>,
        turn: &[&'a Iteration],
        unread: &mut Unread<'a>,
        is_last: bool,
    ) -> Result<(), Error> {
        // The last iteration may still wait for its first message.
        let spoken = || turn.iter().filter(|iteration| iteration.last().is_some());
        let (Some(first), Some(last)) = (spoken().next(), spoken().next_back()) else {
            return Ok(());
        };
        let id = ids::span(&of.id, first, IdOf::Turn);
        let caller = of.caller.map(|caller| caller.within);
        let trace = caller.map_or_else(|| ids::trace(&of.id, first), |caller| caller.trace);
        let within = |span| SpanPlace { trace, span };
        let entries: Vec<&Entry> = turn.iter().flat_map(|one| one.entries()).collect();
        let mut attributes = self.turn_attributes(of, &entries, last.number);
        attributes.count("ash_agent.turn", first.number);
        let last_failure = find_ending(last).map(|failure| failure.kind.name().to_owned());
        let failed = last_failure.or_else(|| match self.options.error {
            Some(error) if is_last && of.is_main => Some(error.to_owned()),
            _ => self.turn_failure(&entries),
        });
        // A span cannot be changed after it was sent, so a turn's is written when the turn has ended.
        let is_open = self.options.is_open && is_last && of.is_main;
        if !is_open {
            let name = format!("invoke_agent {}", self.agent(of));
            self.push(
                within(caller.and_then(|caller| caller.span)),
                id,
                (name, SpanKind::Internal),
                times::turn(of.context, first, last),
                attributes,
                failed.as_deref().map(|kind| (kind, kind.replace('_', " "))),
            )?;
            if of.is_main {
                self.link_caller();
            }
        }
        for iteration in turn {
            self.failures(of, iteration, within(Some(id)))?;
            for (position, entry) in iteration.entries().enumerate() {
                if entry.is_model() {
                    let place = (*iteration, position);
                    self.answer(of, place, entry, unread, within(Some(id)))?;
                    self.calls(of, place, entry, within(Some(id)))?;
                }
                unread.add(iteration.number, entry);
            }
        }
        Ok(())
    }

    /// Writes a span for each failed request. If part of an answer came, the answer's span has the failure.
    fn failures(
        &mut self,
        of: &Conversation<'_, 'a>,
        iteration: &Iteration,
        within: SpanPlace,
    ) -> Result<(), Error> {
        let mut failures = self.trace.failures(iteration);
        for (position, failure) in failures.iter_mut().enumerate() {
            if failure.is_part() {
                continue;
            }
            if !self.options.messages {
                failure.forget_said();
            }
            let facts = failure.facts();
            let mut attributes = self.attributes(of, "chat");
            let provider = failure.provider.map_or(UNKNOWN, name_provider);
            attributes.text("gen_ai.provider.name", provider);
            let text = |key| facts.get_named(key).and_then(Value::as_name);
            attributes.add_known("gen_ai.request.model", text("model"));
            if let [Some((_, fields)), _] = of.context.request_note(iteration) {
                attributes.request(fields);
            }
            for (key, name) in [
                ("status", "http.response.status_code"),
                ("attempt", "http.request.resend_count"),
                ("count", "ash_agent.failure.count"),
            ] {
                let number = facts.get_named(key).and_then(Value::as_count);
                // The first attempt is no resend.
                let number =
                    number.map(|number| number.saturating_sub(u64::from(key == "attempt")));
                if let Some(number) = number.filter(|number| *number > 0) {
                    attributes.count(name, number);
                }
            }
            let from = failure.requested_at.unwrap_or(iteration.started_at);
            let name =
                text("model").map_or_else(|| "chat".to_owned(), |model| format!("chat {model}"));
            self.push(
                within,
                ids::span(&of.id, iteration, IdOf::Failure(position)),
                (name, SpanKind::Client),
                Times {
                    from,
                    to: failure.at,
                },
                attributes,
                Some((failure.kind.name(), failure.words())),
            )?;
        }
        Ok(())
    }

    /// Returns the name of the agent; a sub-agent has that of its tool.
    fn agent<'s>(&'s self, of: &Conversation<'s, '_>) -> &'s str {
        of.caller.map_or(self.options.agent, |caller| caller.tool)
    }

    fn turn_attributes(
        &self,
        of: &Conversation<'_, '_>,
        entries: &[&Entry],
        last: u64,
    ) -> SpanAttributes {
        let mut attributes = self.attributes(of, "invoke_agent");
        attributes.text("gen_ai.agent.name", self.agent(of));
        let answers = || entries.iter().rev().filter(|entry| entry.is_model());
        let reply = answers().find_map(|entry| entry.message.reply.as_deref());
        let model = reply.and_then(|reply| reply.model.as_deref());
        let told = answers().map(|entry| provider_name(&entry.message));
        let provider = told.into_iter().find(|name| *name != UNKNOWN);
        attributes.text("gen_ai.provider.name", provider.unwrap_or(UNKNOWN));
        let imported = || {
            let answer = answers().next()?;
            let fields = of.context.imported_fields(last, &answer.message);
            fields.and_then(asked_model)
        };
        attributes.add_known("gen_ai.request.model", model.or_else(imported));
        if self.options.messages {
            let asked = entries.iter().take_while(|entry| !entry.is_model());
            let asked: Vec<Read<'_>> = asked.map(|entry| Read::Message(entry)).collect();
            attributes.text("gen_ai.input.messages", self.input(of, &asked));
            // Viewers show these two in lists.
            let asked = entries.iter().take_while(|entry| !entry.is_model());
            attributes.add_known("input.value", self.plain(asked.copied()));
            if let Some(entry) = answers().next() {
                let looked = Looked::new(entry, self.trace.look());
                let answer = messages::output(looked.message());
                attributes.text("gen_ai.output.messages", answer);
                attributes.add_known("output.value", self.plain(std::iter::once(*entry)));
            }
            self.put_setting(of, &mut attributes, None);
        }
        if of.is_main {
            attributes.add_known("gen_ai.agent.version", self.options.version);
            for (key, value) in self.options.attributes {
                attributes.value(key, value);
            }
        }
        attributes
    }

    /// Returns the texts of messages, if there are any.
    fn plain<'e>(&self, entries: impl Iterator<Item = &'e Entry>) -> Option<String> {
        let mut text = String::new();
        for entry in entries {
            let looked = Looked::new(entry, self.trace.look());
            let said = spoken_text(&looked.message().content);
            if !said.is_empty() && !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&said);
        }
        (!text.is_empty()).then_some(text)
    }

    fn turn_failure(&self, entries: &[&Entry]) -> Option<String> {
        let last = entries.iter().rev().find(|entry| entry.is_model())?;
        let looked = Looked::new(last, self.trace.look());
        failure(looked.message()).map(str::to_owned)
    }
}
