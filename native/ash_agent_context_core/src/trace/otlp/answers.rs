//! The spans within a turn: answers and their calls.

use crate::error::Error;
use crate::log::call::ToolCall;
use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::log::message::Outcome;
use crate::trace::message_texts::result_text;
use crate::trace::otlp::attributes::{failure, result_failure, SpanAttributes};
use crate::trace::otlp::ids;
use crate::trace::otlp::messages;
use crate::trace::otlp::options::{Conventions, Turns};
use crate::trace::otlp::proto::{SpanKind, SpanLink};
use crate::trace::otlp::spans::{Caller, Conversation, SpanPlace, SpanWriter};
use crate::trace::otlp::times;
use crate::trace::otlp::unread::Unread;
use crate::trace::shown::{MaskedEntry, NESTED};
use crate::value::time::Time;
use crate::value::Value;

impl<'a> SpanWriter<'_, 'a> {
    pub fn answer(
        &mut self,
        of: &Conversation<'_, 'a>,
        (iteration, position): (&'a Iteration, usize),
        entry: &'a Entry,
        unread: &Unread<'a>,
        within: SpanPlace,
    ) -> Result<(), Error> {
        let masked = MaskedEntry::new(entry, self.trace.rendering());
        let message = masked.message();
        let mut attributes = self.attributes(of, "chat");
        let [fields, tools] = of.context.request_note(iteration);
        let asked = fields.and_then(|(_, fields)| asked_model(fields));
        let imported = of.context.imported_fields(iteration.number, message);
        let imported = imported.and_then(asked_model);
        attributes.answer(message, asked.or(imported));
        if let Some((_, fields)) = fields {
            attributes.request(fields);
        }
        attributes.count("ash_agent.iteration", iteration.number);
        if let Some(reported) = entry.usage.as_deref() {
            attributes.usage(reported.sum, self.options.conventions);
        }
        let prices = self.options.prices;
        let cost = prices.map(|prices| prices.cost(entry, None, iteration.started_at));
        if let Some(Ok(Some(cost))) = cost {
            attributes.cost(cost);
        }
        if let Some(row) = of.account.find(iteration, entry) {
            attributes.cache(row);
        }
        if self.options.conventions == Conventions::Next && is_compacted(of, iteration) {
            attributes.flag("gen_ai.conversation.compacted");
        }
        if self.options.messages {
            let read = unread.before(iteration);
            attributes.text("gen_ai.input.messages", self.input(of, &read));
            attributes.text("gen_ai.output.messages", messages::output(message));
            self.put_setting(of, &mut attributes, tools.map(|(_, tools)| tools));
        }
        let reply = message.reply.as_deref();
        let answering = reply.and_then(|reply| reply.model.as_deref());
        let name = match answering.or(imported) {
            Some(model) => format!("chat {model}"),
            None => "chat".to_owned(),
        };
        let id = ids::span(&of.id, iteration, &format!("answer {position}"));
        let times = times::answer(of.context, iteration, entry);
        // An answer that broke off has its failure beside it.
        let part = iteration.failures.iter().rfind(|failure| failure.is_part());
        let failed = failure(message).map(|word| part.map_or(word, |part| part.kind.name()));
        self.push(
            within,
            id,
            (name, SpanKind::Client),
            times,
            attributes,
            failed.map(|kind| (kind, kind.replace('_', " "))),
        )
    }

    pub fn calls(
        &mut self,
        of: &Conversation<'_, 'a>,
        (iteration, position): (&'a Iteration, usize),
        entry: &'a Entry,
        within: SpanPlace,
    ) -> Result<(), Error> {
        let masked = MaskedEntry::new(entry, self.trace.rendering());
        let slots = masked.exchange().into_iter().flat_map(|of| of.slots());
        for (slot, outcome) in slots.enumerate() {
            let shown = masked.message().calls.get(slot);
            let Some((call, shown)) = entry.message.calls.get(slot).zip(shown) else {
                break;
            };
            let depth = of.caller.map_or(0, |caller| caller.depth);
            let children = match depth < NESTED {
                true => self.children.remove(&(of.at, iteration.number, &*call.id)),
                false => None,
            };
            if outcome.is_none() && children.is_none() {
                continue;
            }
            let id = ids::span(&of.id, iteration, &format!("call {position} {slot}"));
            let attributes = self.call_attributes(of, iteration, shown, outcome);
            let times = times::call(of.context, iteration, entry, slot);
            self.push_call(within, id, (call, outcome), times, attributes)?;
            let caller = Caller {
                within: SpanPlace {
                    span: Some(id),
                    ..within
                },
                conversation: of.user_id(),
                tool: call.name.as_str(),
                depth: depth + 1,
            };
            for child in children.into_iter().flatten() {
                self.conversation(child, Turns::All, Some(&caller))?;
            }
        }
        Ok(())
    }

    /// Writes the span of a call whose result is late, from its start to the result. The span of the call itself was sent before, and this one is
    /// linked to it.
    pub fn late_result(
        &mut self,
        of: &Conversation<'_, 'a>,
        (iteration, position): (&'a Iteration, usize),
        entry: &'a Entry,
        within: SpanPlace,
    ) -> Result<(), Error> {
        let asked = entry.exchange.as_deref().and_then(|exchange| {
            let place = exchange.late_place()?;
            let asked = of.context.log.get_numbered(place.iteration)?;
            Some((place, asked, asked.entry(place.message)?))
        });
        let masked = MaskedEntry::new(entry, self.trace.rendering());
        let outcome = masked.exchange().and_then(|of| of.slots().next()?);
        let shown = masked.message().calls.first();
        let Some((((place, asked, call), outcome), shown)) = asked.zip(outcome).zip(shown) else {
            return Ok(());
        };
        let Some(arrived) = outcome.arrived() else {
            return Ok(());
        };
        let mut attributes = self.call_attributes(of, iteration, shown, Some(outcome));
        attributes.count("ash_agent.call.iteration", asked.number);
        let (from, _) = times::call(of.context, asked, call, place.call);
        let id = ids::span(&of.id, iteration, &format!("late {position}"));
        let times = (from, arrived.at);
        self.push_call(within, id, (shown, Some(outcome)), times, attributes)?;
        let mut turn = of.context.log.between(asked.turn, asked.number);
        let first = turn.find(|one| one.last().is_some()).unwrap_or(asked);
        let caller = of.caller.map(|caller| caller.within.trace);
        let trace = caller.unwrap_or_else(|| ids::trace(&of.id, first));
        let id = format!("call {} {}", place.message, place.call);
        if let Some(span) = self.spans.last_mut() {
            span.links.push(SpanLink {
                trace_id: trace.to_vec(),
                span_id: ids::span(&of.id, asked, &id).to_vec(),
            });
        }
        Ok(())
    }

    fn push_call(
        &mut self,
        within: SpanPlace,
        id: [u8; 8],
        (call, outcome): (&ToolCall, Option<&Outcome>),
        times: (Time, Time),
        attributes: SpanAttributes,
    ) -> Result<(), Error> {
        let name = (
            format!("execute_tool {}", call.name.as_str()),
            SpanKind::Internal,
        );
        let failed = outcome.and_then(|outcome| self.call_failure(outcome));
        self.push(within, id, name, times, attributes, failed)
    }

    fn call_attributes(
        &self,
        of: &Conversation<'_, '_>,
        iteration: &Iteration,
        shown: &ToolCall,
        outcome: Option<&Outcome>,
    ) -> SpanAttributes {
        let mut attributes = self.attributes(of, "execute_tool");
        let tool = shown.name.as_str();
        attributes.text("gen_ai.tool.name", tool);
        attributes.text("gen_ai.tool.call.id", &*shown.id);
        attributes.text("gen_ai.tool.type", "function");
        let description = messages::description(self.options.tools.as_ref(), tool);
        attributes.add_known("gen_ai.tool.description", description);
        attributes.count("ash_agent.iteration", iteration.number);
        if self.options.messages {
            let arguments = messages::arguments(shown);
            attributes.text("gen_ai.tool.call.arguments", arguments);
            attributes.add_known("gen_ai.tool.call.result", outcome.map(messages::response));
        }
        attributes
    }

    fn call_failure<'o>(&self, outcome: &'o Outcome) -> Option<(&'o str, String)> {
        let kind = result_failure(outcome)?;
        let words = match self.options.messages {
            true => result_text(outcome).into_owned(),
            false => kind.replace('_', " "),
        };
        Some((kind, words))
    }
}

/// Returns the model that a request asked for.
pub(super) fn asked_model(fields: &Value) -> Option<&str> {
    fields.as_map()?.get_named("model")?.as_str()
}

/// Returns whether the request had a summary: by the view that it was made from, else by the current one.
fn is_compacted(of: &Conversation<'_, '_>, iteration: &Iteration) -> bool {
    match of.context.request_view(iteration) {
        Some((_, view)) => view.is_some_and(|view| view.summaries > 0),
        None => of.compacted.is_some_and(|last| iteration.number > last),
    }
}
