//! Holds what providers report of the tokens they counted.

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
    /// Of the request, what the provider wrote to its cache.
    pub written: u64,
    /// Of the answer, what the model thought.
    pub reasoning: u64,
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
            written: self.written.saturating_add(other.written),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }

    /// Returns what is left without a part.
    #[must_use]
    pub const fn minus(self, part: Self) -> Self {
        Self {
            input: self.input.saturating_sub(part.input),
            output: self.output.saturating_sub(part.output),
            total: self.total.saturating_sub(part.total),
            cached: self.cached.saturating_sub(part.cached),
            written: self.written.saturating_sub(part.written),
            reasoning: self.reasoning.saturating_sub(part.reasoning),
        }
    }
}
