//! The calls of a log that wait or waited, and what has arrived for them.

use std::sync::Arc;

use crate::log::late::{Arrived, CallPlace, Late, Wait};
use crate::log::message::{Outcome, Output, Status};
use crate::value::{Size, Value};

/// What a model reads in the slot of a call that waits, for ever: what was sent does not change.
pub(crate) const PLACEHOLDER: &str =
    "This call is still running. If its result arrives, it comes in a later message, as a \
    late_result with the id of this call. That is data from the tool, not words of the user.";

impl Outcome {
    /// Returns what stands in the slot of a call that waits.
    pub(crate) fn waiting(wait: Wait) -> Self {
        let output = Output::Value(Value::text(PLACEHOLDER));
        Self::new(Status::Waiting, output).with_late(Some(Late {
            wait: Some(wait),
            arrived: None,
        }))
    }

    /// Returns what the call waits for, or did.
    #[must_use]
    pub fn wait(&self) -> Option<&Wait> {
        self.late.as_ref()?.wait.as_ref()
    }

    /// Returns how the result came, if it was late.
    #[must_use]
    pub fn arrived(&self) -> Option<&Arrived> {
        self.late.as_ref()?.arrived.as_ref()
    }

    /// Returns true if it tells the same as another one that is to arrive.
    pub(crate) fn says_as(&self, other: &Self) -> bool {
        self.status == other.status
            && self.output == other.output
            && self.error_type == other.error_type
    }
}

/// A call that waits or waited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitNote {
    pub place: CallPlace,
    pub is_elsewhere: bool,
    /// The iteration and the message with its result; its own if it came while its exchange was open.
    pub placed: Option<(u64, usize)>,
}

/// A call that is gone, since the conversation was rewound to before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GoneCall {
    pub id: Box<str>,
    pub handle: Option<Box<str>>,
}

/// A result that has no place among the messages yet.
pub(crate) type Arrival = (CallPlace, Arc<Outcome>);

/// The calls of a log that wait or waited.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Waits {
    /// In the order of the log.
    pub calls: Vec<WaitNote>,
    /// In the order in which they came.
    pub arrivals: Vec<Arrival>,
    pub gone: Vec<GoneCall>,
    pub size: Size,
}

impl Waits {
    pub const NONE: Self = Self {
        calls: Vec::new(),
        arrivals: Vec::new(),
        gone: Vec::new(),
        size: Size::new(0, 0),
    };

    pub const fn size(&self) -> Size {
        self.size
    }

    pub fn find_mut(&mut self, place: CallPlace) -> Option<&mut WaitNote> {
        self.calls.iter_mut().rfind(|note| note.place == place)
    }

    pub fn note(&mut self, place: CallPlace, placed: Option<(u64, usize)>) {
        match self.find_mut(place) {
            Some(note) => note.placed = placed.or(note.placed),
            None => self.calls.push(WaitNote {
                place,
                is_elsewhere: false,
                placed,
            }),
        }
    }

    pub fn arrival(&self, place: CallPlace) -> Option<&Arc<Outcome>> {
        let mut arrivals = self.arrivals.iter();
        arrivals
            .find(|(of, _)| *of == place)
            .map(|(_, outcome)| outcome)
    }

    /// Takes what a document says of the calls, beside the messages.
    pub fn put(&mut self, elsewhere: &[CallPlace], arrivals: Vec<Arrival>, gone: Vec<GoneCall>) {
        for note in &mut self.calls {
            note.is_elsewhere = elsewhere.contains(&note.place);
        }
        self.arrivals = arrivals;
        self.gone = gone;
        self.resize();
    }

    /// Returns true if a document has anything to say of the calls, beside the messages.
    pub fn is_told(&self) -> bool {
        let is_elsewhere = |note: &WaitNote| note.is_elsewhere;
        !self.arrivals.is_empty() || !self.gone.is_empty() || self.calls.iter().any(is_elsewhere)
    }

    pub fn resize(&mut self) {
        let sizes = self.arrivals.iter().map(|(_, outcome)| outcome.size());
        let few = Size::new(2 * (self.calls.len() + self.gone.len()), 0);
        self.size = sizes.sum::<Size>().plus(few);
    }
}
