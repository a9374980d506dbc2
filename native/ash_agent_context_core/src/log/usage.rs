//! What providers report of the tokens they counted.

use std::sync::Arc;

use crate::context::Context;
use crate::error::Error;
use crate::log::iteration::{Entry, Iteration};
use crate::log::message::Role;
use crate::log::part::{Content, PartKind};
use crate::tokens::Method;
use crate::value::time::Time;

/// Tokens that a provider counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Of the request, what came from the provider's cache included.
    pub input: u64,
    /// Of the answer, reasoning included.
    pub output: u64,
    /// Of both.
    pub total: u64,
    /// Of the request, what came from the provider's cache.
    pub cached: u64,
    /// Of the answer, what the model thought.
    pub reasoning: u64,
}

/// What was reported for one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reported {
    /// All reports together.
    pub sum: Usage,
    /// The last report.
    pub last: Usage,
    /// What [`Method::Estimate`] made of the view when that report came; see [`Context::count_tokens`].
    pub estimate: u64,
}

impl Usage {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            total: self.total.saturating_add(other.total),
            cached: self.cached.saturating_add(other.cached),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }

    /// What is left without a part.
    #[must_use]
    pub const fn minus(self, part: Self) -> Self {
        Self {
            input: self.input.saturating_sub(part.input),
            output: self.output.saturating_sub(part.output),
            total: self.total.saturating_sub(part.total),
            cached: self.cached.saturating_sub(part.cached),
            reasoning: self.reasoning.saturating_sub(part.reasoning),
        }
    }
}

impl Context {
    /// Notes what a provider reported with the last message of the model.
    ///
    /// # Errors
    /// [`Error::NoAssistantMessage`].
    pub(crate) fn add_usage(&self, last: Usage, at: Time) -> Result<Self, Error> {
        let Some(number) = self
            .iterations_back()
            .find(|iteration| iteration.has_assistant())
            .map(|iteration| iteration.number)
        else {
            return Err(Error::NoAssistantMessage);
        };
        let mut next = self.clone();
        let estimate = self.estimate_up_to(number);
        next.change_iteration(number, |iteration| {
            iteration.report(|before| Reported {
                sum: before.sum.plus(last),
                last,
                estimate,
            });
            iteration.add_to_checkpoint(last);
        });
        for later in number.saturating_add(1)..=self.current_iteration() {
            // A few at most: the model has not spoken in them.
            next.change_iteration(later, |later| {
                later.reported = Some(number);
                later.add_to_checkpoint(last);
            });
        }
        next.usage = next.usage.plus(last);
        next.updated_at = at;
        Ok(next)
    }

    /// What [`Method::Estimate`] makes of the view up to the last message of an iteration's model.
    fn estimate_up_to(&self, number: u64) -> u64 {
        let all = self.tokens(Method::Estimate);
        let behind = self.view_tokens(Method::Estimate, number.saturating_add(1), u64::MAX);
        let last = self.numbered(number).and_then(Iteration::last);
        let exchange = last.and_then(|last| last.exchange.as_deref());
        let results = exchange
            .filter(|_| !self.hides(number))
            .map_or(0, |exchange| {
                let calls = exchange.count_calls();
                let before = self.numbered(number).map_or(0, Iteration::count_calls) - calls;
                exchange.tokens(Method::Estimate, self.look(number).behind(before))
            });
        all.total()
            .saturating_sub(behind.total())
            .saturating_sub(results)
    }

    /// All that providers reported.
    #[must_use]
    pub const fn usage(&self) -> Usage {
        self.usage
    }

    /// The last report, and whether its message has the reasoning that was counted.
    pub(crate) fn last_reported(&self) -> Option<&Entry> {
        let number = self.current.reported?;
        let iteration = self.iteration(i64::try_from(number).ok()?)?;
        let mut entries = iteration.entries().rev();
        entries.find(|entry| entry.usage.is_some())
    }
}

impl Iteration {
    /// A report that came after the iteration's end counts at its end, too.
    fn add_to_checkpoint(&mut self, usage: Usage) {
        if let Some(checkpoint) = &mut self.checkpoint {
            let checkpoint = Arc::make_mut(checkpoint);
            checkpoint.usage = checkpoint.usage.plus(usage);
        }
    }
}

impl Entry {
    /// What the last report says of the conversation's length once its message is part of it. Reasoning
    /// that is not in the message is not sent again.
    pub(crate) fn reported_length(&self) -> Option<(u64, u64)> {
        let reported = self.usage.as_deref()?;
        let kept = match &self.message.content {
            Content::Parts(parts) => parts.iter().any(|part| {
                matches!(
                    part.kind,
                    PartKind::Thinking(_)
                        | PartKind::RedactedThinking(_)
                        | PartKind::ProviderBlock { .. }
                )
            }),
            _ => false,
        };
        let Usage {
            input,
            output,
            reasoning,
            ..
        } = reported.last;
        let dropped = if kept { 0 } else { reasoning };
        let length = input.saturating_add(output.saturating_sub(dropped));
        Some((length, reported.estimate))
    }

    /// Whether the model said this.
    pub(crate) fn is_model(&self) -> bool {
        self.message.role == Role::Assistant
    }
}
