//! Which halves of pairs are sent: a provider refuses one whose other half is not.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::log::call::ToolCall;
use crate::log::iteration::Iteration;
use crate::log::message::Message;
use crate::log::part::{Content, Part};
use crate::log::served::{Half, PartPlace, SplitPairs};
use crate::log::Log;
use crate::value::Map;
use crate::view::cover::{cover_over, Covers};
use crate::view::masks::Masks;

/// The facts that decide about the other half of a pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pairs<'a> {
    pub log: &'a Log,
    pub covers: Option<&'a Covers>,
    pub masks: Option<&'a Masks>,
    /// The number of the first iteration that is sent.
    pub from: u64,
    /// The provider knows everything before that iteration.
    pub knows_earlier: bool,
    /// A use without a result is only sent while its provider may still go on with it.
    pub closes_uses: bool,
}

impl Pairs<'_> {
    /// Returns a message that withholds the halves whose other halves are not sent, and the names of unsent uses in its
    /// calls; `None` if it has none of these.
    pub fn message(&self, message: &Message) -> Option<Message> {
        self.key(message)?;
        let mut content = message.content.clone();
        if let Content::Parts(parts) = &mut content {
            for part in parts {
                part.withheld |= self.lacks(part);
            }
        }
        let mut calls = message.calls.clone();
        for call in calls.iter_mut().filter(|call| self.lacks_program(call)) {
            let metadata = call.provider_metadata.take().unwrap_or_default();
            let entries = metadata.into_entries().into_iter();
            let others = entries.filter(|(key, _)| key.as_name() != Some("caller"));
            call.provider_metadata = Some(Map::new(others.collect()));
        }
        let shown = Message::new(message.role, content, calls, message.metadata.clone());
        Some(shown.with_reply(message.reply.as_deref().cloned()))
    }

    /// Returns a key for the encodings of a message by its halves that are not sent, if it has any.
    pub fn key(&self, message: &Message) -> Option<u64> {
        let halves = message.content.parts().iter().map(|part| self.lacks(part));
        let calls = message.calls.iter().map(|call| self.lacks_program(call));
        let lacking = halves.chain(calls).enumerate().filter(|(_, lacks)| *lacks);
        let mut hasher = DefaultHasher::new();
        let lacking = lacking.map(|(index, _)| index.hash(&mut hasher)).count();
        (lacking > 0).then(|| hasher.finish())
    }

    /// Returns true if the other half is in another message and is not sent, or never came.
    fn lacks(&self, part: &Part) -> bool {
        let Some((half, pairs)) = part.half().zip(self.log.split_pairs()) else {
            return false;
        };
        match pairs.other(&half) {
            Some(other) => !self.is_sent(other),
            None => !half.is_result && self.is_over(&half, pairs),
        }
    }

    /// Returns true if the use whose program made a call is not sent.
    fn lacks_program(&self, call: &ToolCall) -> bool {
        let Some((program, pairs)) = call.program().zip(self.log.split_pairs()) else {
            return false;
        };
        match pairs.places(&program) {
            Some(places) => !places.into_iter().all(|place| self.is_sent(place)),
            None => self.is_over(&program, pairs),
        }
    }

    /// Returns true if a use without a result is followed by anything but the calls of its own program.
    fn is_over(&self, half: &Half, pairs: &SplitPairs) -> bool {
        let Some(place) = pairs.open(half).filter(|_| self.closes_uses) else {
            return false;
        };
        let iterations = self.log.between(place.iteration, u64::MAX);
        let entries = iterations.flat_map(Iteration::entries);
        let mut behind = entries.skip(place.entry + 1);
        behind.any(|entry| {
            let mut calls = entry.message.calls.iter();
            !calls.any(|call| call.program().as_ref() == Some(half))
        })
    }

    fn is_sent(&self, place: PartPlace) -> bool {
        if place.iteration < self.from {
            return self.knows_earlier;
        }
        let covered = |covers| cover_over(covers, place.iteration).is_some();
        !self.covers.is_some_and(covered) && self.stays(place)
    }

    /// Returns true if the message of a part goes back to its provider, and masks do not change the part.
    fn stays(&self, place: PartPlace) -> bool {
        let iteration = self.log.get_numbered(place.iteration);
        let entry = iteration.and_then(|iteration| iteration.entry(place.entry));
        entry.is_some_and(|entry| {
            let part = entry.message.content.parts().get(place.part);
            let is_same = |masks: &Masks| part.is_some_and(|part| masks.part(part).is_some());
            let reply = entry.message.reply.as_ref();
            let left_out = reply.is_some_and(|reply| reply.left_out_by().is_some());
            !left_out && self.masks.is_none_or(is_same)
        })
    }
}
