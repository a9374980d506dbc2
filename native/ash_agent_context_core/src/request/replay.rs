//! Requests that are made again: whether today's code makes of the log what was sent then, and where it first does not.

use crate::context::asked;
use crate::context::looks;
use crate::context::sent::SentNote;
use crate::context::Context;
use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::provider::options::Options;
use crate::request::fingerprint::{find_differing, SentPlace, VERSION};
use crate::view::View;

/// The comparison of a rebuilt request with the one that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayRow {
    /// The number of its iteration.
    pub iteration: u64,
    /// How it compares with what was sent.
    pub outcome: ReplayOutcome,
}

/// How a request that is made again compares with the one that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// It is the same, byte for byte.
    Same,
    /// It is not noted what was sent.
    Unnoted,
    /// Its system prompt is not kept: it is another one than that of the conversation.
    OtherPrompt,
    /// Its masks are not kept: they are others than those of the conversation.
    OtherMasks,
    /// It differs as an earlier one does, and in nothing else that is known.
    Follows,
    /// It differs.
    Different(Deviation),
}

/// Where a request that is made again first differs, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deviation {
    /// Why.
    pub cause: DeviationCause,
    /// The message or result that differs, if it is one that the request before had not.
    pub place: Option<SentPlace>,
}

/// Why a request that is made again differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviationCause {
    /// Its view is kept otherwise.
    View,
    /// Another version made it, this one.
    Version(Box<str>),
    /// The log has another message, or another result.
    Log,
}

impl Context {
    /// Makes each request again that an answer is kept of, under the view and the options that it had, and compares it with the digests
    /// that are kept of what was sent.
    ///
    /// # Complexity
    /// O(n) for encoding, and for each request O(messages) in pieces
    #[must_use]
    pub fn replay(&self) -> Vec<ReplayRow> {
        let mut differs = false;
        let mut rows = Vec::new();
        for iteration in self.iterations() {
            let answered = |entry: &Entry| entry.is_model() && entry.message.reply.is_some();
            if !iteration.entries().any(answered) {
                continue;
            }
            let outcome = self.replay_one(iteration, differs);
            differs |= matches!(outcome, ReplayOutcome::Different(_));
            rows.push(ReplayRow {
                iteration: iteration.number,
                outcome,
            });
        }
        rows
    }

    /// `follows`: an earlier request differs.
    fn replay_one(&self, iteration: &Iteration, follows: bool) -> ReplayOutcome {
        let sent = self.asked.sent.at(iteration.number);
        let Some(note) = sent.and_then(SentNote::read) else {
            return ReplayOutcome::Unnoted;
        };
        let Some((context, options)) = self.make_again(iteration) else {
            return ReplayOutcome::Unnoted;
        };
        if context.find_sent(&options, &note).is_some() {
            return ReplayOutcome::Same;
        }
        let masks = context.view().and_then(View::masks);
        if self.asked.masks_of(iteration.number) != masks.map(asked::digest_masks).as_ref() {
            return ReplayOutcome::OtherMasks;
        }
        let view = looks::digest(context.view());
        let place = context.first_differing(iteration.number, &options, &note);
        let is_changed = note.view.is_some_and(|noted| noted != view);
        let other = note.version.filter(|version| *version != VERSION);
        let cause = match (is_changed, other) {
            (true, _) => DeviationCause::View,
            (false, Some(version)) => DeviationCause::Version(version.into()),
            (false, None) => DeviationCause::Log,
        };
        if place.is_some() || is_changed {
            return ReplayOutcome::Different(Deviation { cause, place });
        }
        let system = self.asked.systems.of(iteration.number);
        if system.is_some_and(|(_, noted)| *noted != asked::digest(self.system())) {
            return ReplayOutcome::OtherPrompt;
        }
        match follows {
            true => ReplayOutcome::Follows,
            false => ReplayOutcome::Different(Deviation { cause, place }),
        }
    }

    /// The first message or result that is not what was sent, of those that the request before had not.
    fn first_differing(
        &self,
        number: u64,
        options: &Options<'_>,
        note: &SentNote<'_>,
    ) -> Option<SentPlace> {
        // Older notes have the digest of the whole alone.
        note.view?;
        let pieces = self.list_pieces(number, options).ok()?;
        match find_differing(&pieces, &note.pieces) {
            Some(place) => Some(place.clone()),
            // Something that stood at the end is gone.
            None if note.pieces.len() > pieces.len() => {
                pieces.last().map(|piece| piece.place.clone())
            }
            None => None,
        }
    }
}
