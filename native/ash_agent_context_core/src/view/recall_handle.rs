//! Handles: how a model asks for what a view does not show. `17.2-431` is the result of the second call of iteration
//! 17, `17-431` an iteration, and `3..17-431` a range of them.
//!
//! The digits at the end are a checksum of the text there. Numbers of iterations are used again after a rewind, and an older
//! handle must not return another text in their place.

use std::fmt;

use crate::log::call::ToolCall;
use crate::log::iteration::Iteration;
use crate::log::message::{Message, Outcome, Output};
use crate::log::part::{Content, Part};

/// The name of the tool that handles are for.
pub(crate) const RECALL: &str = "recall";

/// A checksum has three digits, which are one token.
const CHECKS: u64 = 1_000;

/// The place that a handle names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecallPlace {
    /// The result of a call.
    Result {
        /// The number of the iteration.
        iteration: u64,
        /// The number of the call in it, from 1.
        call: usize,
    },
    /// Iterations, the first and the last.
    Iterations(u64, u64),
}

/// A place in the log, with a checksum of its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecallHandle {
    /// The place.
    pub of: RecallPlace,
    check: Checksum,
}

impl RecallHandle {
    pub(crate) fn of_result(iteration: u64, slot: usize, call: &ToolCall, of: &Outcome) -> Self {
        let mut check = Checksum::default();
        check.add_result(call, of);
        Self {
            of: RecallPlace::Result {
                iteration,
                call: slot + 1,
            },
            check: check.end(),
        }
    }

    pub(crate) fn of_iterations<'a>(
        first: u64,
        last: u64,
        iterations: impl Iterator<Item = &'a Iteration>,
    ) -> Self {
        let mut check = Checksum::default();
        for iteration in iterations {
            check.add_iteration(iteration);
        }
        Self::of_checked(first, last, check)
    }

    /// Returns the handle of iterations whose texts have a checksum.
    pub(crate) fn of_checked(first: u64, last: u64, check: Checksum) -> Self {
        Self {
            of: RecallPlace::Iterations(first, last),
            check: check.end(),
        }
    }

    /// Returns the most tokens that it has with the space before it and the bracket after it: three digits make one.
    pub(crate) fn tokens(self) -> u64 {
        let digits = |number: u64| u64::from(number.checked_ilog10().unwrap_or(0) / 3 + 1);
        let (one, other) = match self.of {
            RecallPlace::Result { iteration, call } => (iteration, call as u64),
            RecallPlace::Iterations(first, last) => (first, last),
        };
        digits(one) + digits(other) + 5
    }

    /// Reads a handle, even with marks that a model wrote around it.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let around = |letter: char| letter.is_whitespace() || "\"'`[](),".contains(letter);
        let text = text.trim_matches(around);
        let text = text.strip_prefix(RECALL).map_or(text, str::trim_start);
        let (place, check) = text.trim_matches(around).rsplit_once('-')?;
        let number = |text: &str| -> Option<u64> { text.parse().ok() };
        let of = if let Some((first, last)) = place.split_once("..") {
            RecallPlace::Iterations(number(first)?, number(last)?)
        } else if let Some((iteration, call)) = place.split_once('.') {
            RecallPlace::Result {
                iteration: number(iteration)?,
                call: usize::try_from(number(call)?).ok()?,
            }
        } else {
            RecallPlace::Iterations(number(place)?, number(place)?)
        };
        let check = Checksum::read(check)?;
        Some(Self { of, check })
    }
}

impl fmt::Display for RecallHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of {
            RecallPlace::Result { iteration, call } => write!(f, "{iteration}.{call}-")?,
            RecallPlace::Iterations(first, last) if first == last => write!(f, "{first}-")?,
            RecallPlace::Iterations(first, last) => write!(f, "{first}..{last}-")?,
        }
        write!(f, "{:03}", self.check.0)
    }
}

/// A hash of texts that is the same in every version and on every machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Checksum(u64);

impl Checksum {
    fn read(text: &str) -> Option<Self> {
        let is_check = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_check.then(|| text.parse().ok().map(Self))?
    }

    fn word(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn text(&mut self, text: &[u8]) {
        self.word(text.len() as u64);
        // Eight bytes at a time: a megabyte takes a tenth of a millisecond.
        let (words, rest) = text.as_chunks::<8>();
        words
            .iter()
            .for_each(|word| self.word(u64::from_le_bytes(*word)));
        rest.iter().for_each(|byte| self.word(u64::from(*byte)));
    }

    fn add_result(&mut self, call: &ToolCall, outcome: &Outcome) {
        self.text(call.id.as_bytes());
        self.text(call.name.as_str().as_bytes());
        match &outcome.output {
            Output::Parts(parts) => parts.iter().for_each(|part| self.add_part(part)),
            Output::Value(_) => self.text(outcome.text().unwrap_or_default()),
        }
    }

    fn add_part(&mut self, part: &Part) {
        match part.kind.text() {
            Some(text) => self.text(text),
            None => self.word(1),
        }
    }

    fn add_message(&mut self, message: &Message) {
        self.text(message.role.name().as_bytes());
        match &message.content {
            Content::None => {}
            Content::Text(text) => self.text(text),
            Content::Parts(parts) => parts.iter().for_each(|part| self.add_part(part)),
        }
    }

    pub fn add_iteration(&mut self, iteration: &Iteration) {
        for entry in iteration.entries() {
            self.add_message(&entry.message);
            for (call, outcome) in entry.calls() {
                if let Some(outcome) = outcome {
                    self.add_result(call, outcome);
                }
            }
        }
    }

    fn end(mut self) -> Self {
        self.word(self.0 >> 29);
        Self((self.0 >> 32) % CHECKS)
    }
}
