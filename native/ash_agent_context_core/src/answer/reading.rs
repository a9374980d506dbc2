//! The text of a model, read by a type: a value that fits, what is wrong with it, or how far it came before it was cut.

use crate::answer::answer_type::AnswerType;
use crate::answer::builder::{Builder, Candidate};
use crate::answer::fit::LEVELS;
use crate::answer::follow::{put_together, Follow};
use crate::answer::issue::{Findings, Issue, Mend};
use crate::answer::lexer::Lexer;
use crate::error::Path;
use crate::value::{json, Value};

/// The reading of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadingState {
    /// A value that fits.
    Fits,
    /// Something else: the issues say what.
    Misfits,
    /// The beginning of a value.
    Cut,
}

/// A text that was read.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The outcome.
    pub state: ReadingState,
    /// The value. One that does not fit is as the text has it; of a cut one it is what was shown.
    pub value: Option<Value>,
    /// The issues found.
    pub issues: Vec<Issue>,
    /// The repairs made.
    pub mends: Vec<Mend>,
}

impl Answer {
    fn misfit(words: &str) -> Self {
        Self {
            state: ReadingState::Misfits,
            value: None,
            issues: vec![Issue {
                path: Path::new(),
                words: words.to_owned(),
            }],
            mends: Vec::new(),
        }
    }
}

const NOTHING: &str =
    "contains no JSON: write one JSON object that fits the schema, and nothing else";
const BROKEN: &str =
    "is not valid JSON: write one JSON object that fits the schema, and nothing else";
const SEVERAL: &str = "contains several different JSON values: write one of them, and nothing else";
const DOUBLED: &str = "has a field twice in one object: write each field once";

impl AnswerType {
    /// Reads a text. If it is `strict`, only JSON is read, and nothing is repaired but `null` for what may be left out.
    ///
    /// A text that is JSON and fits is never changed. A text that ends within its value is cut, and never repaired.
    ///
    /// # Complexity
    /// O(n) in the text, and as much again for each alternative of the schema that a value may be.
    #[must_use]
    pub fn read(&self, text: &str, strict: bool) -> Answer {
        match json::read_noting(text.trim().as_bytes(), LEVELS) {
            Ok((_, true)) => Answer::misfit(DOUBLED),
            Ok((value, false)) => self.settle(value, Findings::default(), !strict),
            Err(_) => self.search(text, strict),
        }
    }

    /// Checks a value that is not from a text. Its atoms count as texts.
    #[must_use]
    pub fn check(&self, value: &Value, strict: bool) -> Answer {
        match json::read(json::write(value).as_bytes(), LEVELS) {
            Ok(value) => self.settle(value, Findings::default(), !strict),
            Err(error) => Answer::misfit(&error.to_string()),
        }
    }

    fn search(&self, text: &str, strict: bool) -> Answer {
        let (mut lexer, mut builder) = (Lexer::default(), Builder::new(self));
        lexer.feed(text, &mut builder);
        let is_cut = lexer.is_open() && (builder.is_meant() || builder.found.is_empty());
        let found = std::mem::take(&mut builder.found);
        if builder.is_broken {
            return Answer::misfit(BROKEN);
        }
        let differ = |found: &[Candidate]| {
            found
                .windows(2)
                .any(|pair| matches!(pair, [a, b] if a.value != b.value))
        };
        if differ(&found) {
            return Answer::misfit(SEVERAL);
        }
        match found.into_iter().next() {
            _ if is_cut => self.cut(text, strict),
            None => Answer::misfit(if text.contains(['{', '[']) {
                BROKEN
            } else {
                NOTHING
            }),
            Some(_) if strict => Answer::misfit(BROKEN),
            Some(found) if found.is_doubled => Answer::misfit(DOUBLED),
            Some(found) => self.settle(found.value, found.report, true),
        }
    }

    fn cut(&self, text: &str, strict: bool) -> Answer {
        Answer {
            state: ReadingState::Cut,
            value: self.read_partial(text, !strict),
            issues: Vec::new(),
            mends: Vec::new(),
        }
    }

    /// The value as far as a text has come, as it is shown while it comes.
    ///
    /// # Complexity
    /// O(n)
    #[must_use]
    pub fn read_partial(&self, text: &str, is_lenient: bool) -> Option<Value> {
        let (_, shown) = Follow::default().feed(self, is_lenient, text);
        put_together(&shown)
    }

    fn settle(&self, value: Value, mut report: Findings, is_lenient: bool) -> Answer {
        let value = self.fit_whole(value, is_lenient, &mut report);
        Answer {
            state: if report.fits() {
                ReadingState::Fits
            } else {
                ReadingState::Misfits
            },
            value: Some(value),
            issues: report.issues,
            mends: report.mends,
        }
    }
}
