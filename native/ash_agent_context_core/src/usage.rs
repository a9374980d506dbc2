//! What providers report of the tokens they counted.

use std::sync::Arc;

use crate::context::Context;
use crate::error::Error;
use crate::fields::Fields;
use crate::iteration::{Entry, Iteration};
use crate::message::Role;
use crate::part::{Content, PartKind};
use crate::time::Time;
use crate::tokens::Method;
use crate::value::{Map, Value};

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

    /// Reads the report of any provider, or the answer that holds it.
    ///
    /// # Errors
    /// [`Error::InvalidUsage`].
    pub fn read(value: Value) -> Result<Self, Error> {
        let mut report = Report::of(value)?;
        if let Some(inner) = report.take_map(&["usage", "usageMetadata", "usage_metadata"])? {
            report = Report::of(Value::Map(inner))?;
        }
        report.read()
    }
}

/// A report that is being read. A number is taken from the first key that has one, so that a report
/// which names it in two ways is counted once.
struct Report {
    fields: Fields,
    known: bool,
}

impl Report {
    fn of(value: Value) -> Result<Self, Error> {
        match Fields::of(value) {
            Some(fields) => Ok(Self {
                fields,
                known: false,
            }),
            None => Err(Error::InvalidUsage { key: Value::Nil }),
        }
    }

    fn read(mut self) -> Result<Usage, Error> {
        let details = ["prompt_tokens_details", "input_tokens_details"];
        let mut input_details = self.take_details(&details)?;
        let details = ["completion_tokens_details", "output_tokens_details"];
        let mut output_details = self.take_details(&details)?;
        // What Anthropic and Bedrock read from and wrote to their caches is not in their input.
        let read = self.first(&["cache_read_input_tokens", "cacheReadInputTokens"])?;
        let written = self.first(&["cache_creation_input_tokens", "cacheWriteInputTokens"])?;
        let beside = read.unwrap_or(0).saturating_add(written.unwrap_or(0));
        let whole_input = [
            "prompt_tokens",
            "promptTokenCount",
            "prompt_token_count",
            "prompt_eval_count",
        ];
        let input = match self.first(&["input_tokens", "inputTokens"])? {
            Some(input) => input.saturating_add(beside),
            None => self.first(&whole_input)?.unwrap_or(beside),
        };
        // Gemini counts what its own tools read, and thoughts, apart.
        let tools = self
            .first(&["toolUsePromptTokenCount", "tool_use_prompt_token_count"])?
            .unwrap_or(0);
        let thoughts = self.first(&["thoughtsTokenCount", "thoughts_token_count"])?;
        let names = [
            "output_tokens",
            "outputTokens",
            "completion_tokens",
            "eval_count",
        ];
        let output = match self.first(&names)? {
            Some(output) => output,
            None => {
                let names = ["candidatesTokenCount", "candidates_token_count"];
                let candidates = self.first(&names)?.unwrap_or(0);
                candidates.saturating_add(thoughts.unwrap_or(0))
            }
        };
        let total = [
            "total_tokens",
            "totalTokenCount",
            "total_token_count",
            "totalTokens",
        ];
        let total = self.first(&total)?.unwrap_or(0);
        let names = [
            "cached_tokens",
            "cachedContentTokenCount",
            "cached_content_token_count",
            "prompt_cache_hit_tokens", // DeepSeek
        ];
        let cached = self.first(&names)?.or(read);
        let reasoning = self.first(&["reasoning_tokens"])?.or(thoughts);
        let cached = match cached {
            Some(cached) => cached,
            None => input_details.first(&["cached_tokens"])?.unwrap_or(0),
        };
        let reasoning = match reasoning {
            Some(reasoning) => reasoning,
            None => output_details.first(&["reasoning_tokens"])?.unwrap_or(0),
        };
        if !self.known {
            return Err(Error::InvalidUsage { key: Value::Nil });
        }
        let input = input.saturating_add(tools);
        Ok(Usage {
            input,
            output,
            total: total.max(input.saturating_add(output)),
            cached,
            reasoning,
        })
    }

    /// The number under the first of these keys that has one.
    fn first(&mut self, names: &[&str]) -> Result<Option<u64>, Error> {
        let mut found = None;
        for name in names {
            let key = self.fields.key(name);
            let number = match self.fields.take_given(name) {
                None => continue,
                Some(Value::Int(number)) => u64::try_from(number).ok(),
                Some(_) => None,
            };
            let number = number.ok_or(Error::InvalidUsage { key })?;
            self.known = true;
            found = found.or(Some(number));
        }
        Ok(found)
    }

    fn take_map(&mut self, names: &[&str]) -> Result<Option<Map>, Error> {
        for name in names {
            let key = self.fields.key(name);
            if let Some(map) = self
                .fields
                .take_map(name)
                .map_err(|_| Error::InvalidUsage { key })?
            {
                return Ok(Some(map));
            }
        }
        Ok(None)
    }

    fn take_details(&mut self, names: &[&str]) -> Result<Self, Error> {
        let map = self.take_map(names)?.unwrap_or_default();
        Self::of(Value::Map(map))
    }
}

impl Context {
    /// Notes what a provider reported with the last message of the model.
    ///
    /// # Errors
    /// [`Error::InvalidUsage`], [`Error::NoAssistantMessage`].
    ///
    /// # Complexity
    /// O(what came since the tokens were last estimated).
    pub fn add_token_usage(&self, report: Value, at: Time) -> Result<Self, Error> {
        self.note_usage(Usage::read(report)?, at)
    }

    /// The same for a report that was read.
    pub(crate) fn note_usage(&self, last: Usage, at: Time) -> Result<Self, Error> {
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
