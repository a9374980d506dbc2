//! Responses that somebody else reads: their content is pushed, not fed as bytes.

use crate::fault::Fault;
use crate::prices::bill::Report;
use crate::provider::draft::{Draft, Key};
use crate::provider::event::Event;
use crate::value::Value;

use super::{Reading, Response};

/// A piece of a model's answer.
#[derive(Debug)]
pub enum Delta<'a> {
    /// More text.
    Text(&'a str),
    /// More reasoning.
    Thinking(&'a str),
    /// A call begins: its number, id and name.
    CallStarted(u64, &'a str, &'a str),
    /// More of the JSON text of a call's arguments.
    CallArguments(u64, &'a str),
    /// The tokens that were counted so far. A report that cannot be read is left out.
    Usage(Value),
    /// Why the model stopped, by the name of a [`Finish`](crate::Finish) or in another word. This completes the response, and the
    /// calls in it whose arguments are complete.
    Finish(&'a str),
}

impl Delta<'_> {
    /// Returns the bytes of its texts.
    #[must_use]
    pub const fn count_bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Thinking(text) | Self::CallArguments(_, text) => text.len(),
            Self::CallStarted(_, id, name) => id.len() + name.len(),
            Self::Usage(_) | Self::Finish(_) => 0,
        }
    }
}

impl Response {
    /// Returns a response of no known provider, to [`push`](Self::push) to.
    #[must_use]
    pub fn neutral(reading: &Reading<'_>) -> Self {
        let mut response = Self::new(reading);
        response.draft.is_neutral = true;
        response
    }

    /// Returns the response with the next pieces, and their events. `budget`: the most bytes of arguments to parse at once. Bytes
    /// after the end are ignored.
    ///
    /// # Errors
    /// [`Fault::TooLarge`], [`Fault::Interrupted`]; [`Fault::TooMuchWork`] when the budget is too small.
    ///
    /// # Complexity
    /// O(bytes of the pieces), and the arguments of the calls that they complete
    pub fn push(&self, deltas: &[Delta<'_>], budget: usize) -> Result<(Self, Vec<Event>), Fault> {
        if !self.is_open()? {
            return Ok((self.clone(), Vec::new()));
        }
        let mut next = self.receive(deltas.iter().map(Delta::count_bytes).sum())?;
        next.draft.budget = budget;
        let pushed = deltas.iter().try_for_each(|delta| next.draft.push(delta));
        next.settle(pushed, true)
    }
}

impl Draft {
    fn push(&mut self, delta: &Delta<'_>) -> Result<(), Fault> {
        if self.ended {
            return Ok(());
        }
        match delta {
            Delta::Text(text) => self.push_text(text, false),
            Delta::Thinking(text) => self.push_text(text, true),
            Delta::CallStarted(call, id, name) => {
                self.open_call(Key::Call(*call), Some(id), Some(name));
            }
            Delta::CallArguments(call, json) => self.arguments(&Key::Call(*call), json),
            Delta::Usage(report) => {
                if let Ok(report) = Report::read(report) {
                    self.set_usage(report);
                }
            }
            Delta::Finish(word) => {
                self.end_without_reason()?;
                self.finish_by(word);
            }
        }
        Ok(())
    }

    fn push_text(&mut self, text: &str, thinks: bool) {
        let key = self.last_text(thinks).unwrap_or_else(|| self.next_key());
        self.say(key, text, thinks);
    }
}
