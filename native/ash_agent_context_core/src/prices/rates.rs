//! Counts the cost of an answer by the rates of its model: parts are taken out of wholes, and the sum is rounded once.

use crate::prices::bill::{Bill, Count, Term};
use crate::value::time::Time;
use crate::value::word::words;

words! {
    /// Says what has a price: all tokens are of the request or of the answer, and what has a price of its own is taken out
    /// of what it is a part of.
    pub enum Unit {
        /// A token of the request.
        Input = "input",
        /// Read from the provider's cache.
        CacheRead = "cache_read",
        /// Written to the provider's cache.
        CacheWrite = "cache_write",
        /// Written to the provider's cache for an hour.
        CacheWriteHour = "cache_write_1h",
        /// Of sound in the request.
        InputAudio = "input_audio",
        /// Of images in the request.
        InputImage = "input_image",
        /// Of films in the request.
        InputVideo = "input_video",
        /// Of sound, read from the cache.
        CacheReadAudio = "cache_read_audio",
        /// Of images, read from the cache.
        CacheReadImage = "cache_read_image",
        /// Of films, read from the cache.
        CacheReadVideo = "cache_read_video",
        /// A token of the answer.
        Output = "output",
        /// Of what the model thought.
        Reasoning = "reasoning",
        /// Of sound in the answer.
        OutputAudio = "output_audio",
        /// Of images in the answer.
        OutputImage = "output_image",
        /// Of films in the answer.
        OutputVideo = "output_video",
        /// A search in the web.
        Search = "search",
        /// A request.
        Request = "request",
    }
}

impl Unit {
    /// Returns what it is a part of.
    const fn wholes(self) -> &'static [Self] {
        match self {
            Self::CacheRead
            | Self::CacheWrite
            | Self::InputAudio
            | Self::InputImage
            | Self::InputVideo => &[Self::Input],
            Self::CacheWriteHour => &[Self::CacheWrite, Self::Input],
            Self::CacheReadAudio => &[Self::CacheRead, Self::InputAudio, Self::Input],
            Self::CacheReadImage => &[Self::CacheRead, Self::InputImage, Self::Input],
            Self::CacheReadVideo => &[Self::CacheRead, Self::InputVideo, Self::Input],
            Self::Reasoning | Self::OutputAudio | Self::OutputImage | Self::OutputVideo => {
                &[Self::Output]
            }
            Self::Input | Self::Output | Self::Search | Self::Request => &[],
        }
    }

    fn number(self, bill: &Bill) -> u64 {
        let usage = &bill.usage;
        match self {
            Self::Input => usage.input,
            Self::CacheRead => usage.cached,
            Self::CacheWrite => usage.written,
            Self::CacheWriteHour => bill.count(Count::WrittenHour),
            Self::InputAudio => bill.count(Count::InputAudio),
            Self::InputImage => bill.count(Count::InputImage),
            Self::InputVideo => bill.count(Count::InputVideo),
            Self::CacheReadAudio => bill.count(Count::CachedAudio),
            Self::CacheReadImage => bill.count(Count::CachedImage),
            Self::CacheReadVideo => bill.count(Count::CachedVideo),
            Self::Output => usage.output,
            Self::Reasoning => usage.reasoning,
            Self::OutputAudio => bill.count(Count::OutputAudio),
            Self::OutputImage => bill.count(Count::OutputImage),
            Self::OutputVideo => bill.count(Count::OutputVideo),
            Self::Search => bill.count(Count::Searches),
            Self::Request => 1,
        }
    }
}

/// Holds what one of a unit costs, in 10^-12 US dollars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    /// Of what.
    pub unit: Unit,
    /// Of short requests.
    pub base: u64,
    /// Of requests that have more tokens, all of them; the smallest first.
    pub steps: Vec<(u64, u64)>,
}

impl Rate {
    fn of(&self, input: u64) -> u64 {
        let mut steps = self.steps.iter().rev();
        let step = steps.find(|(above, _)| input > *above);
        step.map_or(self.base, |(_, rate)| *rate)
    }
}

/// By how much a word of a [`Term`] changes the price of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Factor {
    /// Which word.
    pub term: Term,
    /// The word.
    pub word: Box<str>,
    /// Times this.
    pub times: u64,
    /// Through this, which is not zero.
    pub through: u64,
}

/// Holds what a model costs from a time on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rates {
    /// From when on; `None`: since ever.
    pub valid_from: Option<Time>,
    /// Holds what its units cost. Tokens without a rate cost as much as those that they are part of.
    pub rates: Vec<Rate>,
    /// How words change that.
    pub factors: Vec<Factor>,
    /// Tokens that fit into a request.
    pub context_window: Option<u64>,
}

/// Holds what an answer cost, in 10^-12 US dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Money {
    /// The tokens of the request.
    pub input: u64,
    /// The tokens of the answer.
    pub output: u64,
    /// Holds what is not a token.
    pub fees: u64,
}

impl Money {
    /// All of it.
    #[must_use]
    pub const fn total(self) -> u64 {
        let tokens = self.input.saturating_add(self.output);
        tokens.saturating_add(self.fees)
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            fees: self.fees.saturating_add(other.fees),
        }
    }
}

impl Rates {
    /// Returns what a unit costs in a request of so many tokens, or what it is a part of, if that has a rate.
    #[must_use]
    pub fn rate(&self, unit: Unit, input: u64) -> Option<u64> {
        let of = |unit| self.rates.iter().find(|rate| rate.unit == unit);
        let rate = of(unit).or_else(|| unit.wholes().iter().find_map(|whole| of(*whole)));
        rate.map(|rate| rate.of(input))
    }

    /// Returns what a part of an answer cost.
    #[must_use]
    pub fn cost(&self, bill: &Bill) -> Money {
        let mut left: Vec<(Unit, u64, u64)> = self
            .rates
            .iter()
            .map(|rate| (rate.unit, rate.unit.number(bill), rate.of(bill.usage.input)))
            .collect();
        // The smallest parts first, so that each is taken out once of everything that it is a part of.
        left.sort_by_key(|(unit, _, _)| std::cmp::Reverse(unit.wholes().len()));
        let mut sums = [0_u128; 3];
        for at in 0..left.len() {
            let Some((unit, number, rate)) = left.get(at).copied() else {
                break;
            };
            for (whole, rest, _) in left.iter_mut().skip(at + 1) {
                if unit.wholes().contains(whole) {
                    *rest = rest.saturating_sub(number);
                }
            }
            let sum = match unit {
                Unit::Search | Unit::Request => 2,
                unit => usize::from(unit >= Unit::Output),
            };
            if let Some(sum) = sums.get_mut(sum) {
                *sum = sum.saturating_add(u128::from(number) * u128::from(rate));
            }
        }
        let [input, output, fees] = sums;
        let tokens = |sum| self.multiply(sum, bill);
        Money {
            input: tokens(input),
            output: tokens(output),
            fees: u64::try_from(fees).unwrap_or(u64::MAX),
        }
    }

    /// Applies the factors of a bill's words, and rounds once.
    fn multiply(&self, sum: u128, bill: &Bill) -> u64 {
        let (mut sum, mut through) = (sum, 1_u128);
        let factors = self.factors.iter();
        for factor in factors.filter(|of| bill.term(of.term) == Some(&*of.word)) {
            sum = sum.saturating_mul(u128::from(factor.times));
            through = through.saturating_mul(u128::from(factor.through.max(1)));
        }
        let rounded = sum.saturating_add(through / 2) / through;
        u64::try_from(rounded).unwrap_or(u64::MAX)
    }
}
