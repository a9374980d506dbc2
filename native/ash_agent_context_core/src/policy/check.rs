//! Checking a summary against the iterations that it stands for: which of their facts it has, which it misses, and which of
//! its own are not in them.

use std::sync::Arc;

use crate::context::Context;
use crate::error::Error;
use crate::policy::claims::Claims;
use crate::policy::facts::add_keys;
use crate::policy::hidden_note::{append_facts, append_words, SEARCHES};
use crate::policy::known_facts::{Fact, Texts};
use crate::policy::recall::add_pinned;
use crate::tokens::Method;
use crate::value::keys::KeySet;
use crate::value::letters;
use crate::value::time::Time;
use crate::value::word::words;
use crate::view::facts::{tokens, FactKind};
use crate::view::verdict::{Verdict, NAMED};
use crate::view::{self, summary_text, Cleared};

words! {
    /// The reaction to a summary that lacks facts or makes something up.
    pub enum Check {
        /// It is used as it is; the verdict names them.
        Nothing = "nothing",
        /// Missing facts are added, as many as fit, and made-up ones are named.
        Append = "append",
        /// It is not used; results are cleared instead.
        Refuse = "refuse",
        /// It is not used; the iterations are hidden.
        Hide = "hide",
    }
}

words! {
    /// The outcome for iterations whose summary was checked.
    pub enum Fate {
        /// A summary stands for them.
        Summarized = "summarized",
        /// Their results are cleared.
        Cleared = "cleared",
        /// They are hidden.
        Hidden = "hidden",
    }
}

/// The outcome of summarising iterations with a check.
#[derive(Debug, Clone)]
pub struct Summarized {
    /// The conversation with it, or with the other reaction.
    pub context: Context,
    /// The outcome for the iterations.
    pub fate: Fate,
    /// The verdict of the check.
    pub verdict: Verdict,
}

/// The share of the replaced text that may be appended to a summary: a tenth.
const APPENDED: u64 = 10;

/// And at most this share of the summary, a quarter, or [`LEAST`].
const LONGER: u64 = 4;

/// With less room than this nothing is added.
const LEAST: u64 = 16;

impl Context {
    /// Puts a summary in the place of iterations; the log keeps them.
    ///
    /// # Errors
    /// As [`Context::summarize_checked`].
    ///
    /// # Complexity
    /// O(the log)
    pub fn summarize(&self, first: u64, last: u64, text: &str, at: Time) -> Result<Self, Error> {
        let summarized = self.summarize_checked(first, last, text, Check::Nothing, at)?;
        Ok(summarized.context)
    }

    /// Puts a summary in the place of iterations, unless the check of it says otherwise; the log keeps them.
    ///
    /// # Errors
    /// [`Error::NotCompactable`], [`Error::SummaryTooLong`] for one of more than half of the tokens that it replaces, or,
    /// with [`Check::Nothing`], for one that is not shorter.
    ///
    /// # Complexity
    /// O(the log)
    pub fn summarize_checked(
        &self,
        first: u64,
        last: u64,
        text: &str,
        check: Check,
        at: Time,
    ) -> Result<Summarized, Error> {
        let Some((first, last)) = self.compactable(Some((first, last)), 0, 0)? else {
            return Err(Error::NotCompactable {
                range: (first, last),
                allowed: self.compactable(None, 0, 0)?,
            });
        };
        let text = &*self.mask_text(first, last, text);
        let tokens = self.summary_tokens(first, last, text);
        let replaced = self.view_tokens(Method::Estimate, first, last).total();
        // A summary that is used as it is has to be shorter, and no more.
        let is_too_long = match check {
            Check::Nothing => tokens >= replaced,
            _ => tokens.saturating_mul(2) > replaced,
        };
        if is_too_long {
            return Err(Error::SummaryTooLong { tokens, replaced });
        }
        // Words that a mask hides are neither claimed nor named.
        let seen = self.masks().map(|masks| masks.words(text));
        let (mut verdict, missing) = self.check(first, last, seen.as_deref().unwrap_or(text));
        let is_refused = !verdict.wrong.is_empty() || lacks_most(&missing, &verdict);
        let (context, fate) = match check {
            Check::Refuse if is_refused => self.forget(first, last, at),
            Check::Hide if is_refused => (self.drop_range(first, last, at), Fate::Hidden),
            check => {
                let mut text = text.to_owned();
                if check == Check::Append {
                    let room = (replaced / 2).saturating_sub(tokens);
                    let room = room.min(replaced / APPENDED);
                    let room = room.min((tokens / LONGER).max(LEAST));
                    text = append_missing(&text, &missing, &mut verdict, room);
                }
                let context = self.with_summary(first, last, text, &verdict, at);
                (context, Fate::Summarized)
            }
        };
        Ok(Summarized {
            context,
            fate,
            verdict,
        })
    }

