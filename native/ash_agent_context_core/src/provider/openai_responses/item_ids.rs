//! Decides which ids of an answer's items go back.

use std::collections::HashSet;

use super::texts::{is_content_part, is_empty_message, returning_id};
use super::PROVIDER;
use crate::log::ids::is_item;
use crate::log::part::Part;
use crate::log::provider::Provider;
use crate::provider::order::PartOrCall;
use crate::provider::writer::Writer;
use crate::value::letters::is_plain;

/// The ids of an answer's items.
pub(super) struct ItemIds<'a> {
    /// True if any of them go back.
    are_kept: bool,
    /// True if the server has ids of its own form. OpenAI's begin with the kind of the item.
    are_foreign: bool,
    /// The ids of reasoning that goes back.
    of_reasoning: HashSet<&'a str>,
}

impl<'a> ItemIds<'a> {
    pub fn of(said: &[PartOrCall<'a>], out: &Writer<'_>) -> Self {
        let ids = find_returning(said, out);
        let mut ids = Self {
            are_kept: true,
            are_foreign: ids.iter().any(|(_, id)| !id.starts_with("rs")),
            of_reasoning: HashSet::new(),
        };
        let sent = ids.without_led(said, out);
        // Reasoning is refused that no item follows ("... was provided without its required following item").
        let end = sent.iter().rposition(|one| !thinks(one));
        let before = sent
            .get(..end.map_or(0, |last| last + 1))
            .unwrap_or_default();
        let free = find_returning(before, out).into_iter();
        let free = free.filter(|(part, _)| !part.withheld);
        ids.of_reasoning = free.map(|(_, id)| id).collect();
        ids.are_kept = ids.fit(before, out);
        ids
    }

    /// Returns the items to send, without reasoning right before other reasoning: OpenAI gives both, and takes the last alone
    /// (openai/codex#1235).
    fn without_led(&self, said: &[PartOrCall<'a>], out: &Writer<'_>) -> Vec<PartOrCall<'a>> {
        let says = |part: &Part| is_thought(part) || out.says(part) || is_empty_message(part);
        let is_sent = |one: &&PartOrCall<'a>| one.part().is_none_or(says);
        let sent: Vec<PartOrCall<'a>> = said.iter().filter(is_sent).copied().collect();
        let next = sent.iter().skip(1).map(thinks).chain([false]);
        let is_led =
            |(one, next): &(&PartOrCall<'a>, bool)| thinks(one) && *next && !self.are_foreign;
        let stays = sent.iter().zip(next).filter(|pair| !is_led(pair));
        stays.map(|(one, _)| *one).collect()
    }

    /// Returns whether all reasoning goes back before the item that followed from it. The API refuses an item with an id if its
    /// reasoning is missing ("... was provided without its required 'reasoning' item"), and reasoning without its item.
    fn fit(&self, sent: &[PartOrCall<'a>], out: &Writer<'_>) -> bool {
        let mut is_item = false;
        for one in sent.iter().rev() {
            is_item = match one {
                PartOrCall::Call(_) => true,
                PartOrCall::Part(part) if is_thought(part) => {
                    if !is_item || self.of_reasoning(part, out).is_none() {
                        return false;
                    }
                    true
                }
                PartOrCall::Part(part) => self.of_text(part, out).is_some() || is_answer(part, out),
            };
        }
        true
    }

    /// Returns the id of the message that a text was.
    pub fn of_text<'p>(&self, part: &'p Part, out: &Writer<'_>) -> Option<&'p str> {
        let id = part.provider_text("id").filter(|id| self.take(id, "msg"))?;
        let is_text = part.kind.is_text();
        (is_text && part.is_of(out.options) && !part.withheld).then_some(id)
    }

    /// Returns the id of reasoning. A server with ids of its own form may use one twice in an answer.
    pub fn of_reasoning<'p>(&self, part: &'p Part, out: &Writer<'_>) -> Option<&'p str> {
        let id = returning_id(part, out.options).filter(|id| self.take(id, "rs"))?;
        let is_free = !part.withheld || self.are_foreign;
        (is_free && self.of_reasoning.contains(id)).then_some(id)
    }

    /// Returns whether an item whose ids have this prefix goes back with its id.
    pub fn take(&self, id: &str, prefix: &str) -> bool {
        let fits = match self.are_foreign {
            true => !id.is_empty() && id.bytes().all(is_plain),
            false => is_item(id, prefix),
        };
        self.are_kept && fits
    }
}

fn thinks(one: &PartOrCall<'_>) -> bool {
    one.part().is_some_and(is_thought)
}

/// Returns whether a part is reasoning, and not another provider's.
fn is_thought(part: &Part) -> bool {
    let provider = Provider::of(part.provider_metadata.as_ref());
    part.kind.thoughts().is_some() && provider.is_none_or(|of| of == PROVIDER)
}

/// Returns the reasoning that can go back, with its ids.
fn find_returning<'a>(said: &[PartOrCall<'a>], out: &Writer<'_>) -> Vec<(&'a Part, &'a str)> {
    let parts = said.iter().filter_map(PartOrCall::part);
    let reasoning = parts.filter_map(|part| Some((part, returning_id(part, out.options)?)));
    reasoning.collect()
}

/// Returns whether a part is an item of the model, and not the output of a tool of the provider.
fn is_answer(part: &Part, out: &Writer<'_>) -> bool {
    let is_result = part.half().is_some_and(|half| half.is_result);
    part.kind.block().is_some_and(|(provider, data)| {
        provider == out.options.provider && !is_content_part(data) && !is_result
    })
}
