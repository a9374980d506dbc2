//! The text that a model reads in place of hidden iterations: how to get them back, their pinned parts, the user's words,
//! and the facts that are likeliest to be needed again.

use std::collections::HashSet;
use std::sync::Arc;

use crate::context::log_text::LogText;
use crate::context::Context;
use crate::log::iteration::Iteration;
use crate::log::kept::Slot;
use crate::log::marks::FactCounts;
use crate::log::message::Message;
use crate::policy::facts::{keys, marks};
use crate::policy::known_facts::{Fact, Texts};
use crate::tokens::Method;
use crate::value::time::Time;
use crate::view::masks::Masks;
use crate::view::note;
use crate::view::pins::{Pin, Pins};
use crate::view::recall_handle::{Checksum, RecallHandle, RECALL};

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

/// What iterations add up to, for the note in their place.
#[derive(Debug, Clone, Default)]
struct HiddenSum {
    first: u64,
    /// The number behind the last one that was added.
    end: u64,
    /// The key of the masks under which it was counted.
    masks: Option<u64>,
    check: Checksum,
    counts: FactCounts,
    results: usize,
    bytes: usize,
    /// The iterations with words of the user.
    users: Vec<u64>,
}

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
        let pinned = self.pinned_lines(first, last);
        if !view.recall && pinned.is_empty() {
            return None;
        }
        let range = match first == last {
            true => format!("Iteration {first} is"),
            false => format!("Iterations {first} to {last} are"),
        };
        let has_index = view.index > 0 && !is_least;
        let (recall, user) = match view.recall {
            true => self.with_sum(first, last, has_index, |sum| {
                let handle = RecallHandle::of_checked(first, last, sum.check);
                let recall = format!("{}, {RECALL} {handle}", sum.tell_results());
                let user = (!is_least).then(|| self.user_lines(sum, &pinned));
                (recall, user.unwrap_or_default())
            }),
            false => (String::new(), Vec::new()),
        };
        let mut text = format!("[{range} hidden{recall}]");
        for line in user.iter().chain(&pinned) {
            text.push('\n');
            text.push_str(line);
        }
        if has_index {
            self.add_index(first, last, view.index, &mut text);
        }
        Some(Arc::new(note(first, last, text)))
    }

    /// Looks at what iterations add up to. With `is_marked`, their results are counted with the marks of their texts, so that no
    /// text is read twice.
    ///
    /// # Complexity
    /// O(the iterations that were not added before)
    fn with_sum<R>(
        &self,
        first: u64,
        last: u64,
        is_marked: bool,
        look: impl FnOnce(&HiddenSum) -> R,
    ) -> R {
        let history = &self.log.history;
        let masks = self.masks().map(|masks| masks.key);
        let kept = history.take_kept::<HiddenSum>(Slot::RangeSum);
        let kept = kept.filter(|sum| {
            (sum.first, sum.masks) == (first, masks) && sum.end <= last.saturating_add(1)
        });
        let mut sum = kept.unwrap_or_else(|| Box::new(HiddenSum::new(first, masks)));
        let add = |sum: &mut HiddenSum, until: u64| {
            for iteration in self.log.between(sum.end, until) {
                if is_marked {
                    marks(iteration);
                }
                sum.add(iteration, self.masks());
            }
            sum.end = sum.end.max(until.saturating_add(1));
        };
        let current = self.current_iteration();
        add(&mut sum, last.min(current.saturating_sub(1)));
        // The current iteration may change.
        let mut all = None;
        if last >= current {
            add(all.insert((*sum).clone()), last);
        }
        let told = look(all.as_ref().unwrap_or(&sum));
        let len = sum.end.saturating_sub(self.first_number());
        history.keep(Slot::RangeSum, usize::try_from(len).unwrap_or(0), sum);
        told
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
    fn user_lines(&self, sum: &HiddenSum, pinned: &[String]) -> Vec<String> {
        let most = self.view().and_then(|view| view.user_bytes).unwrap_or(USER);
        let mut room = most.min(sum.bytes / USER_SHARE);
        let pinned: HashSet<&str> = pinned.iter().map(String::as_str).collect();
        let mut lines = Vec::new();
        let back = sum.users.iter().rev();
        let back = back.filter_map(|number| self.log.get_numbered(*number));
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
        self.with_facts(Texts::Between(first, last), |facts| {
            let mut room = facts.tokens.saturating_mul(share as u64) / SHARES as u64;
            if room < LEAST {
                return;
            }
            let known = keys(text);
            let searches = facts.bytes.saturating_mul(SEARCHES);
            let skips = |fact: &Fact| fact.is_masked || known.contains(&fact.key);
            append_facts(
                text,
                "\nfacts: ",
                facts.best(usize::MAX, true),
                skips,
                (&mut room, searches),
            );
        });
    }
}

impl HiddenSum {
    fn new(first: u64, masks: Option<u64>) -> Self {
        Self {
            first,
            end: first,
            masks,
            ..Self::default()
        }
    }

    fn add(&mut self, iteration: &Iteration, masks: Option<&Masks>) {
        self.check.add_iteration(iteration);
        self.bytes = self.bytes.saturating_add(iteration.size().bytes);
        let mut is_of_user = false;
        for said in iteration.entries().flat_map(LogText::of) {
            is_of_user |= said.is_of_user();
            if let (LogText::Result(_, _, outcome), false) = (said, said.is_recall()) {
                self.counts.add(outcome.count_facts(masks));
                self.results += 1;
            }
        }
        self.users.extend(is_of_user.then_some(iteration.number));
    }

    /// Tells how many results there are, and which facts are in them.
    fn tell_results(&self) -> String {
        let told = self.counts.words().join(", ");
        match (self.results, told.is_empty()) {
            (0, _) | (_, true) => String::new(),
            (1, _) => format!(": a result with {told}"),
            (results, _) => format!(": {results} results with {told}"),
        }
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
