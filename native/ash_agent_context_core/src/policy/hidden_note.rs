//! The text that a model reads in place of hidden iterations: how to get them back, their pinned parts, the user's words,
//! and the facts that are likeliest to be needed again.

use std::collections::HashSet;
use std::sync::Arc;

use crate::context::log_text::LogText;
use crate::context::Context;
use crate::log::iteration::Iteration;
use crate::log::marks::FactCounts;
use crate::log::message::Message;
use crate::policy::facts::{keys, marks, Fact, Facts};
use crate::tokens::Method;
use crate::value::time::Time;
use crate::view::note;
use crate::view::pins::{Pin, Pins};
use crate::view::recall_handle::RECALL;
use crate::view::rendering::Rendering;

/// So many bytes of the user's words are quoted by default.
const USER: usize = 2_000;

/// And at most this share of the hidden bytes, as a divisor.
const USER_SHARE: usize = 8;

/// So many bytes of one message of the user are quoted.
const MESSAGE: usize = 500;

/// The unit for the share of an index: thousandths.
pub(crate) const SHARES: usize = 1_000;

/// The fewest tokens of an index; with less room there is none.
const LEAST: u64 = 8;

/// A text may be searched for facts that it has already so often, times the text that it stands for: many facts in a long
/// text would take quadratic time.
pub(crate) const SEARCHES: usize = 256;

impl Context {
    /// Sets how detailed the notes for hidden iterations are: thousandths of their tokens for an index, and bytes of the
    /// user's words; `None` leaves them. Notes that are there already are made anew.
    ///
    /// # Complexity
    /// O(the log) for each note
    #[must_use]
    pub fn put_index(&self, share: Option<usize>, user_bytes: Option<usize>, at: Time) -> Self {
        self.changed(at, |next| {
            next.change_view(|view| {
                view.index = share.map_or(view.index, |share| share.min(SHARES));
                view.user_bytes = user_bytes.or(view.user_bytes);
            });
            if next.view() != self.view() {
                next.note_anew();
            }
        })
    }

    /// Returns the message in the place of a hidden range, as detailed as the rules of the view ask for.
    pub(crate) fn hidden_note(&self, first: u64, last: u64) -> Option<Arc<Message>> {
        self.make_note(first, last, false)
    }

    /// Returns this message with a handle and the pins only.
    pub(crate) fn least_note(&self, first: u64, last: u64) -> Option<Arc<Message>> {
        self.make_note(first, last, true)
    }

    fn make_note(&self, first: u64, last: u64, is_least: bool) -> Option<Arc<Message>> {
        let view = self.view()?;
        let handle = self.handle_over(first, last);
        let pinned = self.pinned_lines(first, last);
        if handle.is_none() && pinned.is_empty() {
            return None;
        }
        let range = match first == last {
            true => format!("Iteration {first} is"),
            false => format!("Iterations {first} to {last} are"),
        };
        let has_index = view.index > 0 && !is_least;
        if has_index {
            // The results are counted with it, so that no text is read twice.
            self.log.between(first, last).for_each(|one| {
                marks(one);
            });
        }
        let recall = handle.map_or_else(String::new, |handle| {
            let told = self.tell_results(first, last);
            format!("{told}, {RECALL} {handle}")
        });
        let mut text = format!("[{range} hidden{recall}]");
        let user = match handle {
            Some(_) if !is_least => self.user_lines(first, last, &pinned),
            _ => Vec::new(),
        };
        for line in user.iter().chain(&pinned) {
            text.push('\n');
            text.push_str(line);
        }
        if has_index {
            self.add_index(first, last, view.index, &mut text);
        }
        Some(Arc::new(note(first, last, text)))
    }

    /// Returns how many results a range has, and which facts are in them.
    fn tell_results(&self, first: u64, last: u64) -> String {
        let (mut counts, mut results) = (FactCounts::default(), 0);
        for (_, said) in self.texts_between(first, last) {
            if let (LogText::Result(_, _, outcome), false) = (said, said.is_recall()) {
                counts.add(outcome.count_facts(self.masks()));
                results += 1;
            }
        }
        let told = counts.words().join(", ");
        match (results, told.is_empty()) {
            (0, _) | (_, true) => String::new(),
            (1, _) => format!(": a result with {told}"),
            _ => format!(": {results} results with {told}"),
        }
    }

    /// Returns the pinned texts of a range.
    pub(crate) fn pinned_lines(&self, first: u64, last: u64) -> Vec<String> {
        let mut lines = Vec::new();
        let Some(pins) = self.view().and_then(|view| view.pins.as_deref()) else {
            return lines;
        };
        for (number, said) in self.texts_between(first, last) {
            let text = said.text(self.masks());
            let label = said.label();
            if is_pinned(pins, number, &said) {
                lines.push(format!("{label}: {text}"));
            } else {
                let facts = pins.lines(&text).into_iter();
                lines.extend(facts.map(|line| format!("{label}: {line}")));
            }
        }
        lines
    }

