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
        let current = match self.hides(self.current_iteration()) {
            true => Tokens::default(),
            false => {
                let rendering = self.rendering(self.current_iteration());
                self.log.current.tokens(method, rendering)
            }
        };
        let done = self
            .tallies
            .count(method.index(), self.log.history.len(), |start| {
                let from = self.first_number().saturating_add(start.len as u64);
                let to = self.current_iteration().saturating_sub(1);
                self.stretches(from, to)
                    .fold(Tokens::of_sum(start.sum), |sum, stretch| {
                        sum.plus(stretch.tokens(method))
                    })
                    .to_sum()
            });
        Tokens::of_sum(done)
            .plus(current)
            .plus(system.unwrap_or_default())
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
        self.stretches(first, last)
            .fold(Tokens::default(), |sum, stretch| {
                sum.plus(stretch.tokens(method))
            })
    }

    /// Brings the tallies up to date after a range of the view changed that had these tokens.
    pub(crate) fn retally(&mut self, first: u64, last: u64, before: [Option<Tokens>; 3]) {
        let after = Method::ALL.map(|method| {
            let known = before.get(method.index()).is_some_and(Option::is_some);
            known.then(|| self.view_tokens(method, first, last))
        });
        let changed = Method::ALL.map(|method| {
            let tally = self.tallies.get(method.index())?;
            let before = (*before.get(method.index())?)?;
            let after = (*after.get(method.index())?)?;
            Some(Tally {
                len: tally.len,
                sum: Tokens::of_sum(tally.sum).minus(before).plus(after).to_sum(),
            })
        });
        self.tallies = Tallies::of(changed);
    }

    /// Returns the most text that a count has to read: it was not counted yet.
    #[must_use]
    pub fn count_size(&self, method: Method) -> Size {
        /// Iterations that are looked at one by one.
        const FEW: usize = 256;
        let counted = self
            .tallies
            .get(method.index())
            .map_or(0, |tally| tally.len);
        if self.log.history.len() - counted.min(self.log.history.len()) > FEW {
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
            .fold(Size::default(), |sum, size| sum.plus(size))
    }
}
