//! Counts that are billed apart from plain tokens, and parts of an answer with prices of their own.

use std::sync::Arc;

use crate::prices::usage::Usage;
use crate::value::word::words;

words! {
    /// A count with a price of its own. All but the searches are tokens that a [`Usage`] counts as well.
    pub enum Count {
        /// Tokens written to the cache that stay there for an hour.
        WrittenHour = "cache_write_1h_tokens",
        /// Tokens of sound in the request.
        InputAudio = "input_audio_tokens",
        /// Tokens of images in the request.
        InputImage = "input_image_tokens",
        /// Tokens of films in the request.
        InputVideo = "input_video_tokens",
        /// Tokens of sound that were read from the cache.
        CachedAudio = "cached_audio_tokens",
        /// Tokens of images that were read from the cache.
        CachedImage = "cached_image_tokens",
        /// Tokens of films that were read from the cache.
        CachedVideo = "cached_video_tokens",
        /// Tokens of sound in the answer.
        OutputAudio = "output_audio_tokens",
        /// Tokens of images in the answer.
        OutputImage = "output_image_tokens",
        /// Tokens of films in the answer.
        OutputVideo = "output_video_tokens",
        /// Web searches.
        Searches = "searches",
    }
}

words! {
    /// The fields of an answer on which prices depend.
    pub enum Term {
        /// The service tier, such as `priority`, `flex` or `batch`.
        Tier = "service_tier",
        /// The speed, such as `fast`.
        Speed = "speed",
        /// The place, such as `us`.
        Geo = "inference_geo",
    }
}

impl Term {
    /// The words for the plain price.
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

/// The most characters of a word or of a model's name that are kept.
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
    /// Returns a bill for tokens alone.
    #[must_use]
    pub fn plain(usage: Usage) -> Self {
        Self {
            usage,
            ..Self::default()
        }
    }

    /// Returns a count.
    #[must_use]
    pub fn count(&self, of: Count) -> u64 {
        self.counts.get(of as usize).copied().unwrap_or(0)
    }

    /// Adds to a count.
    pub fn add(&mut self, of: Count, number: u64) {
        if let Some(count) = self.counts.get_mut(of as usize) {
            *count = count.saturating_add(number);
        }
    }

    /// Returns the counts that are not zero, by their names.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = Count::ALL.iter().zip(self.counts);
        counts.filter_map(|(of, number)| (number > 0).then_some((of.name(), number)))
    }

    /// Returns a word, unless it means the plain price.
    #[must_use]
    pub fn term(&self, of: Term) -> Option<&str> {
        self.terms.get(of as usize)?.as_deref()
    }

    /// Returns the words, by the names of their fields.
    pub fn terms(&self) -> impl Iterator<Item = (&'static str, &str)> + '_ {
        let terms = Term::ALL.iter().zip(&self.terms);
        terms.filter_map(|(of, word)| Some((of.name(), word.as_deref()?)))
    }

    /// Keeps a word, unless it means the plain price.
    pub fn put_term(&mut self, of: Term, word: &str) {
        let word = word.to_lowercase();
        let is_plain = word.is_empty() || Term::PLAIN.contains(&&*word);
        if let Some(term) = self.terms.get_mut(of as usize) {
            *term = (!is_plain).then(|| word.chars().take(WORD).collect::<String>().into());
        }
    }

    /// Keeps the model's name, if it is not that of the answer.
    pub fn put_model(&mut self, model: &str) {
        self.model = Some(model.chars().take(WORD).collect::<String>().into());
    }

    /// Returns whether it is a bill for tokens alone.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.model.is_none() && self.counts().next().is_none() && self.terms().next().is_none()
    }
}

/// A provider's report on one answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Its tokens.
    pub usage: Usage,
    /// The bills, if there is more to pay than plain tokens.
    pub bills: Option<Arc<[Bill]>>,
}

impl From<Usage> for Report {
    fn from(usage: Usage) -> Self {
        Self { usage, bills: None }
    }
}

impl Report {
    /// Returns a report with bills. A single plain bill is left out, as it says the same as the tokens.
    #[must_use]
    pub fn new(usage: Usage, bills: Vec<Bill>) -> Self {
        let is_plain = bills
            .iter()
            .all(|bill| bill.is_plain() && bill.usage == usage);
        let bills = (!is_plain || bills.len() > 1).then(|| bills.into());
        Self { usage, bills }
    }

    /// Returns the bills.
    #[must_use]
    pub fn bills(&self) -> Vec<Bill> {
        match &self.bills {
            Some(bills) => bills.to_vec(),
            None => vec![Bill::plain(self.usage)],
        }
    }

    /// Returns the report under a service tier that the answer names.
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

    /// Returns the sum of a count over all bills.
    #[must_use]
    pub fn count(&self, of: Count) -> u64 {
        let bills = self.bills.iter().flat_map(|bills| bills.iter());
        let counts = bills.map(|bill| bill.count(of));
        counts.fold(0, u64::saturating_add)
    }
}

/// The reports on one message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reported {
    /// The sum of all reports.
    pub sum: Usage,
    /// The last report.
    pub last: Usage,
    /// The estimated tokens of the view when the last report came.
    pub estimate: u64,
    /// The bills of all reports, if there is more to pay than the plain tokens of one report.
    pub bills: Option<Arc<[Bill]>>,
}

impl Reported {
    /// Returns the reports with one more.
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

    /// Returns the bills of all reports.
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
