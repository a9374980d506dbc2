//! The order of a model's parts and calls, and the changes that a provider needs in it.

use crate::log::call::ToolCall;
use crate::log::message::Message;
use crate::log::part::{Content, Part};
use crate::provider::writer::Writer;
use crate::view::change::ChangeKind;
use crate::view::checking::Checking;

/// A part or a call of the model.
#[derive(Clone, Copy)]
pub(crate) enum PartOrCall<'a> {
    Part(&'a Part),
    Call(&'a ToolCall),
}

impl<'a> PartOrCall<'a> {
    pub const fn part(&self) -> Option<&'a Part> {
        match self {
            Self::Part(part) => Some(*part),
            Self::Call(_) => None,
        }
    }

    pub const fn call(&self) -> Option<&'a ToolCall> {
        match self {
            Self::Call(call) => Some(*call),
            Self::Part(_) => None,
        }
    }
}

/// Returns a model's parts and calls in order. Calls follow all parts unless they have a number of parts before them.
pub(crate) fn in_order<'a>(content: &'a Content, calls: &'a [ToolCall]) -> Vec<PartOrCall<'a>> {
    let parts = content.parts();
    let mut said = Vec::with_capacity(parts.len() + calls.len());
    let mut calls = calls.iter().peekable();
    for (index, part) in parts.iter().enumerate() {
        while let Some(call) = calls.next_if(|call| call.parts_before() <= index) {
            said.push(PartOrCall::Call(call));
        }
        said.push(PartOrCall::Part(part));
    }
    said.extend(calls.map(PartOrCall::Call));
    said
}

/// Returns the parts and calls in an order that the provider takes, and the calls that had to move. A call before a part that
/// `leads`, with no thinking between them, goes after all parts up to the next thinking, and so do the calls beside it. Nothing
/// moves past thinking, which providers compare with what they sent.
pub(crate) fn calls_behind<'a>(
    said: &[PartOrCall<'a>],
    thinks: impl Fn(&Part) -> bool,
    leads: impl Fn(&Part) -> bool,
) -> (Vec<PartOrCall<'a>>, Vec<&'a ToolCall>) {
    let (mut arranged, mut moved) = (Vec::with_capacity(said.len()), Vec::new());
    for stretch in said.chunk_by(|_, next| !next.part().is_some_and(&thinks)) {
        let mut ones = stretch.iter();
        let last = ones.rposition(|one| one.part().is_some_and(&leads));
        let first = stretch.iter().position(|one| one.call().is_some());
        if first.zip(last).is_none_or(|(first, last)| first > last) {
            arranged.extend_from_slice(stretch);
            continue;
        }
        arranged.extend(stretch.iter().filter(|one| one.part().is_some()));
        arranged.extend(stretch.iter().filter(|one| one.call().is_some()));
        let end = stretch.iter().rposition(|one| one.part().is_some());
        let before = stretch.iter().take(end.unwrap_or(0));
        moved.extend(before.filter_map(PartOrCall::call));
    }
    (arranged, moved)
}

/// A test of a part, in the request that is written.
type TestPart = fn(&Part, &Writer<'_>) -> bool;

impl Writer<'_> {
    /// Returns the model's parts and calls in order, apart from calls that have to move, see [`calls_behind`]. If the message is
    /// not as its provider gave it, thinking after words moves before them: in the mode in which the provider refuses that, no
    /// answer has thinking there. Models that check what stands before their thinking would refuse it.
    pub fn arrange<'a>(
        &mut self,
        message: &'a Message,
        thinks: TestPart,
        leads: TestPart,
    ) -> Vec<PartOrCall<'a>> {
        let said = in_order(&message.content, &message.calls);
        let (mut said, moved) =
            calls_behind(&said, |part| thinks(part, self), |part| leads(part, self));
        for call in moved {
            self.report_change(ChangeKind::MovedCall, &call.id, None);
        }
        let is_lost = |part: &Part| part.kind.is_thinking() && !thinks(part, self);
        let is_whole = !said.iter().filter_map(PartOrCall::part).any(is_lost);
        let checking = Checking::of(self.options.provider, self.options.model);
        let is_checked = checking.is_some_and(|checking| checking.binds_any(message));
        if is_checked || (is_whole && message.is_as_given_by(self.options.provider)) {
            return said;
        }
        let words = said.iter().map_while(PartOrCall::part);
        let mut words = words.take_while(|part| !part.is_block_of(self.options.provider));
        let first = words.clone().position(|part| thinks(part, self));
        let first = first.filter(|first| words.by_ref().take(*first).any(|part| self.says(part)));
        if let Some(lead) = first.and_then(|first| said.get_mut(..=first)) {
            lead.rotate_right(1);
            let moved = lead.first().and_then(PartOrCall::part);
            let kind = moved.map(|part| part.kind.name()).unwrap_or_default();
            self.report_change(ChangeKind::MovedPart, kind, None);
        }
        said
    }

    /// Returns the model's parts, with all calls after them.
    pub fn calls_last<'a>(&mut self, message: &'a Message) -> Vec<PartOrCall<'a>> {
        self.arrange(message, |_, _| false, |part, out| out.says(part))
    }

    /// Reports calls that stood among the parts, for a provider where calls have a list of their own.
    pub fn list_calls(&mut self, message: &Message) {
        let mut calls = message.calls.iter();
        if calls.any(|call| call.parts_before() < usize::MAX) {
            self.calls_last(message);
        }
    }

    /// Returns the end of the model's last words. Only thinking follows, and providers refuse a message that ends with it.
    pub fn find_spoken_end(&self, said: &[PartOrCall<'_>], thinks: TestPart) -> usize {
        let is_spoken = |one: &PartOrCall<'_>| match one {
            PartOrCall::Call(_) => true,
            PartOrCall::Part(part) => !thinks(part, self) && self.says(part),
        };
        said.iter().rposition(is_spoken).map_or(0, |last| last + 1)
    }
}
