//! The span of a turn, which the others are within.

use crate::error::Error;
use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::trace::otlp::attributes::{failure, provider_name, SpanAttributes};
use crate::trace::otlp::ids::{self, IdOf};
use crate::trace::otlp::messages;
use crate::trace::otlp::proto::SpanKind;
use crate::trace::otlp::spans::{Conversation, SpanPlace, SpanWriter};
use crate::trace::otlp::times;
use crate::trace::otlp::unread::{Read, Unread};
use crate::trace::told::Looked;

impl<'a> SpanWriter<'_, 'a> {
    /// The iterations of a turn; those before `unread` are written already.
    pub fn turn(
        &mut self,
        of: &Conversation<'_, 'a>,
        turn: &[&'a Iteration],
        unread: &mut Unread<'a>,
        is_last: bool,
    ) -> Result<(), Error> {
        // The last one may wait for its first message.
        let spoken = || turn.iter().filter(|iteration| iteration.last().is_some());
        let (Some(first), Some(last)) = (spoken().next(), spoken().next_back()) else {
            return Ok(());
        };
        let id = ids::span(&of.id, first, IdOf::Turn);
        let caller = of.caller.map(|caller| caller.within);
        let trace = caller.map_or_else(|| ids::trace(&of.id, first), |caller| caller.trace);
        let within = |span| SpanPlace { trace, span };
        let entries: Vec<&Entry> = turn.iter().flat_map(|one| one.entries()).collect();
        let mut attributes = self.turn_attributes(of, &entries);
        attributes.count("ash_agent.turn", first.number);
        let failed = match self.options.error {
            Some(error) if is_last && of.is_main => Some(error.to_owned()),
            _ => self.turn_failure(&entries),
        };
        self.push(
            within(caller.and_then(|caller| caller.span)),
            id,
            (
                format!("invoke_agent {}", self.agent(of)),
                SpanKind::Internal,
            ),
            times::turn(of.context, first, last),
            attributes,
            failed.as_deref(),
        )?;
        for iteration in turn {
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

    /// A sub-agent is called as its tool is.
    fn agent<'s>(&'s self, of: &Conversation<'s, '_>) -> &'s str {
        of.caller.map_or(self.options.agent, |caller| caller.tool)
    }

    fn turn_attributes(&self, of: &Conversation<'_, '_>, entries: &[&Entry]) -> SpanAttributes {
        let mut attributes = self.attributes(of, "invoke_agent");
        attributes.text("gen_ai.agent.name", self.agent(of));
        let answers = || entries.iter().rev().filter(|entry| entry.is_model());
        let reply = answers().find_map(|entry| entry.message.reply.as_deref());
        let model = reply.and_then(|reply| reply.model.as_deref());
        attributes.text("gen_ai.provider.name", provider_name(reply));
        attributes.known("gen_ai.request.model", model);
        if self.options.messages {
            let asked = entries.iter().take_while(|entry| !entry.is_model());
            let asked: Vec<Read<'_>> = asked.map(|entry| Read::Message(entry)).collect();
            attributes.text("gen_ai.input.messages", self.input(&asked));
            if let Some(entry) = answers().next() {
                let looked = Looked::new(entry, self.trace.look());
                let answer = messages::output(looked.message());
                attributes.text("gen_ai.output.messages", answer);
            }
            self.put_setting(of, &mut attributes);
        }
        if of.is_main {
            attributes.known("gen_ai.agent.version", self.options.version);
            for (key, value) in self.options.attributes {
                attributes.value(key, value);
            }
        }
        attributes
    }

    fn turn_failure(&self, entries: &[&Entry]) -> Option<String> {
        let last = entries.iter().rev().find(|entry| entry.is_model())?;
        let looked = Looked::new(last, self.trace.look());
        failure(looked.message()).map(str::to_owned)
    }
}
