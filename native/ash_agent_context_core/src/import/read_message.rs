//! Messages of a foreign history while it is read: calls wait for results, which may come later.

use std::collections::{HashMap, VecDeque};

use crate::context::Context;
use crate::log::call::ToolCall;
use crate::log::message::Role;
use crate::log::part::{Content, Part};
use crate::provider::foreign::{declined_call, into_parts};
use crate::provider::listener::ReadResult;
use crate::value::Map;

#[derive(Debug)]
pub enum ReadMessage {
    Other {
        role: Role,
        content: Content,
        metadata: Option<Map>,
    },
    Assistant(Exchanged),
}

/// A message of the model, with the results of its calls.
#[derive(Debug, Default)]
pub struct Exchanged {
    /// The first element of the message.
    pub element: usize,
    pub content: Content,
    /// Parts of later messages that are one turn with this one.
    pub more: Vec<Part>,
    pub metadata: Option<Map>,
    pub calls: Vec<ToolCall>,
    /// The number of calls with each id.
    pub uses: HashMap<Box<str>, usize>,
    pub slots: Vec<Option<ReadResult>>,
    pub filled: usize,
    /// The element of its first result.
    pub answered: Option<usize>,
    pub notes: Vec<Map>,
}

/// The calls with one id in the last message that has any.
#[derive(Debug, Default)]
pub struct SameId {
    pub entry: usize,
    pub slots: VecDeque<usize>,
}

impl SameId {
    /// Returns the first of the calls that has no result yet.
    pub fn next(&mut self, entries: &[ReadMessage]) -> Option<(usize, usize)> {
        let Some(ReadMessage::Assistant(exchanged)) = entries.get(self.entry) else {
            return None;
        };
        while let Some(slot) = self.slots.pop_front() {
            if exchanged.waits(slot) {
                return Some((self.entry, slot));
            }
        }
        None
    }
}

/// The calls without results of the last message that has any, for results without an id.
#[derive(Debug, Default)]
pub struct Latest {
    pub entry: usize,
    pub by_name: HashMap<Box<str>, VecDeque<usize>>,
    pub in_order: VecDeque<usize>,
}

impl Exchanged {
    /// Turns the calls of a model that declined into blocks, if they have no result: they are not run.
    pub fn set_declined_aside(&mut self) {
        let parts = self.content.parts().iter().chain(&self.more);
        let fallbacks = parts.enumerate().filter(|(_, part)| part.is_fallback());
        let Some((last, _)) = fallbacks.last() else {
            return;
        };
        let mut said = into_parts(std::mem::replace(&mut self.content, Content::None));
        said.append(&mut self.more);
        let calls = std::mem::take(&mut self.calls).into_iter();
        let mut calls = calls.zip(std::mem::take(&mut self.slots)).peekable();
        let (mut parts, mut aside) = (Vec::with_capacity(said.len()), Vec::new());
        for (index, part) in said.into_iter().enumerate() {
            while let Some((mut call, slot)) =
                calls.next_if(|(call, _)| call.parts_before() <= index)
            {
                if slot.is_none() && index <= last {
                    aside.push(declined_call(call));
                    continue;
                }
                call.put_parts_before(parts.len());
                self.calls.push(call);
                self.slots.push(slot);
            }
            if part.is_fallback() {
                parts.append(&mut aside);
            }
            parts.push(part);
        }
        for (mut call, slot) in calls {
            if call.parts_before() < usize::MAX {
                call.put_parts_before(parts.len());
            }
            self.calls.push(call);
            self.slots.push(slot);
        }
        self.content = Content::Parts(parts.into_boxed_slice());
    }

    pub fn waits(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(Option::is_none)
    }

    /// Gives ids to the calls that have none, as a context does.
    pub fn name_calls(&mut self, context: &Context) {
        let lead = context.log.system.is_some() && context.count_iterations() == 1;
        let place = context.log.current.count_messages() + usize::from(lead);
        let number = context.current_iteration();
        for (position, call) in self.calls.iter_mut().enumerate() {
            if call.id.is_empty() {
                let mut id = format!("call_{number}_{place}_{position}");
                while self.uses.contains_key(&*id) {
                    id.push('_');
                }
                call.id = id.into();
            }
        }
    }
}

/// Returns the number of a message. Its exchange has the next one.
pub const fn message_number(entry: usize) -> usize {
    2 * entry
}

pub const fn results_number(entry: usize) -> usize {
    2 * entry + 1
}
