//! Issues of an answer and its repairs, in words for a model. Neither shows any of its values.

use crate::error::Path;
use crate::value::word::words;
use crate::value::{json, Value};

/// So many issues are listed; a model that made more has misunderstood the schema as a whole.
pub(crate) const MOST_ISSUES: usize = 20;

/// So many repairs are listed. Further ones are made and counted.
pub(crate) const MOST_REPAIRS: usize = 100;

/// A place of an answer that does not fit, with words for what would.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// The path to it.
    pub path: Path,
    /// The problem, in words that a model can act on.
    pub words: String,
}

impl Issue {
    /// Returns the place and the words, as `/items/0/price: expected a number, got a string`.
    #[must_use]
    pub fn line(&self) -> String {
        if self.path.is_empty() {
            return format!("the answer: {}", self.words);
        }
        let mut line = String::new();
        for step in &self.path {
            line.push('/');
            match step.as_name() {
                Some(name) => line.push_str(name),
                None => line.push_str(&json::write(step)),
            }
        }
        line + ": " + &self.words
    }
}

/// A repair that was needed to read an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mend {
    /// The path to it.
    pub path: Path,
    /// The kind of repair.
    pub kind: MendKind,
}

words! {
    /// A repair of an answer.
    pub enum MendKind {
        /// Words or a fence around the JSON were left out.
        Prose = "prose",
        /// A comma before the end of a list or an object was left out.
        TrailingComma = "trailing_comma",
        /// A comment was left out.
        Comment = "comment",
        /// A text had single quotes.
        SingleQuotes = "single_quotes",
        /// A key had no quotes.
        UnquotedKey = "unquoted_key",
        /// A text had a line break or another control character that JSON escapes.
        ControlCharacter = "control_character",
        /// A word of Python stood for `true`, `false` or `null`.
        Literal = "literal",
        /// A number was written as a text.
        NumberFromText = "number_from_text",
        /// A text that a pattern asks to be a number was written as one.
        TextFromNumber = "text_from_number",
        /// `true` or `false` was written as a text.
        BooleanFromText = "boolean_from_text",
        /// An integer was written with a point or an exponent.
        WholeNumber = "whole_number",
        /// A list, an object or `null` was written as a text.
        JsonFromText = "json_from_text",
        /// The value of a field stood for the object with this field alone.
        MissingObject = "missing_object",
        /// One value stood for a list of one.
        Wrapped = "wrapped",
        /// A list of one stood for its value.
        Unwrapped = "unwrapped",
        /// A word of a list of choices had another case or other separators.
        Choice = "choice",
        /// A key was written in another style.
        KeyStyle = "key_style",
        /// `null` stood for a property that may be left out.
        DroppedNull = "dropped_null",
    }
}

/// The report on an answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Findings {
    pub issues: Vec<Issue>,
    pub mends: Vec<Mend>,
    /// The distance from the schema, by which the alternative that was meant is found.
    pub distance: usize,
    /// The number of all repairs, also of those that are not listed.
    pub mended: usize,
}

impl Findings {
    pub fn is_clean(&self) -> bool {
        self.distance == 0 && self.mended == 0
    }

    pub fn fits(&self) -> bool {
        self.distance == 0
    }

    pub fn issue(&mut self, path: &Path, words: impl Into<String>) {
        self.far_issue(path, 1, words);
    }

    /// Adds an issue that says that something else was meant.
    pub fn far_issue(&mut self, path: &Path, distance: usize, words: impl Into<String>) {
        self.distance = self.distance.saturating_add(distance);
        if self.issues.len() < MOST_ISSUES {
            self.issues.push(Issue {
                path: path.clone(),
                words: words.into(),
            });
        }
    }

    pub fn mend(&mut self, path: &Path, kind: MendKind) {
        self.mended += 1;
        if self.mends.len() < MOST_REPAIRS {
            self.mends.push(Mend {
                path: path.clone(),
                kind,
            });
        }
    }

    pub fn add(&mut self, other: Self) {
        self.distance = self.distance.saturating_add(other.distance);
        self.mended += other.mended;
        let room = MOST_ISSUES.saturating_sub(self.issues.len());
        self.issues.extend(other.issues.into_iter().take(room));
        let room = MOST_REPAIRS.saturating_sub(self.mends.len());
        self.mends.extend(other.mends.into_iter().take(room));
    }
}

/// Lists a few choices for a model.
pub(crate) fn choices(values: &[Value]) -> String {
    const SHOWN: usize = 20;
    let shown: Vec<String> = values.iter().take(SHOWN).map(json::write).collect();
    let more = if values.len() > SHOWN { ", ..." } else { "" };
    shown.join(", ") + more
}
