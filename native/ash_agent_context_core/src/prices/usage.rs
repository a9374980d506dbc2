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
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// Subtracts a part.
    #[must_use]
    pub fn minus(self, part: Self) -> Self {
        self.with(part, u64::saturating_sub)
    }

    fn with(self, other: Self, count: fn(u64, u64) -> u64) -> Self {
        Self {
            input: count(self.input, other.input),
            output: count(self.output, other.output),
            total: count(self.total, other.total),
            cached: count(self.cached, other.cached),
            written: count(self.written, other.written),
            reasoning: count(self.reasoning, other.reasoning),
        }
    }
}
