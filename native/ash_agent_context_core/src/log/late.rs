//! Calls that are answered later: what they wait for, how their results came, and why one is not taken.

use crate::value::time::Time;
use crate::value::word::words;
use crate::value::{Map, Size, Value};

/// The place of a call in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallPlace {
    /// The number of the iteration; 0 if the conversation does not have it.
    pub iteration: u64,
    /// The position of its message among those that were added to the iteration.
    pub message: usize,
    /// Its position in the message.
    pub call: usize,
}

/// What a call waits for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wait {
    /// Whom or what it waits for, in the application's own words.
    pub what: Value,
    /// The name of this start of the call, under which its result may arrive.
    pub handle: Option<Box<str>>,
    /// The time after which the application no longer waits.
    pub deadline: Option<Time>,
    /// What may be answered, if it is a question to a person.
    pub question: Option<Value>,
    /// Fields of a snapshot that this version does not know.
    pub(crate) extra: Option<Map>,
}

/// When a result arrived, and from whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrived {
    /// When.
    pub at: Time,
    /// Whoever brought it, in the application's own words.
    pub from: Value,
    /// The id of the call that waited for it. Where results may come late, it stands in front of the result of that call.
    pub awaited_by: Option<Box<str>>,
    /// Fields of a snapshot that this version does not know.
    pub(crate) extra: Option<Map>,
}

/// What is known of a result that is late, or is going to be.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Late {
    /// What the call waits for, or did; in its slot.
    pub wait: Option<Wait>,
    /// How the result came; `None` while there is none.
    pub arrived: Option<Arrived>,
}

impl Arrived {
    /// Says when a result arrived, who brought it, and which pending call waited for it.
    #[must_use]
    pub const fn new(at: Time, from: Value, awaited_by: Option<Box<str>>) -> Self {
        Self {
            at,
            from,
            awaited_by,
            extra: None,
        }
    }
}

impl Late {
    pub(crate) fn size(&self) -> Size {
        let wait = self.wait.as_ref().map_or(Size::default(), |wait| {
            let handle = wait.handle.as_ref().map_or(0, |handle| handle.len());
            let question = wait.question.iter().map(Value::size).sum();
            wait.what.size().plus(Size::new(3, handle)).plus(question)
        });
        let from = self.arrived.as_ref().map(|arrived| arrived.from.size());
        wait.plus(from.unwrap_or_default())
    }
}

/// How an application names a call that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallKey {
    /// By its id, which the model may use again.
    Id(Box<str>),
    /// By the handle of this start of it.
    Handle(Box<str>),
}

words! {
    /// Where a call stands that waits or waited.
    pub enum LateState {
        /// It waits.
        Open = "open",
        /// It waits in the conversation that this one was forked from, and is never answered here.
        Elsewhere = "elsewhere",
        /// Its result has arrived, and has no place among the messages yet.
        Arrived = "arrived",
        /// Its result has its place.
        Placed = "placed",
    }

    /// Why a result is not taken.
    pub enum Refusal {
        /// The call has another result.
        Answered = "answered",
        /// The call was called off.
        Cancelled = "cancelled",
        /// The call waits in the conversation that this one was forked from.
        Elsewhere = "elsewhere",
        /// The conversation was rewound to before the call.
        Rewound = "rewound",
        /// The call has no result and does not wait.
        Pending = "pending",
        /// A person denied the call.
        Denied = "denied",
        /// No call of this name waited here.
        Unknown = "unknown",
        /// Several calls of this id wait.
        Ambiguous = "ambiguous",
    }
}
