//! Counts the cost of an answer by the rates of its model: parts are taken out of wholes, and the sum is rounded once.

use crate::prices::bill::{Bill, Count, Term};
use crate::value::time::Time;
use crate::value::word::words;

words! {
    /// A unit that has a price. All tokens are of the request or of the answer; a unit with a price of its own is taken out of
    /// the units that it is a part of.
    pub enum Unit {
        /// A token of the request.
        Input = "input",
        /// A token that was read from the provider's cache.
        CacheRead = "cache_read",
        /// A token that was written to the provider's cache.
        CacheWrite = "cache_write",
        /// A token that was written to the provider's cache for an hour.
        CacheWriteHour = "cache_write_1h",
        /// A token of sound in the request.
        InputAudio = "input_audio",
        /// A token of an image in the request.
        InputImage = "input_image",
        /// A token of a film in the request.
        InputVideo = "input_video",
        /// A token of sound that was read from the cache.
        CacheReadAudio = "cache_read_audio",
        /// A token of an image that was read from the cache.
        CacheReadImage = "cache_read_image",
        /// A token of a film that was read from the cache.
        CacheReadVideo = "cache_read_video",
        /// A token of the answer.
        Output = "output",
        /// A token of reasoning.
        Reasoning = "reasoning",
        /// A token of sound in the answer.
        OutputAudio = "output_audio",
        /// A token of an image in the answer.
        OutputImage = "output_image",
        /// A token of a film in the answer.
        OutputVideo = "output_video",
        /// A web search.
        Search = "search",
        /// A request.
        Request = "request",
    }
}

impl Unit {
    /// Returns the units that it is a part of.
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

/// The price of one unit, in 10^-12 US dollars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rate {
    pub unit: Unit,
    /// The price in short requests.
    pub base: u64,
    /// The prices in requests of more tokens than a limit, for all of their tokens. The smallest limit comes first.
    pub steps: Vec<(u64, u64)>,
}

impl Rate {
    fn of(&self, input: u64) -> u64 {
        let mut steps = self.steps.iter().rev();
        let step = steps.find(|(above, _)| input > *above);
        step.map_or(self.base, |(_, rate)| *rate)
    }
}

/// A factor for the price of tokens, for a word of a [`Term`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Factor {
    /// The field that has the word.
    pub term: Term,
    pub word: Box<str>,
    /// The numerator.
    pub times: u64,
    /// The denominator, which is not zero.
    pub through: u64,
}

/// The prices of a model from a time on.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rates {
    /// The time from which they count; `None` if they always did.
    pub valid_from: Option<Time>,
    /// The rates of its units. Tokens without a rate cost as much as the unit that they are part of.
    pub rates: Vec<Rate>,
    /// The factors for words.
    pub factors: Vec<Factor>,
    /// The number of tokens that fit into a request.
    pub context_window: Option<u64>,
    /// The number of tokens of the shortest request that is cached.
    pub cache_minimum: Option<u64>,
}

/// The cost of an answer, in 10^-12 US dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Money {
    /// The cost of the request's tokens.
    pub input: u64,
    /// The cost of the answer's tokens.
    pub output: u64,
    /// The cost of counts other than tokens, such as searches.
    pub fees: u64,
}

impl Money {
    /// Returns the sum.
    #[must_use]
    pub const fn total(self) -> u64 {
        let tokens = self.input.saturating_add(self.output);
        tokens.saturating_add(self.fees)
    }

    /// Adds another sum.
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
    /// Returns the price of a unit in a request of so many tokens: its own rate, or that of the unit it is a part of.
    #[must_use]
    pub fn rate(&self, unit: Unit, input: u64) -> Option<u64> {
        let of = |unit| self.rates.iter().find(|rate| rate.unit == unit);
        let rate = of(unit).or_else(|| unit.wholes().iter().find_map(|whole| of(*whole)));
        rate.map(|rate| rate.of(input))
    }

    /// Returns the cost of a part of an answer.
    #[must_use]
    pub fn cost(&self, bill: &Bill) -> Money {
        let mut left: Vec<(Unit, u64, u64)> = self
            .rates
            .iter()
            .map(|rate| (rate.unit, rate.unit.number(bill), rate.of(bill.usage.input)))
            .collect();
        // The smallest parts come first, so that each is taken once out of every unit that it is a part of.
        left.sort_by_key(|(unit, _, _)| std::cmp::Reverse(unit.wholes().len()));
        let (mut input, mut output, mut fees) = (0_u128, 0_u128, 0_u128);
        let mut rest = &mut *left;
        while let [(unit, number, rate), behind @ ..] = rest {
            for (whole, left, _) in behind.iter_mut() {
                if unit.wholes().contains(whole) {
                    *left = left.saturating_sub(*number);
                }
            }
            let sum = match unit {
                Unit::Search | Unit::Request => &mut fees,
                unit if *unit >= Unit::Output => &mut output,
                _ => &mut input,
            };
            *sum = sum.saturating_add(u128::from(*number) * u128::from(*rate));
            rest = behind;
        }
        let tokens = |sum| self.multiply(sum, bill);
        Money {
            input: tokens(input),
            output: tokens(output),
            fees: u64::try_from(fees).unwrap_or(u64::MAX),
        }
    }

    /// Applies the factors for a bill's words, and rounds once.
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
