//! Rebuilds requests: whether today's code makes from the log the bytes that were sent, and where the first difference is.

use crate::context::inputs;
use crate::context::sent::SentNote;
use crate::context::view_digest;
use crate::context::Context;
use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::provider::options::Options;
use crate::request::fingerprint::{find_differing, SentChange, SentPlace, VERSION};
use crate::view::View;

/// The comparison of a rebuilt request with the one that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayRow {
    /// The number of its iteration.
    pub iteration: u64,
    /// How it compares with what was sent.
    pub outcome: ReplayOutcome,
}

/// The result of comparing a rebuilt request with the one that was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// It is the same, byte for byte.
    Same,
    /// Its note has no digest.
    Unnoted,
    /// Its system prompt is not kept; the conversation has another one now.
    OtherPrompt,
    /// Its masks are not kept; the conversation has other ones now.
    OtherMasks,
    /// It differs as an earlier request does, and as far as is known in nothing else.
    Follows,
    /// It differs.
    Different(Deviation),
}

/// The first difference of a rebuilt request, and its cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deviation {
    /// The reason for it.
    pub cause: DeviationCause,
    /// The message or result that differs, if the request before did not have it, or the place of one that is gone.
    pub place: Option<SentPlace>,
    /// How it differs.
    pub change: SentChange,
}

/// The cause of a difference in a rebuilt request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviationCause {
    /// Its view is kept in another form.
    View,
    /// It was made by this other version.
    Version(Box<str>),
    /// The log has another message or result.
    Log,
}

impl Context {
    /// Rebuilds each request whose answer is in the log, with its own view and options, and compares it with the digests that
    /// were noted when it was sent.
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
        let sent = self.inputs.sent.at(iteration.number);
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
        if self.inputs.masks_of(iteration.number) != masks.map(inputs::digest_masks).as_ref() {
            return ReplayOutcome::OtherMasks;
        }
        let view = view_digest::digest(context.view());
        let place = context.first_differing(iteration.number, &options, &note);
        let is_changed = note.view.is_some_and(|noted| noted != view);
        let other = note.version.filter(|version| *version != VERSION);
        let cause = match (is_changed, other) {
            (true, _) => DeviationCause::View,
            (false, Some(version)) => DeviationCause::Version(version.into()),
            (false, None) => DeviationCause::Log,
        };
        let (place, change) = place.unzip();
        let change = change.unwrap_or(SentChange::Other);
        let deviation = Deviation {
            cause,
            place,
            change,
        };
        if deviation.place.is_some() || is_changed {
            return ReplayOutcome::Different(deviation);
        }
        let system = self.inputs.systems.of(iteration.number);
        if system.is_some_and(|(_, noted)| *noted != inputs::digest(self.system())) {
            return ReplayOutcome::OtherPrompt;
        }
        match follows {
            true => ReplayOutcome::Follows,
            false => ReplayOutcome::Different(deviation),
        }
    }

    /// Returns where the messages and results that the request before did not have first differ from those that were sent.
    fn first_differing(
        &self,
        number: u64,
        options: &Options<'_>,
        note: &SentNote<'_>,
    ) -> Option<(SentPlace, SentChange)> {
        // Older notes have only the digest of the whole.
        note.view?;
        let items = self.list_sent_items(number, options).ok()?;
        let sent: Vec<&str> = note.pieces.clone().collect();
        let (at, change) = find_differing(&items, &sent)?;
        let found = items.get(at).map(|item| item.place.clone());
        // Something at the end is gone.
        let end = || {
            let last = items.last().map(|item| &item.place);
            let last = last.filter(|last| last.iteration == number);
            let leads = self.get_numbered(number).is_some_and(|of| self.leads(of));
            SentPlace {
                iteration: number,
                position: last.map_or(usize::from(leads), |last| last.position + 1),
                call: None,
            }
        };
        Some((found.unwrap_or_else(end), change))
    }
}
