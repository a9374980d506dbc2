//! Reads again texts that the view does not show: by handle, or found by their words.

use std::collections::HashSet;
use std::sync::Arc;

use crate::context::log_text::LogText;
use crate::context::Context;
use crate::error::Error;
use crate::log::call::ToolCall;
use crate::log::iteration::Iteration;
use crate::log::message::Outcome;
use crate::policy::facts::At;
use crate::value::time::Time;
use crate::value::{letters, steps};
use crate::view::excerpt::Excerpt;
use crate::view::masks::Masks;
use crate::view::recall_handle::{RecallHandle, RecallPlace};
use crate::view::rendering::Look;
use crate::view::search::{FoundText, Search};
use crate::view::texts::output_text;
use crate::view::{summary, summary_text};

/// A text that the view does not show in full.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// The handle that reads all of it.
    pub handle: RecallHandle,
    /// The piece that fits best.
    pub text: String,
    /// The score: higher is better.
    pub score: f64,
}

impl Context {
    /// Returns true if shortened texts of the view have handles.
    #[must_use]
    pub fn has_recall(&self) -> bool {
        self.view().is_some_and(|view| view.recall)
    }

    /// Gives shortened texts of the view handles, for a tool that reads them, or takes the handles away.
    ///
    /// # Complexity
    /// O(hidden texts)
    #[must_use]
    pub fn put_recall(&self, recall: bool, at: Time) -> Self {
        if recall == self.has_recall() {
            return self.clone();
        }
        self.changed(at, |next| {
            next.change_view(|view| view.recall = recall);
            next.note_anew();
        })
    }

    /// Makes the notes of hidden iterations, and the first lines of summaries, anew.
    pub(crate) fn note_anew(&mut self) {
        let covers = self.covers().map(|(first, cover)| (first, cover.clone()));
        let mut covers: Vec<_> = covers.collect();
        for (first, cover) in &mut covers {
            let first = *first;
            cover.unmask();
            let text = cover.summary.as_deref().and_then(summary_text);
            if let Some(text) = text {
                let mut text = letters::utf8(text).into_owned();
                add_pinned(&mut text, &self.pinned_lines(first, cover.last));
                let handle = self.handle_over(first, cover.last);
                cover.summary = Some(Arc::new(summary(first, cover.last, &text, handle)));
            } else if cover.summary.is_none() {
                cover.note = self.hidden_note(first, cover.last);
            }
        }
        self.put_covers(covers);
        self.mask_summaries();
        self.tallies = Default::default();
    }

    /// Makes the notes of hidden iterations that have none and should.
    pub(crate) fn note_missing(&mut self) {
        let covers = self.covers();
        let without = covers.filter(|(_, cover)| cover.replacement().is_none());
        let without: Vec<(u64, u64)> = without.map(|(first, cover)| (first, cover.last)).collect();
        for (first, last) in without {
            if let Some(note) = self.hidden_note(first, last) {
                self.change_cover(first, |cover| cover.note = Some(note));
            }
        }
    }

    /// Returns the handle of a range, where the view has handles.
    pub(crate) fn handle_over(&self, first: u64, last: u64) -> Option<RecallHandle> {
        self.has_recall().then(|| self.handle_of(first, last))
    }

    pub(crate) fn handle_of(&self, first: u64, last: u64) -> RecallHandle {
        RecallHandle::of_iterations(first, last, self.log.between(first, last))
    }

    /// Reads the text of a handle, as models may read it.
    ///
    /// # Errors
    /// [`Error::UnknownHandle`] if it is not a handle, [`Error::HandleGone`] if another text stands there now,
    /// [`Error::InvalidPattern`].
    ///
    /// # Complexity
    /// O(the text)
    pub fn recall(&self, handle: &str, excerpt: &Excerpt<'_>) -> Result<String, Error> {
        let known = RecallHandle::read(handle);
        let handle = known.ok_or_else(|| Error::UnknownHandle {
            handle: handle.into(),
        })?;
        let text = self.text_of_handle(handle);
        let text = text.ok_or_else(|| Error::HandleGone {
            handle: handle.to_string().into(),
        })?;
        excerpt.of(&text)
    }

    pub(crate) fn masks(&self) -> Option<&Masks> {
        self.view()?.masks()
    }

