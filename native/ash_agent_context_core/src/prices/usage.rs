//! The tokens that providers report.

/// The tokens that a provider counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens of the request, including those from the provider's cache.
    pub input: u64,
    /// Tokens of the answer, including reasoning.
    pub output: u64,
    /// Tokens of request and answer together.
    pub total: u64,
    /// Tokens of the request that came from the provider's cache.
    pub cached: u64,
    /// Tokens of the request that the provider wrote to its cache.
    pub written: u64,
    /// Tokens of reasoning in the answer.
    pub reasoning: u64,
}

impl Usage {
    /// Adds another count.
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

    /// Subtracts a part.
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