    fn summary_tokens(&self, first: u64, last: u64, text: &str) -> u64 {
        let summary = view::summary(first, last, text, self.handle_over(first, last));
        let rendering = self.rendering(u64::MAX);
        summary.tokens(Method::Estimate, rendering).total()
    }

    fn with_summary(
        &self,
        first: u64,
        last: u64,
        mut text: String,
        verdict: &Verdict,
        at: Time,
    ) -> Self {
        add_pinned(&mut text, &self.pinned_lines(first, last));
        let summary = view::summary(first, last, &text, self.handle_over(first, last));
        let verdict = Some(Arc::new(verdict.clone()));
        self.changed(at, |next| {
            next.put_summary(first, last, Arc::new(summary));
            next.change_cover(first, |cover| cover.verdict = verdict);
            next.grown();
        })
    }

    /// Does without a summary: clears the results of iterations and of all before them, or hides the iterations if there is
    /// nothing to clear.
    ///
    /// # Complexity
    /// O(the iterations)
    #[must_use]
    pub fn forget(&self, first: u64, last: u64, at: Time) -> (Self, Fate) {
        let from = self
            .cleared_place()
            .map_or(first, |place| place.0.max(first));
        let iterations = self.log.between(from, last);
        let mut shown = iterations.filter(|iteration| !self.hides(iteration.number));
        if !shown.any(|iteration| iteration.count_calls() > 0) {
            return (self.drop_range(first, last, at), Fate::Hidden);
        }
        let cleared = Cleared::at((last.saturating_add(1), 0), self.placeholder());
        let next = self.changed(at, |next| {
            next.change_looks(|view| view.cleared = Some(Arc::new(cleared)));
        });
        (next, Fate::Cleared)
    }

    /// Compares a text with the facts of iterations. Returns the verdict, and the facts that it lacks.
    ///
    /// # Complexity
    /// O(the log)
    fn check(&self, first: u64, last: u64, text: &str) -> (Verdict, Vec<Fact>) {
        let mut has = KeySet::default();
        add_keys(text, &mut has);
        has.extend(tokens(text).map(|token| token.key()));
        let is_missing = |fact: &&Fact| {
            let is_there = has.contains(&fact.key);
            let is_number = fact.kind == FactKind::Number && !fact.is_masked;
            !(is_there || is_number && has.contains(&fact.piece_key))
        };
        let (all, missing) = self.with_facts(Texts::Between(first, last), |facts| {
            let missing = facts.best(usize::MAX, true).filter(is_missing);
            (facts.len(), missing.cloned().collect::<Vec<_>>())
        });
        let named = missing.iter().filter(|fact| !fact.is_masked);
        let verdict = Verdict {
            facts: all,
            kept: all - missing.len(),
            missing: named.take(NAMED).map(|fact| fact.text.clone()).collect(),
            wrong: self.wrong(first, last, text),
            appended: 0,
        };
        (verdict, missing)
    }

    /// Returns the facts of a text that the iterations do not have.
    fn wrong(&self, first: u64, last: u64, text: &str) -> Vec<Box<str>> {
        let mut claims = Claims::new(text);
        for number in first..=last {
            let cover = self.cover(number).filter(|(start, _)| *start == number);
            let earlier = cover.and_then(|(_, cover)| summary_text(cover.summary.as_deref()?));
            claims.compare(&letters::utf8(earlier.unwrap_or_default()));
            for (_, said) in self.texts_between(number, number) {
                // The summariser read masked text; text that it may not have read proves no claim.
                claims.compare(&said.text(self.masks()));
            }
        }
        claims.wrong()
    }
}

/// Returns true if a summary lacks most of the facts that calls used or users named.
fn lacks_most(missing: &[Fact], verdict: &Verdict) -> bool {
    let is_needed = |fact: &&Fact| fact.is_used || (fact.is_named && fact.kind != FactKind::Number);
    let needed = missing.iter().filter(is_needed).count();
    needed > verdict.kept
}

/// Returns a summary with the facts that it lacks, and with a list of its wrong ones.
fn append_missing(text: &str, missing: &[Fact], verdict: &mut Verdict, room: u64) -> String {
    let mut text = text.trim_end().to_owned();
    if room < LEAST {
        return text;
    }
    let mut left = room;
    let mut start = "\nNot in the conversation: ";
    for words in &verdict.wrong {
        if !append_words(&mut text, start, words, &mut left) {
            break;
        }
        start = "; ";
    }
    // There is room for a tenth of what it stands for.
    let searches = usize::try_from(room).unwrap_or(usize::MAX);
    let searches = searches.saturating_mul(SEARCHES * APPENDED as usize);
    let seen = missing.iter().filter(|fact| !fact.is_masked);
    let budget = (&mut left, searches);
    verdict.appended += append_facts(&mut text, "\nAlso: ", seen, |_| false, budget);
    text
}
