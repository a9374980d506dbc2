//! The last request that a rewind cut off, which the provider still has in its cache.

use crate::context::sent::SentNote;
use crate::context::view_digest;
use crate::context::Context;
use crate::log::provider::Provider;
use crate::prices::usage::Usage;
use crate::value::time::{self, Time};
use crate::value::Value;
use crate::view::View;

/// So many digests of messages are kept.
const PIECES: usize = 32;

/// The word for an unknown value.
const UNKNOWN: &str = "-";

/// The last request that was sent before a rewind.
#[derive(Debug)]
pub(crate) struct Rewound<'a> {
    /// The iteration that became the current one.
    pub number: u64,
    pub provider: Option<Provider>,
    /// The tokens of the request: all of them, and those read from the cache and written to it.
    pub usage: Usage,
    /// The time of its answer.
    pub ended_at: Option<Time>,
    /// The digest of its view, as the rewind leaves it.
    pub looks: &'a str,
    /// The digests of its messages after the end of the rewound iteration, oldest first.
    pub pieces: Vec<&'a str>,
}

impl<'a> Rewound<'a> {
    fn read(number: u64, note: &'a Value) -> Option<Self> {
        let mut words = note.as_str()?.split(' ');
        let provider = Provider::from_name(words.next()?);
        let mut count = || words.next()?.parse().ok();
        let usage = Usage {
            input: count()?,
            cached: count()?,
            written: count()?,
            ..Usage::default()
        };
        let ended_at = words.next()?.parse().ok();
        Some(Self {
            number,
            provider,
            usage,
            ended_at: ended_at.and_then(time::from_micros),
            looks: words.next()?,
            pieces: words.collect(),
        })
    }

    fn write(&self) -> Value {
        let provider = self.provider.map_or(UNKNOWN, |provider| provider.name());
        let ended_at = self.ended_at.map(|at| at.timestamp_micros().to_string());
        let ended_at = ended_at.as_deref().unwrap_or(UNKNOWN);
        let (usage, looks) = (self.usage, self.looks);
        let mut note = format!(
            "{provider} {} {} {} {ended_at} {looks}",
            usage.input, usage.cached, usage.written
        );
        for piece in self.pieces.iter().take(PIECES) {
            note.push(' ');
            note.push_str(piece);
        }
        Value::text(&note)
    }
}

impl Context {
    /// Returns the last request, if it was cut off, no other one was sent since, and the view is still the same.
    pub(crate) fn rewound(&self) -> Option<Rewound<'_>> {
        let (number, note) = self.inputs.rewound.of(u64::MAX)?;
        let last = self.last_answer().map(|(last, _)| last.number);
        let rewound = Rewound::read(number, note)?;
        let is_last = last.is_none_or(|last| last <= number);
        (is_last && rewound.looks == view_digest::digest(self.view())).then_some(rewound)
    }

    /// Keeps the last request if it was cut off: `next` is this conversation after the rewind.
    pub(crate) fn keep_rewound(&self, next: &mut Self) {
        if let Some(note) = self.note_rewound(next) {
            let number = next.current_iteration();
            // Two rewinds, to different iterations, may cut off the same request.
            next.inputs_mut().rewound.put(number, note);
            next.weigh_view();
        }
    }

    /// Returns nothing if it is kept already, or no request was cut off; or if that had other inputs beside its messages than
    /// the remaining iteration, or hid iterations that are shown now.
    fn note_rewound(&self, next: &Self) -> Option<Value> {
        let to = next.current_iteration();
        let turn = next.turn();
        // A rewind makes covers that go on after it shorter, or removes them.
        let is_shown_again = |view: &View| view.covers().any(|(_, cover)| cover.last >= turn);
        if let Some(mut rewound) = self.rewound() {
            let looks = view_digest::digest(next.view());
            let between = self.asked_pieces(to, rewound.number);
            rewound.pieces = between.chain(rewound.pieces).collect();
            rewound.looks = &looks;
            let is_cut = rewound.number > to && !self.view().is_some_and(is_shown_again);
            return is_cut.then(|| rewound.write());
        }
        let (last, entry) = self.last_answer().filter(|(last, _)| last.number > to)?;
        let reply = entry.message.reply.as_deref()?;
        reply.requested_at?;
        let (_, view) = self.inputs.of(last.number)?;
        let is_hidden = view.is_some_and(|view| is_shown_again(view));
        let [fields, tools, systems, _sent, masks, _rewound] = self.inputs.notes();
        let beside = [fields, tools, systems, masks];
        if is_hidden || beside.iter().any(|noted| noted.goes_on(to)) {
            return None;
        }
        let mut shown = next.clone();
        shown.view = view.cloned();
        shown.cut_view();
        let rewound = Rewound {
            number: to,
            provider: reply.provider,
            usage: entry.usage.as_deref()?.last,
            ended_at: reply.ended_at(),
            looks: &view_digest::digest(shown.view()),
            pieces: self.asked_pieces(to, last.number).collect(),
        };
        Some(rewound.write())
    }

    /// Returns the digests that are noted of the requests after an iteration up to another one.
    fn asked_pieces(&self, after: u64, to: u64) -> impl Iterator<Item = &str> {
        let numbers = (after.saturating_add(1)..=to).take(PIECES);
        let notes = numbers.filter_map(|number| self.inputs.sent.at(number));
        let notes = notes.filter_map(SentNote::read);
        notes.flat_map(|note| note.pieces).take(PIECES)
    }
}
