//! Token counts, and sums of them over a list that grows, kept so that only what is new has to be counted.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::log::memo::Memo;

/// Token counts by use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens {
    /// The system prompt.
    pub system: u64,
    /// Messages of the user.
    pub user: u64,
    /// Text of the model.
    pub assistant: u64,
    /// The model's thinking.
    pub thinking: u64,
    /// The names and arguments of tool calls.
    pub tool_calls: u64,
    /// The results of tools, including images.
    pub tool_results: u64,
    /// The images and files in messages.
    pub media: u64,
    /// The summaries of iterations.
    pub summaries: u64,
}

impl Tokens {
    /// Returns the sum.
    #[must_use]
    pub fn total(mut self) -> u64 {
        let counts = self.counts().into_iter();
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }

    fn counts(&mut self) -> [&mut u64; 8] {
        [
            &mut self.system,
            &mut self.user,
            &mut self.assistant,
            &mut self.thinking,
            &mut self.tool_calls,
            &mut self.tool_results,
            &mut self.media,
            &mut self.summaries,
        ]
    }

    fn with(mut self, mut other: Self, change: impl Fn(u64, u64) -> u64) -> Self {
        for (own, other) in self.counts().into_iter().zip(other.counts()) {
            *own = change(*own, *other);
        }
        self
    }

    /// Adds other counts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// Subtracts a part.
    #[must_use]
    pub fn minus(self, part: Self) -> Self {
        self.with(part, u64::saturating_sub)
    }
}

/// The slots of the ways of counting.
const SLOTS: [usize; 3] = [0, 1, 2];

/// The sum over the first elements of a list that does not change there.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub len: usize,
    pub sum: Tokens,
}

/// What clearing results would save of the first iterations of a list, for all but the last `keep` results.
#[derive(Debug, Clone, Default)]
pub(crate) struct RentTally {
    pub keep: usize,
    pub len: usize,
    /// The tokens from the first result on, nothing cleared; `None` before it.
    pub behind: Option<u64>,
    /// The tokens that clearing saves of all results, and of all but the last.
    pub all_saved: u64,
    pub saved: u64,
    /// The tokens that requests carried although they could have been cleared then.
    pub rent: u128,
    /// Of each of the last results, the tokens that clearing it saves, and those before its message once all before are cleared.
    pub newest: VecDeque<(u64, u64)>,
}

/// Tallies of a list, one a slot. A list that grew out of another one goes on from its tallies.
#[derive(Debug, Default)]
pub(crate) struct Tallies {
    base: Option<Arc<[Option<Tally>; 3]>>,
    own: Memo<Tally>,
    /// The rent of the list that this one grew out of, and its own.
    base_rent: Option<Arc<RentTally>>,
    own_rent: Memo<Arc<RentTally>>,
}

impl Tallies {
    pub fn get(&self, slot: usize) -> Option<&Tally> {
        let base = self.base.as_deref();
        self.own
            .get(slot as u64)
            .or_else(|| base?.get(slot)?.as_ref())
    }

    /// Returns how many elements are counted.
    pub fn count_done(&self, slot: usize) -> usize {
        self.get(slot).map_or(0, |tally| tally.len)
    }

    /// Returns the sum up to `len`: goes on from the tally that is known, and keeps the new one.
    pub fn count(&self, slot: usize, len: usize, add: impl Fn(Tally) -> Tokens) -> Tokens {
        if let Some(tally) = self.get(slot).filter(|tally| tally.len == len) {
            return tally.sum;
        }
        let known = self.get(slot).filter(|tally| tally.len < len);
        let start = known.copied().unwrap_or_default();
        let make = || Tally {
            len,
            sum: add(start),
        };
        self.own.value(slot as u64, make).sum
    }

    /// Returns the rent up to `len`, as [`Tallies::count`] returns a sum.
    pub fn rent(
        &self,
        keep: usize,
        len: usize,
        add: impl Fn(RentTally) -> RentTally,
    ) -> Arc<RentTally> {
        let known = self
            .last_rent()
            .filter(|tally| tally.keep == keep && tally.len <= len);
        let start = known.map(|known| RentTally::clone(known));
        let start = start.unwrap_or_else(|| RentTally {
            keep,
            ..RentTally::default()
        });
        let make = || Arc::new(add(start.clone()));
        match self.own_rent.get_or_make(keep as u64, make) {
            Ok(kept) => kept.clone(),
            Err(made) => made,
        }
    }

    /// Returns how many elements a rent is counted of.
    pub fn count_rented(&self, keep: usize) -> usize {
        let known = self.last_rent().filter(|tally| tally.keep == keep);
        known.map_or(0, |tally| tally.len)
    }

    fn last_rent(&self) -> Option<&Arc<RentTally>> {
        let own = self.own_rent.iter().last().map(|(_, tally)| tally);
        own.or(self.base_rent.as_ref())
    }

    /// Returns the tallies of at most `len` elements.
    pub fn up_to(&self, len: usize) -> Self {
        let mut kept = self.change(|tally| (tally.len <= len).then_some(tally));
        kept.base_rent = kept.base_rent.filter(|tally| tally.len <= len);
        kept
    }

    pub fn of(tallies: [Option<Tally>; 3]) -> Self {
        Self {
            base: Some(Arc::new(tallies)),
            ..Self::default()
        }
    }

    /// Returns the tallies, each changed or dropped.
    pub fn change(&self, change: impl Fn(Tally) -> Option<Tally>) -> Self {
        let all = SLOTS.map(|slot| change(*self.get(slot)?));
        Self {
            base: all.iter().any(Option::is_some).then(|| Arc::new(all)),
            base_rent: self.last_rent().cloned(),
            ..Self::default()
        }
    }
}

impl Clone for Tallies {
    /// Goes on from these tallies with a list that grows.
    fn clone(&self) -> Self {
        if self.own.iter().next().is_none() {
            return Self {
                base: self.base.clone(),
                base_rent: self.last_rent().cloned(),
                ..Self::default()
            };
        }
        self.change(Some)
    }
}
