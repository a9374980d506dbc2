//! Tokens of a conversation as it is shown.

use crate::context::Context;
use crate::log::tally::{Tallies, Tally};
use crate::tokens::{Method, Tokens};
use crate::value::Size;
use crate::view::View;

impl Context {
    /// Returns the tokens of the view, by kind.
    ///
    /// # Complexity
    /// O(messages not counted yet)
    #[must_use]
    pub fn tokens(&self, method: Method) -> Tokens {
        let system = self.shown_system().map(|system| {
            let rendering = self.rendering(u64::MAX);
            system.tokens(method, rendering)
        });
        let number = self.current_iteration();
        let current = match self.hides(number) {
            true => Tokens::default(),
            false => self.log.current.tokens(method, self.rendering(number)),
        };
        let add = |start: Tally| {
            let from = self.first_number().saturating_add(start.len as u64);
            let new = self.view_tokens(method, from, number.saturating_sub(1));
            start.sum.plus(new)
        };
        let history = self.log.history.len();
        let done = self.tallies.count(method.index(), history, add);
        done.plus(current).plus(system.unwrap_or_default())
    }

    /// Returns the tokens of a range of the view for each method that has a tally.
    pub(crate) fn range_tokens(&self, first: u64, last: u64) -> [Option<Tokens>; 3] {
        Method::ALL.map(|method| {
            let tally = self.tallies.get(method.index())?;
            let counted = self.first_number().saturating_add(tally.len as u64);
            (last < counted).then(|| self.view_tokens(method, first, last))
        })
    }

    /// Returns the tokens of a range of the view.
    #[must_use]
    pub fn view_tokens(&self, method: Method, first: u64, last: u64) -> Tokens {
        let stretches = self.stretches(first, last);
        let tokens = stretches.map(|stretch| stretch.tokens(method));
        tokens.fold(Tokens::default(), Tokens::plus)
    }

    /// Brings the tallies up to date after a range of the view changed that had these tokens.
    pub(crate) fn retally(&mut self, first: u64, last: u64, before: [Option<Tokens>; 3]) {
        let changed = Method::ALL.map(|method| {
            let before = (*before.get(method.index())?)?;
            let after = self.view_tokens(method, first, last);
            let tally = self.tallies.get(method.index())?;
            Some(Tally {
                len: tally.len,
                sum: tally.sum.minus(before).plus(after),
            })
        });
        self.tallies = Tallies::of(changed);
    }

    /// Returns the most text that a count has to read: it was not counted yet.
    #[must_use]
    pub fn count_size(&self, method: Method) -> Size {
        /// Iterations that are looked at one by one.
        const FEW: usize = 256;
        let counted = self.tallies.count_done(method.index());
        if self.log.history.len().saturating_sub(counted) > FEW {
            return self.size();
        }
        // Messages that look different may have to be counted again.
        let anew = self.view().is_some_and(View::changes_looks);
        let system = self.shown_system().map(|system| match anew {
            true => system.size(),
            false => system.measure_uncounted(method),
        });
        let new = (counted..self.log.history.len()).filter_map(|index| self.log.history.get(index));
        new.chain(std::iter::once(&*self.log.current))
            .map(|iteration| match anew {
                true => iteration.size(),
                false => iteration.measure_uncounted(method),
            })
            .chain(system)
            .sum()
    }
}
