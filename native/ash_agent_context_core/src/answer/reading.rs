//! A model's text read by a type: a value that fits, issues, or the value so far if the text was cut.

use crate::answer::answer_type::AnswerType;
use crate::answer::builder::{build, Candidate, MOST_ENDS};
use crate::answer::fit::{Repairs, LEVELS};
use crate::answer::follow::{put_together, Follow};
use crate::answer::issue::{Findings, Issue, Mend, MendKind};
use crate::error::Path;
use crate::value::{json, Value, MAX_DEPTH};

/// The reading of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadingState {
    /// A value that fits.
    Fits,
    /// Something else, as the issues say.
    Misfits,
    /// The beginning of a value.
    Cut,
}

/// A text that was read.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The outcome.
    pub state: ReadingState,
    /// The value. One that does not fit is as the text has it; a cut one is the part that was shown.
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
const UNBALANCED: &str =
    "has more braces that close than braces that open: write one JSON object that fits the schema, and nothing else";
const DOUBLED: &str = "has a field twice in one object: write each field once";

impl AnswerType {
    /// Reads a text. If `strict`, it reads only JSON, and the only repair is for `null` in a property that may be left out.
    ///
    /// A text that is JSON and fits is never changed. A text that ends within its value is cut, and never repaired.
    ///
    /// # Complexity
    /// O(n) in the text, and as much again for each alternative of the schema that a value may be. If a brace comes after an
    /// answer, up to eight times as much again.
    #[must_use]
    pub fn read(&self, text: &str, strict: bool) -> Answer {
        match json::read_noting(text.trim().as_bytes(), LEVELS) {
            Ok((_, true)) => Answer::misfit(DOUBLED),
            Ok((value, false)) => self.settle(value, Findings::default(), Repairs::of(!strict)),
            Err(_) => {
                let found = self.search(text, strict);
                let is_open = found.state == ReadingState::Misfits && !strict;
                let fenced = is_open.then(|| self.read_fenced(text)).flatten();
                fenced.unwrap_or(found)
            }
        }
    }

    /// Reads a value that came without its object, if a block of code with it is the whole text.
    fn read_fenced(&self, text: &str) -> Option<Answer> {
        let block = text.trim().strip_prefix("```")?.strip_suffix("```")?;
        let inside = block.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric());
        let (value, is_doubled) = json::read_noting(inside.trim().as_bytes(), LEVELS).ok()?;
        let mut answer = self.settle(value, Findings::default(), Repairs::of(true));
        let prose = Mend {
            path: Path::new(),
            kind: MendKind::Prose,
        };
        answer.mends.push(prose);
        (answer.state == ReadingState::Fits && !is_doubled).then_some(answer)
    }

    /// Checks a value that is not from a text. Its atoms count as texts.
    #[must_use]
    pub fn check(&self, value: &Value, strict: bool) -> Answer {
        match json::read(json::write(value).as_bytes(), LEVELS) {
            Ok(value) => self.settle(value, Findings::default(), Repairs::of(!strict)),
            Err(error) => Answer::misfit(&error.to_string()),
        }
    }

    /// Checks the arguments of a call, and makes only the repairs that leave what the model said as it is.
    #[must_use]
    pub fn check_arguments(&self, value: &Value) -> Answer {
        match json::read(json::write(value).as_bytes(), MAX_DEPTH) {
            Ok(value) => self.settle(value, Findings::default(), Repairs::Same),
            Err(error) => Answer::misfit(&error.to_string()),
        }
    }

    fn search(&self, text: &str, strict: bool) -> Answer {
        let (lexer, found) = build(Some(self), &[text]);
        if lexer.is_broken() {
            return Answer::misfit(BROKEN);
        }
        let is_cut = lexer.is_cut(self, !found.is_empty());
        let mut pairs = found.windows(2);
        if pairs.any(|pair| matches!(pair, [a, b] if a.value != b.value)) {
            return Answer::misfit(SEVERAL);
        }
        if found.iter().any(|found| self.is_part(found)) {
            return Answer::misfit(BROKEN);
        }
        if found.iter().any(|found| self.has_other_end(text, found)) {
            return Answer::misfit(UNBALANCED);
        }
        match found.into_iter().next() {
            _ if is_cut => Answer {
                state: ReadingState::Cut,
                value: self.read_partial(text, !strict),
                issues: Vec::new(),
                mends: Vec::new(),
            },
            None if text.contains(['{', '[']) => Answer::misfit(BROKEN),
            None => Answer::misfit(NOTHING),
            Some(_) if strict => Answer::misfit(BROKEN),
            Some(found) if found.is_doubled => Answer::misfit(DOUBLED),
            Some(found) => self.settle(found.value, found.report, Repairs::All),
        }
    }

    /// Returns true if a value with a field's name before it is that field's value.
    fn is_part(&self, found: &Candidate) -> bool {
        let field = found.field.as_deref();
        // A name that is not in the schema may belong to any field.
        field.is_some_and(|name| !self.has_inside(name) || self.takes(name, &found.value))
    }

    /// Returns true if there is a brace after an answer, and the answer reads otherwise without one of its own braces.
    fn has_other_end(&self, text: &str, found: &Candidate) -> bool {
        let after = text.get(found.place.end..).unwrap_or_default();
        let whole = text.get(found.place.clone()).unwrap_or_default();
        let fits_without = |at: &usize| {
            let at = at - found.place.start;
            let (before, rest) = whole.split_at_checked(at).unwrap_or_default();
            let before = before.strip_suffix('}').unwrap_or_default();
            let (_, others) = build(Some(self), &[before, rest, "}"]);
            others.into_iter().next().is_some_and(|other| {
                let is_other = other.value != found.value && !other.is_doubled;
                let settled = self.settle(other.value, other.report, Repairs::All);
                is_other && settled.state == ReadingState::Fits
            })
        };
        let is_known = found.ends.len() < MOST_ENDS;
        let before = text.get(..found.place.start).unwrap_or_default();
        let before = before.trim_end();
        let is_one_too_many = after.trim_start().starts_with('}') && !before.ends_with('{');
        // It is the value of a key of which only the end is there.
        let has_lost_quote = before.matches('"').count() % 2 == 1 && before.ends_with("\":");
        let is_value = before == ":" || has_lost_quote;
        is_one_too_many && (is_value || !is_known || found.ends.iter().any(fits_without))
    }

    /// Returns the value of a text so far, as it is shown while the text comes.
    ///
    /// # Complexity
    /// O(n)
    #[must_use]
    pub fn read_partial(&self, text: &str, is_lenient: bool) -> Option<Value> {
        let (_, shown) = Follow::default().feed(self, is_lenient, text);
        put_together(&shown)
    }

    fn settle(&self, value: Value, mut report: Findings, repairs: Repairs) -> Answer {
        let mut value = self.fit_whole(value, repairs, &mut report);
        if repairs == Repairs::All && !report.fits() && !matches!(value, Value::Map(_)) {
            if let Some((object, found)) = self.fit_bare(&value) {
                (value, report) = (object, found);
            }
        }
        Answer {
            state: match report.fits() {
                true => ReadingState::Fits,
                false => ReadingState::Misfits,
            },
            value: Some(value),
            issues: report.issues,
            mends: report.mends,
        }
    }
}
