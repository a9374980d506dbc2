//! Which halves of pairs are sent: a provider refuses one whose other half is not.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::log::message::Message;
use crate::log::part::{Content, Part};
use crate::log::served::PartPlace;
use crate::log::Log;
use crate::view::cover::{cover_over, Covers};
use crate::view::masks::Masks;

/// What decides whether the other half of a pair is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pairs<'a> {
    pub log: &'a Log,
    pub covers: Option<&'a Covers>,
    pub masks: Option<&'a Masks>,
    /// The number of the first iteration that is sent.
    pub from: u64,
    /// Whether the provider knows everything before that.
    pub knows_earlier: bool,
}

impl Pairs<'_> {
    /// What a message says, with the halves withheld whose other halves are not sent; `None`: it has none.
    pub fn content(&self, message: &Message) -> Option<Content> {
        self.key(message)?;
        let mut content = message.content.clone();
        if let Content::Parts(parts) = &mut content {
            for part in parts {
                part.withheld |= self.lacks(part);
            }
        }
        Some(content)
    }

    /// What distinguishes the encodings of a message by its halves that are not sent, if it has any.
    pub fn key(&self, message: &Message) -> Option<u64> {
        let Content::Parts(parts) = &message.content else {
            return None;
        };
        let mut hasher = DefaultHasher::new();
        let lacking = parts
            .iter()
            .enumerate()
            .filter(|(_, part)| self.lacks(part));
        let lacking = lacking.map(|(index, _)| index.hash(&mut hasher)).count();
        (lacking > 0).then(|| hasher.finish())
    }

    /// Whether the other half stands in another message and is not sent.
    fn lacks(&self, part: &Part) -> bool {
        let other = part
            .half()
            .and_then(|half| self.log.split_pairs()?.other(&half));
        other.is_some_and(|other| !self.is_sent(other))
    }

    fn is_sent(&self, place: PartPlace) -> bool {
        if place.iteration < self.from {
            return self.knows_earlier;
        }
        let covered = |covers| cover_over(covers, place.iteration).is_some();
        !self.covers.is_some_and(covered) && self.masks.is_none_or(|masks| self.stays(place, masks))
    }

    /// Whether masks leave a part as it is.
    fn stays(&self, place: PartPlace, masks: &Masks) -> bool {
        let iteration = self.log.numbered(place.iteration);
        let entry = iteration.and_then(|iteration| iteration.entry(place.entry));
        let part = entry.and_then(|entry| match &entry.message.content {
            Content::Parts(parts) => parts.get(place.part),
            _ => None,
        });
        part.is_some_and(|part| masks.part(part).is_some())
    }
}
