//! The span of a turn, which is around the others.

use crate::error::Error;
use crate::log::exchange::Entry;
use crate::log::failed::FailedRequest;
use crate::log::iteration::Iteration;
use crate::trace::message_texts::spoken_text;
use crate::trace::otlp::answers::asked_model;
use crate::trace::otlp::attributes::{failure, provider_name, SpanAttributes, UNKNOWN};
use crate::trace::otlp::ids;
use crate::trace::otlp::messages;
use crate::trace::otlp::proto::{SpanKind, SpanLink};
use crate::trace::otlp::spans::{Conversation, SpanPlace, SpanWriter};
use crate::trace::otlp::times;
use crate::trace::otlp::unread::{Read, Unread};
use crate::trace::shown::MaskedEntry;
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
        let id = ids::span(&of.id, first, ids::TURN);
        let caller = of.caller.map(|caller| caller.within);
        let trace = caller.map_or_else(|| ids::trace(&of.id, first), |caller| caller.trace);
        let within = |span| SpanPlace { trace, span };
        let entries: Vec<&Entry> = turn.iter().flat_map(|one| one.entries()).collect();
        let mut attributes = self.turn_attributes(of, &entries, last.number);
        attributes.count("ash_agent.turn", first.number);
        let last_failure = find_ending(last).map(|failure| failure.kind.name().to_owned());
        let failed = last_failure.or_else(|| match self.options.error {
            Some(error) if is_last && of.is_main => Some(error.to_owned()),
            _ => {
                let answer = entries.iter().rev().find(|entry| entry.is_model());
                let masked = answer.map(|entry| MaskedEntry::new(entry, self.trace.rendering()));
                masked.and_then(|masked| failure(masked.message()).map(str::to_owned))
            }
        });
        // A span cannot be changed after it was sent, so a turn's is written when the turn has ended.
        let is_open = self.options.is_open && is_last && of.is_main;
        if !is_open {
            let name = format!("invoke_agent {}", self.agent(of));
            self.push(
                within(caller.and_then(|caller| caller.span)),
                id,
                (name, SpanKind::Internal),
                (first.started_at, times::end(of.context, last)),
                attributes,
                failed.as_deref().map(|kind| (kind, kind.replace('_', " "))),
            )?;
            // Linked to the span of the code that asked for it.
            let caller = self.options.caller.filter(|_| of.is_main);
            if let Some((span, (trace_id, span_id))) = self.spans.last_mut().zip(caller) {
                span.links.push(SpanLink {
                    trace_id: trace_id.to_vec(),
                    span_id: span_id.to_vec(),
                });
            }
        }
        for iteration in turn {
            self.failures(of, iteration, within(Some(id)))?;
            for (position, entry) in iteration.entries().enumerate() {
                if entry.is_model() {
                    let place = (*iteration, position);
                    self.answer(of, place, entry, unread, within(Some(id)))?;
                    self.calls(of, place, entry, within(Some(id)))?;
                } else if entry.message.is_arrival() {
                    self.late_result(of, (*iteration, position), entry, within(Some(id)))?;
                }
                unread.add(iteration.number, entry);
            }
        }
        Ok(())
    }

    /// Writes a span for each failed request. If part of an answer came, the answer's span has the failure, and a tool's span that of
    /// the tool.
    fn failures(
        &mut self,
        of: &Conversation<'_, 'a>,
        iteration: &Iteration,
        within: SpanPlace,
    ) -> Result<(), Error> {
        let mut failures = self.trace.failures(iteration);
        for (position, failure) in failures.iter_mut().enumerate() {
            if failure.is_part() || failure.is_function() {
                continue;
            }
            if !self.options.messages {
                failure.forget_said();
            }
            let facts = failure.facts();
            let mut attributes = self.attributes(of, "chat");
            let provider = failure.provider.map_or(UNKNOWN, |of| of.facts().telemetry);
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
                // The first attempt is no resend.
                let number = facts.get_named(key).and_then(Value::as_count).unwrap_or(0);
                let number = number.saturating_sub(u64::from(key == "attempt"));
                if number > 0 {
                    attributes.count(name, number);
                }
            }
            let from = failure.requested_at.unwrap_or(iteration.started_at);
            let name =
                text("model").map_or_else(|| "chat".to_owned(), |model| format!("chat {model}"));
            self.push(
                within,
                ids::span(&of.id, iteration, &format!("failure {position}")),
                (name, SpanKind::Client),
                (from, failure.at),
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
        let shown = answers().map(|entry| provider_name(&entry.message));
        let provider = shown.into_iter().find(|name| *name != UNKNOWN);
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
                let masked = MaskedEntry::new(entry, self.trace.rendering());
                let answer = messages::output(masked.message());
                attributes.text("gen_ai.output.messages", answer);
                attributes.add_known("output.value", self.plain(std::iter::once(*entry)));
            }
            self.put_setting(of, &mut attributes, None);
        }
        if of.is_main {
            attributes.add_known("gen_ai.agent.version", self.options.version);
            attributes.values(&self.options.attributes);
        }
        attributes
    }

    /// Returns the texts of messages, if there are any.
    fn plain<'e>(&self, entries: impl Iterator<Item = &'e Entry>) -> Option<String> {
        let texts = entries.map(|entry| {
            let masked = MaskedEntry::new(entry, self.trace.rendering());
            spoken_text(&masked.message().content).into_owned()
        });
        let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }
}
