//! The cost of requests, beside the encodings that they need: see [`Options::most`].

use crate::context::Context;
use crate::provider::facts::Rule;
use crate::provider::options::Options;
use crate::value::cost::Cost;

/// From this number of messages or iterations on, it pays to look at their encodings.
const MANY: usize = 1_000;

impl Context {
    /// Returns the cost of [`Context::encode_request`] when everything is encoded: a complete iteration counts once, but if roles
    /// must alternate, imported ones count message by message.
    #[must_use]
    pub fn encode_cost(&self, options: &Options<'_>) -> Cost {
        let walked = match options.provider.facts().has(Rule::Alternates) {
            true => self.count_messages(),
            false => self.count_iterations() + self.current().count_messages(),
        };
        let joined = match walked > MANY {
            true => self.count_joined(options),
            false => 1,
        };
        Cost::steps(walked / joined).plus(self.append_cost())
    }

    /// Returns the number of iterations in the first piece of a request, if it is made already. If later pieces have fewer, the
    /// request ends with [`Error::TooMuchWork`](crate::error::Error::TooMuchWork).
    fn count_joined(&self, options: &Options<'_>) -> usize {
        let first = options.from.unwrap_or(self.first_number());
        let first = self.log.get_numbered(first);
        let kept = first.and_then(|iteration| iteration.pieces().find(options.key()));
        kept.map_or(1, |kept| kept.piece.count().max(1))
    }
}
