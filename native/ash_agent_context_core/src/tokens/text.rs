//! Counts the tokens of a text.
//!
//! [`Method::Estimate`] assumes a tokenizer with the vocabulary of OpenAI's newest, o200k_base, which cuts words, digits and
//! white space as that does. The table has its error in percent: the median, and the number that nine of ten texts stay within.
//! The texts have about 3 kB, except the messages. The last column has the error of counting four bytes a token.
//!
//! | text | o200k_base: median | 9 of 10 | most | cl100k_base: median | most | bytes / 4: median |
//! |---|---:|---:|---:|---:|---:|---:|
//! | real conversations: messages | 5 | 13 | 15 | 4 | 16 | 16 |
//! | real conversations: JSON of tools | 8 | 22 | 40 | 9 | 40 | 29 |
//! | English prose, Markdown | 4 | 16 | 37 | 4 | 38 | 12 |
//! | programs | 4 | 11 | 48 | 5 | 48 | 11 |
//! | JSON, YAML, HTML, CSS, minified JS | 6 | 14 | 77 | 6 | 83 | 16 |
//! | logs, tables, CSV, listings | 5 | 12 | 26 | 5 | 26 | 43 |
//! | UUIDs, hex, base64, signatures | 5 | 8 | 11 | 6 | 15 | 61 |
//! | German, French, Spanish, Portuguese, Italian | 7 | 15 | 53 | 11 | 33 | 9 |
//! | Polish, Czech, Hungarian, Turkish, Vietnamese | 10 | 22 | 38 | 22 | 38 | 21 |
//! | Russian, Ukrainian, Greek | 7 | 19 | 36 | 37 | 61 | 21 |
//! | Chinese, Japanese, Korean | 6 | 16 | 24 | 24 | 44 | 11 |
//! | Hindi, Bengali, Tamil, Thai, Georgian | 7 | 21 | 38 | 67 | 78 | 61 |
//! | Arabic, Persian, Hebrew | 9 | 17 | 24 | 48 | 63 | 12 |
//! | emoji, chat with emoji | 2 | 6 | 7 | 12 | 16 | 34 |
//!
//! The error for a text of a few words may be larger. The vocabulary of cl100k_base has few words of languages in other scripts,
//! which take up to four times the tokens. Models of other makers have vocabularies that are not public; the number that they
//! report is the better one.

mod estimate;
#[cfg(feature = "exact_tokens")]
mod exact;

use crate::error::Error;
use crate::value::steps;
use crate::value::word::words;

words! {
    /// The ways to count tokens.
    pub enum Method {
        /// An estimate for any model, from the kinds of characters. Takes no time to load.
        Estimate = "estimate",
        /// The exact count of OpenAI's models from GPT-4o on.
        O200k = "o200k_base",
        /// The exact count of OpenAI's GPT-4 and GPT-3.5.
        Cl100k = "cl100k_base",
    }
}

impl Method {
    /// Returns its position in [`Method::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the number of tokens in a text. Names of special tokens, such as `<|endoftext|>`, are text like any other, and
    /// bytes that are not valid UTF-8 count as replaced.
    ///
    /// The first exact count with a vocabulary builds its tables, which stay: o200k_base takes about a second and 85 MB,
    /// cl100k_base half of that.
    ///
    /// # Complexity
    /// O(bytes), whatever they are
    pub(crate) fn text(self, text: &[u8]) -> u64 {
        if text.is_empty() {
            return 0;
        }
        steps::count(text.len());
        self.exact(text).unwrap_or_else(|| estimate::tokens(text))
    }

    /// Refuses a method whose vocabulary is not in this build.
    ///
    /// # Errors
    /// [`Error::FeatureMissing`].
    pub fn check(self) -> Result<(), Error> {
        match self {
            Self::Estimate => Ok(()),
            _ if cfg!(feature = "exact_tokens") => Ok(()),
            Self::O200k | Self::Cl100k => Err(Error::FeatureMissing {
                feature: "exact_tokens".into(),
            }),
        }
    }
}

#[cfg(feature = "exact_tokens")]
impl Method {
    const fn vocabulary(self) -> Option<&'static exact::Vocabulary> {
        match self {
            Self::Estimate => None,
            Self::O200k => Some(&exact::O200K),
            Self::Cl100k => Some(&exact::CL100K),
        }
    }

    fn exact(self, text: &[u8]) -> Option<u64> {
        self.vocabulary()?.count(text)
    }

    /// Returns whether its tables are built, which takes about a second.
    #[must_use]
    pub fn is_ready(self) -> bool {
        self.vocabulary().is_none_or(exact::Vocabulary::is_ready)
    }
}

#[cfg(not(feature = "exact_tokens"))]
impl Method {
    const fn exact(self, _text: &[u8]) -> Option<u64> {
        None
    }

    /// Returns whether its tables are built. This build has no tables.
    #[must_use]
    pub const fn is_ready(self) -> bool {
        true
    }
}
