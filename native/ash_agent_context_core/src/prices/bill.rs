//! Holds what is billed of an answer beside its plain tokens: other prices count for them, or for a part of the answer.

use std::sync::Arc;

use crate::prices::usage::Usage;
use crate::value::word::words;

words! {
    /// Says what a provider counts that has a price of its own. All but the searches are tokens that a [`Usage`] has as
    /// well.
    pub enum Count {
        /// Of the tokens written to the cache, those that stay there for an hour.
        WrittenHour = "cache_write_1h_tokens",
        /// Of the request, sound.
        InputAudio = "input_audio_tokens",
        /// Of the request, images.
        InputImage = "input_image_tokens",
        /// Of the request, films.
        InputVideo = "input_video_tokens",
        /// Of the tokens read from the cache, sound.
        CachedAudio = "cached_audio_tokens",
        /// Of the tokens read from the cache, images.
        CachedImage = "cached_image_tokens",
        /// Of the tokens read from the cache, films.
        CachedVideo = "cached_video_tokens",
        /// Of the answer, sound.
        OutputAudio = "output_audio_tokens",
        /// Of the answer, images.
        OutputImage = "output_image_tokens",
        /// Of the answer, films.
        OutputVideo = "output_video_tokens",
        /// Searches in the web.
        Searches = "searches",
    }
}

words! {
    /// The words on which prices depend.
    pub enum Term {
        /// The service tier, such as `priority`, `flex` or `batch`.
        Tier = "service_tier",
        /// How fast it was answered, such as `fast`.
        Speed = "speed",
        /// Where it was answered, such as `us`.
        Geo = "inference_geo",
    }
}

impl Term {
    /// The words that say that the plain price counts.
    const PLAIN: [&'static str; 7] = [
        "standard",
        "default",
        "auto",
        "global",
        "not_available",
        "on_demand",
        "unspecified",
    ];
}

/// Characters of a word or of a model's name that are kept.
const WORD: usize = 200;

/// A part of an answer that is billed by itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bill {
    /// Its tokens.
    pub usage: Usage,
    /// The model, if it is not that of the answer.
    pub model: Option<Box<str>>,
    counts: [u64; Count::ALL.len()],
    terms: [Option<Box<str>>; Term::ALL.len()],
}

impl Bill {
    /// A bill for nothing but tokens.
    #[must_use]
    pub fn plain(usage: Usage) -> Self {
        Self {
            usage,
            ..Self::default()
        }
    }

    /// How much there is of something.
    #[must_use]
    pub fn count(&self, of: Count) -> u64 {
        self.counts.get(of as usize).copied().unwrap_or(0)
    }

    /// Adds to it.
    pub fn add(&mut self, of: Count, number: u64) {
        if let Some(count) = self.counts.get_mut(of as usize) {
            *count = count.saturating_add(number);
        }
    }

    /// The counts that are not zero, by their names.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = Count::ALL.iter().zip(self.counts);
        counts.filter_map(|(of, number)| (number > 0).then_some((of.name(), number)))
    }

    /// A word, where it says that another price counts.
    #[must_use]
    pub fn term(&self, of: Term) -> Option<&str> {
        self.terms.get(of as usize)?.as_deref()
    }

    /// The words, by their names.
    pub fn terms(&self) -> impl Iterator<Item = (&'static str, &str)> + '_ {
        let terms = Term::ALL.iter().zip(&self.terms);
        terms.filter_map(|(of, word)| Some((of.name(), word.as_deref()?)))
    }

    /// Keeps a word. One that says that the plain price counts is none.
    pub fn put_term(&mut self, of: Term, word: &str) {
        let word = word.to_lowercase();
        let is_plain = word.is_empty() || Term::PLAIN.contains(&&*word);
        if let Some(term) = self.terms.get_mut(of as usize) {
            *term = (!is_plain).then(|| word.chars().take(WORD).collect::<String>().into());
        }
    }

    /// The model, if it is not that of the answer.
    pub fn put_model(&mut self, model: &str) {
        self.model = Some(model.chars().take(WORD).collect::<String>().into());
    }

    /// Returns whether there is nothing but tokens.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.model.is_none() && self.counts().next().is_none() && self.terms().next().is_none()
    }
}

/// Holds what a provider reported of one answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Its tokens.
    pub usage: Usage,
    /// Holds what is billed, where that is more than plain tokens.
    pub bills: Option<Arc<[Bill]>>,
}

impl From<Usage> for Report {
    fn from(usage: Usage) -> Self {
        Self { usage, bills: None }
    }
}

impl Report {
    /// A report with what is billed. One plain bill says no more than the tokens do.
    #[must_use]
    pub fn new(usage: Usage, bills: Vec<Bill>) -> Self {
        let is_plain = bills
            .iter()
            .all(|bill| bill.is_plain() && bill.usage == usage);
        let bills = (!is_plain || bills.len() > 1).then(|| bills.into());
        Self { usage, bills }
    }

    /// Returns what is billed.
    #[must_use]
    pub fn bills(&self) -> Vec<Bill> {
        match &self.bills {
            Some(bills) => bills.to_vec(),
            None => vec![Bill::plain(self.usage)],
        }
    }

    /// The same under a service tier that the answer names.
    #[must_use]
    pub fn in_tier(self, tier: Option<&str>) -> Self {
        let Some(tier) = tier else { return self };
        let mut bills = self.bills();
        for bill in &mut bills {
            if bill.term(Term::Tier).is_none() {
                bill.put_term(Term::Tier, tier);
            }
        }
        Self::new(self.usage, bills)
    }

    /// The sum of a count.
    #[must_use]
    pub fn count(&self, of: Count) -> u64 {
        let bills = self.bills.iter().flat_map(|bills| bills.iter());
        bills.map(|bill| bill.count(of)).sum()
    }
}

/// Holds what was reported for one message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reported {
    /// All reports together.
    pub sum: Usage,
    /// The last report.
    pub last: Usage,
    /// Holds what an estimate made of the view when that report came.
    pub estimate: u64,
    /// Holds what is billed of all of them, where that is more than the plain tokens of one report.
    pub bills: Option<Arc<[Bill]>>,
}

impl Reported {
    /// The same with one more report.
    #[must_use]
    pub fn plus(&self, report: &Report, estimate: u64) -> Self {
        let sum = self.sum.plus(report.usage);
        let bills = match self.is_empty() {
            true => report.bills.clone(),
            false => Some(self.bills().into_iter().chain(report.bills()).collect()),
        };
        let last = report.usage;
        Self {
            sum,
            last,
            estimate,
            bills,
        }
    }

    fn is_empty(&self) -> bool {
        self.sum == Usage::default() && self.bills.is_none()
    }

    /// Returns what is billed.
    #[must_use]
    pub fn bills(&self) -> Vec<Bill> {
        let bills = self.bills.clone();
        Report {
            usage: self.sum,
            bills,
        }
        .bills()
    }
}
