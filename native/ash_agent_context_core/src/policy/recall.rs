//! Reads again texts that the view does not show: by handle, or found by their words.

use std::collections::HashSet;
use std::sync::Arc;

use crate::context::log_text::LogText;
use crate::context::Context;
use crate::error::Error;
use crate::log::exchange::Entry;
use crate::value::time::Time;
use crate::value::{letters, steps};
use crate::view::excerpt::Excerpt;
use crate::view::masks::Masks;
use crate::view::recall_handle::{RecallHandle, RecallPlace, RECALL};
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
                let (call, outcome) = self.log.get_numbered(iteration)?.calls().nth(slot)?;
                let outcome = outcome?;
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

    /// Returns all texts of some iterations.
    fn transcript(&self, first: u64, last: u64) -> String {
        let mut text = String::new();
        for said in self.said_between(first, last) {
            text.push_str(said.label());
            text.push_str(&said.text(self.masks()));
            text.push('\n');
        }
        text
    }

    /// Searches the texts that the view does not show in full for words. Returns at most so many hits, the best first.
    ///
    /// # Complexity
    /// O(the log)
    #[must_use]
    pub fn search(&self, words: &str, most: usize) -> Vec<Hit> {
        let mut search = Search::new(words);
        let mut places = Vec::new();
        for (iteration, slots, entry, is_hidden) in self.list_shortened() {
            for said in LogText::of(entry) {
                let Some(place) = self.place_of(iteration, slots, &said, is_hidden) else {
                    continue;
                };
                let text = said.text(self.masks());
                if search.read(&text) {
                    places.push((place, iteration, said, text));
                }
            }
        }
        let found = search.rank(most);
        let hit = |found: FoundText| {
            let (place, iteration, said, text) = places.get(found.text)?;
            let handle = match (place, said) {
                (Some(slot), LogText::Result(_, call, outcome)) => {
                    RecallHandle::of_result(*iteration, *slot, call, outcome)
                }
                _ => self.handle_of(*iteration, *iteration),
            };
            Some(Hit {
                handle,
                text: search.excerpt(text),
                score: found.score,
            })
        };
        found.into_iter().filter_map(hit).collect()
    }

    /// Returns the entries that may not be shown in full: the number of the iteration, the slots before the entry in it, and
    /// true if it is hidden.
    pub(crate) fn list_shortened(&self) -> impl Iterator<Item = (u64, usize, &Entry, bool)> {
        self.iterations().flat_map(|iteration| {
            let is_hidden = self.hides(iteration.number);
            let entries = iteration.placed_entries();
            entries.map(move |(before, entry)| (iteration.number, before, entry, is_hidden))
        })
    }

    /// Returns the place of a text that is not shown in full: with the slot of a result. `None` if it is shown, or was
    /// recalled.
    #[allow(clippy::option_option)]
    pub(crate) fn place_of(
        &self,
        iteration: u64,
        before: usize,
        said: &LogText<'_>,
        is_hidden: bool,
    ) -> Option<Option<usize>> {
        match said {
            LogText::Result(_, call, _) | LogText::Call(call) if call.name.as_str() == RECALL => {
                None
            }
            LogText::Result(slot, _, outcome) => {
                let look = self.rendering(iteration).behind(before);
                let is_cut = look.result(*slot, outcome) != Look::Whole;
                (is_hidden || is_cut).then_some(Some(before + slot))
            }
            _ => is_hidden.then_some(None),
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