    fn text_of_handle(&self, handle: RecallHandle) -> Option<String> {
        match handle.of {
            RecallPlace::Result { iteration, call } => {
                let slot = call.checked_sub(1)?;
                let (call, outcome) = self.result_at(iteration, slot)?;
                (RecallHandle::of_result(iteration, slot, call, outcome) == handle)
                    .then(|| output_text(outcome, self.masks()).into_owned())
            }
            RecallPlace::Iterations(first, last) => {
                let known = self.first_number()..=self.current_iteration();
                let is_known = first <= last && known.contains(&first) && known.contains(&last);
                (is_known && self.handle_of(first, last) == handle)
                    .then(|| self.transcript(first, last))
            }
        }
    }

    fn result_at(&self, number: u64, slot: usize) -> Option<(&ToolCall, &Outcome)> {
        let (call, outcome) = self.log.get_numbered(number)?.calls().nth(slot)?;
        Some((call, outcome?))
    }

    /// Returns the handle of a text of the log.
    pub(crate) fn handle_at(&self, (number, slot): At) -> Option<RecallHandle> {
        let Some(slot) = slot else {
            return Some(self.handle_of(number, number));
        };
        let (call, outcome) = self.result_at(number, slot)?;
        Some(RecallHandle::of_result(number, slot, call, outcome))
    }

    /// Returns all texts of some iterations.
    fn transcript(&self, first: u64, last: u64) -> String {
        let texts = self.texts_between(first, last);
        texts
            .map(|(_, said)| format!("{}: {}\n", said.label(), said.text(self.masks())))
            .collect()
    }

    /// Searches the texts that the view does not show in full for words. Returns at most so many hits, the best first. Where no
    /// text has a word, those that contain it or are written nearly the same are found.
    ///
    /// # Complexity
    /// O(the log)
    #[must_use]
    pub fn search(&self, words: &str, most: usize) -> Vec<Hit> {
        let texts = || {
            let texts = self.shortened_texts();
            texts.map(|((iteration, _), said)| {
                let at = (iteration.number, said.slot());
                (at, said.text(self.masks()))
            })
        };
        let read = |mut search: Search| {
            let found: Vec<_> = texts().filter(|(_, text)| search.read(text)).collect();
            (search, found)
        };
        let (mut search, mut places) = read(Search::new(words));
        if let Some(wider) = search.widen(texts().map(|(_, text)| text)) {
            (search, places) = read(wider);
        }
        let found = search.rank(most);
        let hit = |found: FoundText| {
            let (at, text) = places.get(found.text)?;
            Some(Hit {
                handle: self.handle_at(*at)?,
                text: search.excerpt(text),
                score: found.score,
            })
        };
        found.into_iter().filter_map(hit).collect()
    }

    /// Returns the texts that are not shown in full, but for those that were recalled, each with its iteration and its number
    /// there.
    pub(crate) fn shortened_texts(
        &self,
    ) -> impl Iterator<Item = ((&Iteration, usize), LogText<'_>)> {
        self.iterations().flat_map(|iteration| {
            let shortens = self.shortens(iteration);
            let texts = iteration.entries().flat_map(LogText::of).enumerate();
            let texts = texts.map(move |(nth, said)| ((iteration, nth), said));
            texts.filter(move |(_, said)| !said.is_recall() && shortens(said))
        })
    }

    /// Returns a function that tells which texts of an iteration are not shown in full.
    pub(crate) fn shortens(&self, iteration: &Iteration) -> impl Fn(&LogText<'_>) -> bool + '_ {
        let number = iteration.number;
        let (is_hidden, look) = (self.hides(number), self.rendering(number));
        move |said| match said {
            _ if is_hidden => true,
            LogText::Result(slot, _, outcome) => look.result(*slot, outcome) != Look::Whole,
            _ => false,
        }
    }
}

/// Adds the pinned texts that a summary lacks. Lines are looked up in a set: searching the whole summary for each text would
/// take quadratic time.
pub(crate) fn add_pinned(summary: &mut String, pinned: &[String]) {
    let mut known: HashSet<&str> = summary.lines().collect();
    let missing = pinned.iter().filter(|text| {
        let new = text.lines().inspect(|_| steps::count(1));
        new.filter(|line| known.insert(line)).count() > 0
    });
    let missing: Vec<&String> = missing.collect();
    for text in missing {
        summary.push('\n');
        summary.push_str(text);
    }
}
