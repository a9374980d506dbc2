//! The text that a model reads in place of hidden iterations: how to get them back, their pinned parts, the user's words,
//! and the facts that are likeliest to be needed again.

use std::collections::HashSet;
use std::sync::Arc;

use crate::context::facts::{keys, Facts};
use crate::context::said::Said;
use crate::context::Context;
use crate::log::exchange::Entry;
use crate::log::message::Message;
use crate::tokens::Method;
use crate::value::time::Time;
use crate::view::handle::RECALL;
use crate::view::note;
use crate::view::pins::Pins;
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

/// How detailed a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockDetail {
    /// All that the rules of the view ask for.
    All,
    /// A handle and the pins only.
    Least,
}

impl Context {
    /// Sets how detailed the blocks for hidden iterations are: thousandths of their tokens for an index, and bytes of the
    /// user's words; `None` leaves them. Blocks that are there already are made anew.
    ///
    /// # Complexity
    /// O(the log) for each block
    #[must_use]
    pub fn put_index(&self, share: Option<usize>, user_bytes: Option<usize>, at: Time) -> Self {
        let mut next = self.clone();
        next.change_view(|view| {
            view.index = share.map_or(view.index, |share| share.min(SHARES));
            view.user_bytes = user_bytes.or(view.user_bytes);
        });
        if next.view() != self.view() {
            next.note_anew();
        }
        next.log.updated_at = at;
        next
    }

    /// Returns the message in the place of a hidden range.
    pub(crate) fn block(&self, first: u64, last: u64, told: BlockDetail) -> Option<Arc<Message>> {
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
        let recall = handle.map_or_else(String::new, |handle| format!(", {RECALL} {handle}"));
        let mut text = format!("[{range} hidden{recall}]");
        let user = match told {
            BlockDetail::All if handle.is_some() => self.user_lines(first, last, &pinned),
            _ => Vec::new(),
        };
        for line in user.iter().chain(&pinned) {
            text.push('\n');
            text.push_str(line);
        }
        if view.index > 0 && told == BlockDetail::All {
            self.add_index(first, last, view.index, &mut text);
        }
        Some(Arc::new(note(first, last, text)))
    }

    /// Returns the pinned texts of a range.
    pub(crate) fn pinned_lines(&self, first: u64, last: u64) -> Vec<String> {
        let mut lines = Vec::new();
        let Some(pins) = self.view().and_then(|view| view.pins.as_deref()) else {
            return lines;
        };
        for (number, before, entry) in self.entries_of(first, last) {
            for said in Said::of(entry) {
                let text = said.text(self.masks());
                let label = said.label();
                if is_pinned(pins, number, before, entry, &said) {
                    lines.push(format!("{label}{text}"));
                } else {
                    let facts = pins.lines(&text).into_iter();
                    lines.extend(facts.map(|line| format!("{label}{line}")));
                }
            }
        }
        lines
    }

    /// Returns the entries of a range, each with its iteration and the slots before it.
    fn entries_of(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, usize, &Entry)> {
        let iterations = (first..=last).map_while(|number| self.log.get_numbered(number));
        iterations.flat_map(|iteration| {
            let mut slots = 0;
            iteration.entries().map(move |entry| {
                let before = slots;
                slots += entry.message.calls.len();
                (iteration.number, before, entry)
            })
        })
    }

    /// Returns the user's words in a range, as many as fit: the newest ones, oldest first.
    fn user_lines(&self, first: u64, last: u64, pinned: &[String]) -> Vec<String> {
        let most = self.view().and_then(|view| view.user_bytes).unwrap_or(USER);
        let iterations = (first..=last).map_while(|number| self.log.get_numbered(number));
        let bytes: usize = iterations.map(|one| one.size().bytes).sum();
        let mut room = most.min(bytes / USER_SHARE);
        let pinned: HashSet<&str> = pinned.iter().map(String::as_str).collect();
        let mut lines = Vec::new();
        let back = (first..=last)
            .rev()
            .filter_map(|number| self.log.get_numbered(number));
        for entry in back.flat_map(|iteration| iteration.entries().rev()) {
            let said = Said::Message(&entry.message);
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
        let iterations = (first..=last).map_while(|number| self.log.get_numbered(number));
        let tokens = |sum: u64, iteration: &crate::log::iteration::Iteration| {
            sum + iteration.tokens(Method::Estimate, Rendering::PLAIN).total()
        };
        let all = iterations.fold(0, tokens);
        let mut room = all.saturating_mul(share as u64) / SHARES as u64;
        if room < LEAST {
            return;
        }
        let known = keys(text);
        let iterations = (first..=last).map_while(|number| self.log.get_numbered(number));
        let bytes: usize = iterations.map(|one| one.size().bytes).sum();
        let mut searches = bytes.saturating_mul(SEARCHES);
        let mut separator = "\nfacts: ";
        for fact in self.ranked_facts(first, last) {
            let Some(left) = searches.checked_sub(text.len()) else {
                break;
            };
            searches = left;
            if fact.is_masked || known.contains(&fact.key) || text.contains(&*fact.text) {
                continue;
            }
            let cost = Method::Estimate.text(fact.text.as_bytes()) + 1;
            let Some(left) = room.checked_sub(cost) else {
                break;
            };
            room = left;
            text.push_str(separator);
            text.push_str(&fact.text);
            separator = "; ";
        }
    }

    /// Returns the facts of a range, the likeliest to be needed again first.
    pub(crate) fn ranked_facts(&self, first: u64, last: u64) -> Vec<crate::context::facts::Fact> {
        let used = self.list_used(u64::MAX);
        let mut facts = Facts::new(&used);
        for (number, before, entry) in self.entries_of(first, last) {
            for said in Said::of(entry) {
                let place = match said {
                    Said::Result(_, call, _) | Said::Call(call) if call.name.as_str() == RECALL => {
                        continue;
                    }
                    Said::Result(slot, ..) => Some(before + slot),
                    _ => None,
                };
                facts.read(&said, (number, place), self.masks());
            }
        }
        facts.rank()
    }
}

fn is_pinned(pins: &Pins, number: u64, before: usize, entry: &Entry, said: &Said<'_>) -> bool {
    match said {
        Said::Message(_) => pins.has_message(number, entry.position),
        Said::Result(slot, ..) => pins.has_result(number, before + slot),
        // A pinned result pins its call and the decision about it, too.
        Said::Call(call) | Said::Decision(call, _) => {
            let slot = entry.message.calls.iter().position(|one| one.id == call.id);
            slot.is_some_and(|slot| pins.has_result(number, before + slot))
        }
    }
}