    /// Returns the user's words in a range, as many as fit: the newest ones, oldest first.
    fn user_lines(&self, first: u64, last: u64, pinned: &[String]) -> Vec<String> {
        let most = self.view().and_then(|view| view.user_bytes).unwrap_or(USER);
        let iterations = self.log.between(first, last);
        let bytes: usize = iterations.clone().map(|one| one.size().bytes).sum();
        let mut room = most.min(bytes / USER_SHARE);
        let pinned: HashSet<&str> = pinned.iter().map(String::as_str).collect();
        let mut lines = Vec::new();
        let back = iterations.rev();
        for entry in back.flat_map(|iteration| iteration.entries().rev()) {
            let said = LogText::Message(entry.position, &entry.message);
            if !said.is_of_user() {
                continue;
            }
            let text = said.text(self.masks());
            let text = text.trim();
            let cut = text
                .get(..text.floor_char_boundary(MESSAGE))
                .unwrap_or_default();
            let more = if cut.len() < text.len() { "…" } else { "" };
            let line = format!("user: {cut}{more}");
            if cut.is_empty() || pinned.contains(&*line) {
                continue;
            }
            let Some(left) = room.checked_sub(line.len() + 1) else {
                break;
            };
            room = left;
            lines.push(line);
        }
        lines.reverse();
        lines
    }

    /// Adds the facts of a range that are likeliest to be needed again, but for those that the text has.
    fn add_index(&self, first: u64, last: u64, share: usize, text: &mut String) {
        let iterations = self.log.between(first, last);
        let tokens = |one: &Iteration| one.tokens(Method::Estimate, Rendering::PLAIN).total();
        let all: u64 = iterations.clone().map(tokens).sum();
        let mut room = all.saturating_mul(share as u64) / SHARES as u64;
        if room < LEAST {
            return;
        }
        let known = keys(text);
        let bytes: usize = iterations.map(|one| one.size().bytes).sum();
        let searches = bytes.saturating_mul(SEARCHES);
        let facts = self.ranked_facts(first, last);
        let skips = |fact: &Fact| fact.is_masked || known.contains(&fact.key);
        append_facts(
            text,
            "\nfacts: ",
            facts.iter(),
            skips,
            (&mut room, searches),
        );
    }

    /// Returns the facts of a range, the likeliest to be needed again first.
    pub(crate) fn ranked_facts(&self, first: u64, last: u64) -> Vec<Fact> {
        let used = self.list_used();
        let mut facts = Facts::new(&used);
        for iteration in self.log.between(first, last) {
            for (number, said) in iteration.entries().flat_map(LogText::of).enumerate() {
                if !said.is_recall() {
                    facts.read((iteration, number), &said, self.masks());
                }
            }
        }
        facts.rank(usize::MAX, |_| true)
    }
}

/// Appends words in a list, if there is room for their tokens.
pub(crate) fn append_words(text: &mut String, start: &str, words: &str, room: &mut u64) -> bool {
    let cost = Method::Estimate.text(words.as_bytes()) + 1;
    let Some(left) = room.checked_sub(cost) else {
        return false;
    };
    *room = left;
    text.push_str(start);
    text.push_str(words);
    true
}

/// Appends the facts that a text lacks, but for those to skip, while there is room for their tokens and for searching the
/// text. Returns how many.
pub(crate) fn append_facts<'f>(
    text: &mut String,
    mut start: &str,
    facts: impl Iterator<Item = &'f Fact>,
    skips: impl Fn(&Fact) -> bool,
    (room, mut searches): (&mut u64, usize),
) -> usize {
    let mut appended = 0;
    let most = usize::try_from(*room).unwrap_or(usize::MAX);
    let mut runs = Runs::within(most.saturating_mul(4).saturating_add(text.len()));
    for fact in facts {
        let Some(left) = searches.checked_sub(text.len()) else {
            break;
        };
        searches = left;
        // A line of the user may contain a number that is a fact of its own.
        if skips(fact) || runs.may_have(text, &fact.text) && text.contains(&*fact.text) {
            continue;
        }
        if !append_words(text, start, &fact.text, room) {
            break;
        }
        start = "; ";
        appended += 1;
    }
    appended
}

/// Tells of most texts that a longer one, which grows, does not contain them: by the runs of 4 and of 8 bytes that it has.
struct Runs {
    has: Vec<bool>,
    read: usize,
}

impl Runs {
    /// Makes one for a text that grows to about so many bytes; of a longer one it knows less.
    fn within(bytes: usize) -> Self {
        const PLACES: usize = 1 << 20;
        let places = bytes.saturating_mul(8).min(PLACES).next_power_of_two();
        Self {
            has: vec![false; places],
            read: 0,
        }
    }

    fn may_have(&mut self, text: &str, part: &str) -> bool {
        let places = self.has.len() as u64;
        let place = |run: &[u8]| (key_of_run(run) % places) as usize;
        for length in [4, 8] {
            let from = self.read.saturating_sub(length - 1);
            let new = text.as_bytes().get(from..).unwrap_or_default();
            for run in new.windows(length) {
                let place = self.has.get_mut(place(run));
                place.into_iter().for_each(|has| *has = true);
            }
        }
        self.read = text.len();
        let length = if part.len() < 8 { 4 } else { 8 };
        let mut runs = part.as_bytes().windows(length);
        runs.all(|run| self.has.get(place(run)) == Some(&true))
    }
}

/// Returns a number for a run of up to eight bytes.
fn key_of_run(run: &[u8]) -> u64 {
    let number = run
        .iter()
        .fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

fn is_pinned(pins: &Pins, number: u64, said: &LogText<'_>) -> bool {
    pins.has(&match said {
        LogText::Message(position, _) => Pin::Message(number, *position),
        // A pinned result pins its call and the decision about it, too.
        LogText::Result(slot, ..) | LogText::Call(slot, _) | LogText::Decision(slot, ..) => {
            Pin::Result(number, *slot)
        }
    })
}
