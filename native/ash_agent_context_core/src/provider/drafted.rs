//! Turns a response into the content and the calls of a message.

use std::collections::HashSet;

use crate::log::call::ToolCall;
use crate::log::part::{Content, Part, PartKind};
use crate::log::provider::Provider;
use crate::provider::block::{Block, BlockKind};
use crate::provider::draft::Draft;
use crate::provider::facts::Rule;
use crate::provider::foreign::{join_details, metadata, order_calls, part};
use crate::value::Value;

/// The message of a response, to put on a conversation.
#[derive(Debug)]
pub(crate) struct Drafted {
    pub content: Content,
    pub calls: Vec<ToolCall>,
    /// True for each call that is complete.
    pub done: Vec<bool>,
}

/// A part with its place among those that were shown, from 1.
type PlacedPart = (usize, Part);

/// Puts the notes on the model's thinking beside it. If there is no thinking, they become a part before all others, with the text
/// in them.
fn put_details(
    parts: &mut Vec<PlacedPart>,
    details: Vec<Value>,
    provider: Provider,
    asked: Option<&str>,
) {
    if details.is_empty() {
        return;
    }
    let key = Value::atom("reasoning_details");
    let details = Value::List(details.into_boxed_slice());
    let thinks = |(_, part): &&mut PlacedPart| part.kind.thoughts().is_some();
    if let Some((_, part)) = parts.iter_mut().find(thinks) {
        let metadata = part.provider_metadata.take().unwrap_or_default();
        part.provider_metadata = Some(metadata.put(key, details));
        return;
    }
    let words = join_details(&details).into_bytes().into();
    let metadata = metadata(provider, &[("model", asked)]).put(key, details);
    let part = part(PartKind::Thinking(words), Some(metadata));
    parts.insert(0, (0, part));
}

/// Leaves out the use of a provider's own tool if its result did not come.
fn keep_pairs(parts: &mut Vec<PlacedPart>) {
    let halves = parts.iter().filter_map(|(_, part)| part.half());
    let results = halves.filter(|half| half.is_result);
    let answered: HashSet<String> = results.map(|half| half.key).collect();
    let is_kept = |(_, part): &PlacedPart| {
        let half = part.half();
        half.is_none_or(|half| !half.waits || answered.contains(&half.key))
    };
    parts.retain(is_kept);
}

impl Draft {
    /// Returns the message as far as it came. If the response broke off, parts that its provider would refuse are left out.
    pub fn message_so_far(&self, is_complete: bool) -> Drafted {
        let asked = self.head.asked.as_deref();
        let named = (!self.is_neutral).then_some(self.provider);
        let mut numbered: Vec<(usize, &Block)> = self
            .blocks
            .iter()
            .filter_map(|block| Some((block.number?, block)))
            .collect();
        numbered.sort_by_key(|(number, _)| *number);
        let details = self.thinking_details();
        let (mut parts, mut calls, mut done) = (Vec::new(), Vec::new(), Vec::new());
        for (number, block) in numbered {
            if let BlockKind::Call(call) = &block.kind {
                calls.push((call.before, block.call(call)));
                done.push(block.done);
            } else {
                let part = block.part_of(named, asked, is_complete);
                parts.extend(part.map(|part| (number + 1, part)));
            }
        }
        put_details(&mut parts, details, self.provider, asked);
        if !is_complete {
            keep_pairs(&mut parts);
        }
        let (places, parts): (Vec<usize>, Vec<Part>) = parts.into_iter().unzip();
        let place = |(before, call): (usize, ToolCall)| match self
            .provider
            .facts()
            .has(Rule::CallsAnywhere)
        {
            true => (places.partition_point(|place| *place <= before), call),
            false => (parts.len(), call),
        };
        let calls = calls.into_iter().map(place).collect();
        let (content, calls) = order_calls(self.provider, parts, calls);
        Drafted {
            content,
            calls,
            done,
        }
    }

    fn thinking_details(&self) -> Vec<Value> {
        let detail = |block: &Block| match &block.kind {
            BlockKind::Detail { of, field } => {
                let text = Value::Binary(block.text.join().into_boxed_slice());
                Some(Value::Map(of.put(Value::text(field), text)))
            }
            _ => None,
        };
        self.blocks.iter().filter_map(detail).collect()
    }
}
