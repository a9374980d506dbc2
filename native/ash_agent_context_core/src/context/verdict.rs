//! Checking a summary against the iterations that it stands for: which of their facts it has, which it misses, and which of
//! its own are not in them.

use std::collections::HashSet;
use std::sync::Arc;

use crate::context::block::SEARCHES;
use crate::context::claims::Claims;
use crate::context::facts::{add_keys, Fact};
use crate::context::recall::add_pinned;
use crate::context::said::Said;
use crate::context::Context;
use crate::error::Error;
use crate::tokens::Method;
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
                first,
                last,
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
        let context = match check {
            Check::Refuse if is_refused => {
                let (context, fate) = self.forget(first, last, at);
                return Ok(Summarized {
                    context,
                    fate,
                    verdict,
                });
            }
            Check::Hide if is_refused => {
                let context = self.drop_range(first, last, at);
                let fate = Fate::Hidden;
                return Ok(Summarized {
                    context,
                    fate,
                    verdict,
                });
            }
            Check::Append => {
                let room = (replaced / 2)
                    .saturating_sub(tokens)
                    .min(replaced / APPENDED);
                let text = append_missing(text, &missing, &mut verdict, room);
                self.with_summary(first, last, text, &verdict, at)
            }
            _ => self.with_summary(first, last, text.to_owned(), &verdict, at),
        };
        let fate = Fate::Summarized;
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
        let mut next = self.clone();
        next.put_summary(first, last, Arc::new(summary));
        next.put_verdict(first, Some(Arc::new(verdict.clone())));
        next.log.updated_at = at;
        next.grown();
        next
    }

    /// Keeps the verdict on a summary.
    pub(crate) fn put_verdict(&mut self, first: u64, verdict: Option<Arc<Verdict>>) {
        let cover = self.cover(first).filter(|(start, _)| *start == first);
        let Some(mut cover) = cover.map(|(_, cover)| cover.clone()) else {
            return;
        };
        cover.verdict = verdict;
        self.put_covers(vec![(first, cover)]);
    }

    /// Does without a summary: clears the results of iterations and of all before them, or hides the iterations if there is
    /// nothing to clear.
    ///
    /// # Complexity
    /// O(the iterations)
    #[must_use]
    pub fn forget(&self, first: u64, last: u64, at: Time) -> (Self, Fate) {
        let place = self.view().and_then(|view| view.cleared.as_deref());
        let from = place.map_or(0, |cleared| cleared.iteration).max(first);
        let shown = (from..=last).filter(|number| !self.hides(*number));
        let mut shown = shown.filter_map(|number| self.log.get_numbered(number));
        if !shown.any(|iteration| iteration.count_calls() > 0) {
            return (self.drop_range(first, last, at), Fate::Hidden);
        }
        let placeholder = place.map_or(view::CLEARED, |cleared| &*cleared.placeholder);
        let cleared = Arc::new(Cleared {
            iteration: last.saturating_add(1),
            calls: 0,
            placeholder: placeholder.into(),
        });
        let mut next = self.clone();
        next.change_view(|view| view.cleared = Some(cleared));
        next.tallies = Default::default();
        next.log.updated_at = at;
        (next, Fate::Cleared)
    }

    /// Compares a text with the facts of iterations. Returns the verdict, and the facts that it lacks.
    ///
    /// # Complexity
    /// O(the log)
    fn check(&self, first: u64, last: u64, text: &str) -> (Verdict, Vec<Fact>) {
        let mut has = HashSet::new();
        add_keys(text, &mut has);
        has.extend(tokens(text).map(|token| token.key()));
        let facts = self.ranked_facts(first, last);
        let all = facts.len();
        let is_missing = |fact: &Fact| {
            let piece = crate::view::facts::key(&[&fact.piece]);
            let is_there = has.contains(&fact.key);
            !(is_there || fact.kind == FactKind::Number && has.contains(&piece))
        };
        let missing: Vec<Fact> = facts.into_iter().filter(is_missing).collect();
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
            let iteration = self.log.get_numbered(number);
            for said in iteration
                .into_iter()
                .flat_map(|one| one.entries())
                .flat_map(Said::of)
            {
                // The summariser read masked text; text that it may not have read proves no claim.
                claims.compare(&said.text(self.masks()));
            }
        }
        claims.wrong()
    }
}

/// Returns true if a summary lacks most of the facts that calls used or users named.
fn lacks_most(missing: &[Fact], verdict: &Verdict) -> bool {
    let is_needed =
        |fact: &&Fact| fact.uses > 0 || (fact.is_named && fact.kind != FactKind::Number);
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
    let mut add = |text: &mut String, start: &str, words: &str| {
        let cost = Method::Estimate.text(words.as_bytes()) + 1;
        let Some(rest) = left.checked_sub(cost) else {
            return false;
        };
        left = rest;
        text.push_str(start);
        text.push_str(words);
        true
    };
    let mut start = "\nNot in the conversation: ";
    for words in &verdict.wrong {
        if !add(&mut text, start, words) {
            break;
        }
        start = "; ";
    }
    start = "\nAlso: ";
    // There is room for a tenth of what it stands for.
    let mut searches = usize::try_from(room)
        .unwrap_or(usize::MAX)
        .saturating_mul(SEARCHES * APPENDED as usize);
    for fact in missing.iter().filter(|fact| !fact.is_masked) {
        let Some(left) = searches.checked_sub(text.len()) else {
            break;
        };
        searches = left;
        // A line of the user may contain a number that is a fact of its own.
        if text.contains(&*fact.text) {
            continue;
        }
        if !add(&mut text, start, &fact.text) {
            break;
        }
        start = "; ";
        verdict.appended += 1;
    }
    text
}
