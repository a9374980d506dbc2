//! How a message looks in the view: results blanked or shortened, texts masked.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::log::call::ToolCall;
use crate::log::exchange::{Exchange, MessageRef};
use crate::log::iteration::Iteration;
use crate::log::message::{Message, Outcome, Output, Status};
use crate::log::original::Original;
use crate::log::part::{Part, PartKind};
use crate::value::letters;
use crate::value::word::words;
use crate::value::Value;
use crate::view::change::{Change, ChangeKind};
use crate::view::checking::Checking;
use crate::view::masks::Masks;
use crate::view::note;
use crate::view::pairs::Pairs;
use crate::view::pins::{Pin, Pins};
use crate::view::recall_handle::{RecallHandle, RECALL};
use crate::view::texts::output_text;

/// Distinguishes encodings without the model's thinking.
const UNBOUND: u64 = 0x9e37_79b9_7f4a_7c15;

/// Distinguishes encodings of results that arrived for calls which are not sent.
const APART: u64 = 0xd1b5_4a32_d192_ed03;

/// The note in a result that is cut to fewer bytes does not tell which facts there are.
const TOLD: usize = 1_000;

/// The look of one iteration's messages.
#[derive(Debug, Clone, Copy)]
pub struct Rendering<'a> {
    /// The number of its first results that are blanked.
    pub(crate) cleared: usize,
    /// The text in their place.
    pub(crate) placeholder: &'a str,
    /// The most bytes of text that a result may have.
    pub(crate) most: usize,
    /// The masks for all texts.
    pub(crate) masks: Option<&'a Masks>,
    /// Pinned results stay as they are, and pinned lines stay in the others.
    pub(crate) pins: Option<&'a Pins>,
    /// The range of messages that are sent; given if the iteration has halves of pairs whose other halves are in other
    /// messages.
    pub(crate) pairs: Option<Pairs<'a>>,
    /// Given if the model's thinking is left out, since it was made behind something else.
    pub(crate) unbound: Option<Checking>,
    /// True if results arrived in it for calls that are not sent.
    pub(crate) apart: bool,
    /// A shortened text says how to get it back.
    pub(crate) recall: bool,
    /// The number of the iteration.
    pub(crate) iteration: u64,
    /// The number of its slots before those that are looked at.
    pub(crate) before: usize,
}

words! {
    /// The looks of a part of the log, the most complete first.
    pub enum Look {
        /// Unchanged.
        Whole = "whole",
        /// A result without its middle.
        Shortened = "shortened",
        /// A result of which only a note is left.
        Cleared = "cleared",
        /// Iterations that a summary stands for.
        Summarized = "summarized",
        /// Iterations that are hidden.
        Hidden = "hidden",
    }
}

/// A message of the view.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// The message of the log.
    pub message: MessageRef<'a>,
    /// Its look.
    pub(crate) rendering: Rendering<'a>,
}

/// A message as it looks.
#[derive(Debug)]
pub enum Seen<'a> {
    /// As it is in the log.
    Same(MessageRef<'a>),
    /// A message in other words.
    Added(Box<Message>),
    /// Results in other words.
    Results(&'a [ToolCall], Box<Exchange>),
}

impl<'a> Shown<'a> {
    pub(crate) const fn added(message: &'a Message, rendering: Rendering<'a>) -> Self {
        let message = MessageRef::Added(message);
        Self { message, rendering }
    }
    /// Returns the message as it looks.
    #[must_use]
    pub fn see(self) -> Seen<'a> {
        let other = match self.message {
            MessageRef::Added(message) => {
                let other = self.rendering.message(message);
                other.map(|other| Seen::Added(Box::new(other)))
            }
            MessageRef::Results(calls, exchange) => {
                let other = self.rendering.exchange(calls, exchange);
                other.map(|other| Seen::Results(calls, Box::new(other)))
            }
        };
        other.unwrap_or(Seen::Same(self.message))
    }
}

impl Seen<'_> {
    /// Returns the message, wherever it is.
    #[must_use]
    pub fn message(&self) -> MessageRef<'_> {
        match self {
            Self::Same(message) => *message,
            Self::Added(message) => MessageRef::Added(message),
            Self::Results(calls, exchange) => MessageRef::Results(calls, exchange),
        }
    }
}

impl<'a> Rendering<'a> {
    /// Everything looks as in the log.
    pub(crate) const PLAIN: Self = Self {
        cleared: 0,
        placeholder: "",
        most: usize::MAX,
        masks: None,
        pins: None,
        pairs: None,
        unbound: None,
        apart: false,
        recall: false,
        iteration: 0,
        before: 0,
    };

    /// Returns the look of results with so many slots before them in the iteration.
    pub(crate) fn behind(mut self, slots: usize) -> Self {
        self.cleared = self.cleared.saturating_sub(slots);
        self.before += slots;
        self
    }

    /// Returns the look where results may have only so many bytes.
    pub(crate) fn at_most(mut self, most: usize) -> Self {
        self.most = self.most.min(most);
        self
    }

    /// Returns true if everything looks as in the log, given that no result is longer than this.
    pub(crate) fn is_plain(&self, longest: usize) -> bool {
        let is_whole = self.pairs.is_none() && self.unbound.is_none() && !self.apart;
        self.cleared == 0 && self.masks.is_none() && is_whole && longest <= self.most
    }

    /// Returns a key for the encodings of an iteration with this look; 0 when it is as in the log.
    pub(crate) fn key_of_iteration(&self, iteration: &Iteration) -> u64 {
        let key = self.key(iteration.count_calls(), iteration.longest);
        let key = self.unbound.map_or(key, |_| key.rotate_left(1) ^ UNBOUND);
        if self.apart {
            return key.rotate_left(1) ^ APART;
        }
        key
    }

    /// Returns such a key for the results of a message.
    pub(crate) fn key_of_results(&self, exchange: &Exchange) -> u64 {
        let key = self.key(exchange.count_calls(), exchange.longest);
        if self.apart && exchange.arrival.is_some() {
            return key.rotate_left(1) ^ APART;
        }
        key
    }

    /// Returns such a key for a message.
    pub(crate) fn key_of_message(&self, message: &Message) -> u64 {
        // A key of masks is never 0.
        let masks = self.masks.map_or(0, |masks| masks.key | 1);
        let key = match self.pairs.and_then(|pairs| pairs.key(message)) {
            None => masks,
            Some(pairs) => (masks.rotate_left(1) ^ pairs) | 1,
        };
        let lacks = self.unbound.filter(|checking| checking.binds_any(message));
        lacks.map_or(key, |_| (key.rotate_left(1) ^ UNBOUND) | 1)
    }

    fn key(&self, slots: usize, longest: usize) -> u64 {
        let cleared = self.cleared.min(slots);
        // Masking may make a text longer.
        let most = (longest > self.most || self.masks.is_some()).then_some(self.most);
        if cleared == 0 && most.is_none() {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        let placeholder = (cleared > 0).then_some(self.placeholder);
        (cleared, placeholder, most).hash(&mut hasher);
        self.masks.map(|masks| masks.key).hash(&mut hasher);
        let is_placed = self.recall || self.pins.is_some();
        let place = is_placed.then_some((self.iteration, self.before));
        (self.recall, place, self.pins.map(|pins| pins.key)).hash(&mut hasher);
        hasher.finish()
    }

    fn is_pinned(&self, slot: usize) -> bool {
        let pins = self.pins;
        pins.is_some_and(|pins| pins.has(&Pin::Result(self.iteration, self.before + slot)))
    }

    /// Returns the lines of a result with pinned facts, but for those that are there already.
    fn pinned_lines(&self, outcome: &Outcome, there: &str) -> String {
        let Some(pins) = self.pins else {
            return String::new();
        };
        let text = output_text(outcome, self.masks);
        let lines = pins.lines(&text).into_iter();
        let lines = lines.filter(|line| !there.contains(line));
        lines.map(|line| format!("\n{line}")).collect()
    }

    /// Returns the look of a result.
    pub(crate) fn result(&self, slot: usize, outcome: &Outcome) -> Look {
        match () {
            () if self.is_pinned(slot) => Look::Whole,
            // What a model reads of a call that waits stays for ever.
            () if outcome.status == Status::Waiting => Look::Whole,
            () if slot < self.cleared => Look::Cleared,
            () if outcome.longest() > self.most => Look::Shortened,
            () => Look::Whole,
        }
    }

    /// Returns the message as it looks; `None` if that is as in the log.
    pub(crate) fn message(&self, message: &Message) -> Option<Message> {
        let whole = self.pairs.and_then(|pairs| pairs.message(message));
        let unbound = self.unbound.and_then(|checking| {
            let message = whole.as_ref().unwrap_or(message);
            checking.withhold(message)
        });
        let whole = unbound.or(whole);
        let Some(masks) = self.masks else {
            return whole;
        };
        let message = whole.as_ref().unwrap_or(message);
        let (content, calls) = (masks.content(&message.content), masks.calls(message));
        let mut shown = Message::new(message.role, content, calls, message.metadata.clone());
        if shown.content.count_parts() == message.content.count_parts() {
            // Its order is still the provider's.
            shown.original = message.original.clone().map(|original| Original {
                json: Box::default(),
                ..original
            });
        }
        let mut reply = message.reply.as_deref().cloned();
        if let Some(reply) = &mut reply {
            reply.details = reply.details.as_ref().map(|details| masks.map(details));
        }
        Some(shown.with_reply(reply))
    }

    /// Returns the results as they look; `None` if that is as in the log.
    pub(crate) fn exchange(&self, calls: &[ToolCall], exchange: &Exchange) -> Option<Exchange> {
        if self.key_of_results(exchange) == 0 {
            return None;
        }
        let mut other = Exchange::new(exchange.count_calls());
        for (slot, (outcome, call)) in exchange.outcomes().zip(calls).enumerate() {
            if let Some(outcome) = outcome {
                let output = self.output(slot, call, outcome);
                let shown = output.map(|output| {
                    let late = outcome.late.as_deref().cloned();
                    Arc::new(Outcome::new(outcome.status, output).with_late(late))
                });
                other.fill(slot, shown.unwrap_or_else(|| outcome.clone()));
            }
        }
        other.metadata.clone_from(&exchange.metadata);
        other.decisions.clone_from(&exchange.decisions);
        other.arrival = exchange.arrival;
        Some(other)
    }

    /// Returns the change that the look makes to a message, for a report.
    pub(crate) fn change_of_message(&self, message: &Message) -> Option<Change> {
        // Pairs are reported where they are written.
        let alone = Self {
            pairs: None,
            unbound: None,
            ..*self
        };
        let shown = alone.message(message)?;
        let is_changed = shown.content != message.content || shown.calls != message.calls;
        is_changed.then(|| Change {
            what: ChangeKind::MaskedText,
            from: message.role.name().to_owned(),
            to: None,
        })
    }

    /// Returns the changes that the look makes to results, for a report. Each is named by the id of its call.
    pub(crate) fn changes_of_results(
        &self,
        calls: &[ToolCall],
        exchange: &Exchange,
    ) -> Vec<Change> {
        let Some(shown) = self.exchange(calls, exchange) else {
            return Vec::new();
        };
        let pairs = exchange.slots().zip(shown.slots()).zip(calls).enumerate();
        let changed = pairs.filter_map(|(slot, ((before, after), call))| {
            let (before, after) = (before?, after?);
            let what = match before.output == after.output {
                true => return None,
                false if slot < self.cleared => ChangeKind::ClearedResult,
                false if before.longest() > self.most => ChangeKind::ShortenedResult,
                false => ChangeKind::MaskedText,
            };
            Some(Change {
                what,
                from: call.id.to_string(),
                to: after.text().map(|text| letters::utf8(text).into_owned()),
            })
        });
        changed.collect()
    }

    /// Returns the result in other words; `None` if it stays as it is.
    fn output(&self, slot: usize, call: &ToolCall, outcome: &Outcome) -> Option<Output> {
        if outcome.status == Status::Waiting {
            return None;
        }
        let handle = || {
            let slot = self.before + slot;
            let handle = RecallHandle::of_result(self.iteration, slot, call, outcome);
            self.recall.then_some(handle)
        };
        let look = self.result(slot, outcome);
        if look == Look::Cleared {
            let pinned = self.pinned_lines(outcome, "");
            let Some(handle) = handle() else {
                let text = format!("{}{pinned}", self.placeholder);
                return Some(Output::Value(Value::text(&text)));
            };
            let note = note::of_cleared(handle, call, self.masks, outcome) + &pinned;
            // Texts that are short enough stay.
            if outcome.longest() > note.len() || matches!(outcome.output, Output::Parts(_)) {
                return Some(Output::Value(Value::text(&note)));
            }
        }
        let masked = self.masks.and_then(|masks| masks.output(outcome));
        let masked = masked.map(|output| Outcome::new(outcome.status, output));
        let seen = masked.as_ref().unwrap_or(outcome);
        if seen.longest() > self.most && !self.is_pinned(slot) {
            let handle = handle();
            let told = handle.filter(|_| self.most >= TOLD).map(|_| {
                let facts = outcome.count_facts(self.masks).words();
                facts.join(", ")
            });
            let shortening = TextCut {
                most: self.most,
                handle,
                told: told.filter(|told| !told.is_empty()),
            };
            return Some(match &seen.output {
                Output::Parts(parts) => Output::Parts(shortening.parts(parts)),
                Output::Value(_) => {
                    let mut short = shortening.text(&seen.words());
                    let pinned = self.pinned_lines(outcome, &short);
                    short.push_str(&pinned);
                    Output::Value(Value::text(&short))
                }
            });
        }
        masked.map(|outcome| outcome.output)
    }
}

/// The limits and the note for cutting a text.
struct TextCut {
    most: usize,
    handle: Option<RecallHandle>,
    /// The facts of all of it.
    told: Option<String>,
}

impl TextCut {
    fn note(&self, left_out: usize) -> String {
        let told = self.told.as_ref();
        let told = told.map_or_else(String::new, |told| format!(", in all {told}"));
        let recall = self.handle;
        let recall = recall.map_or_else(String::new, |handle| format!(", {RECALL} {handle}"));
        format!("\n[... {left_out} bytes left out{told}{recall} ...]\n")
    }

    /// Returns how many bytes stay at the beginning and at the end, beside the note. The beginning of a tool's output matters
    /// more often than its end.
    fn head_and_tail(&self, len: usize) -> (usize, usize) {
        let room = self.most.saturating_sub(self.note(len).len());
        (room - room / 3, room / 3)
    }

    /// Keeps the beginning of the first texts and the end of the last ones, with a note between them. Other parts stay.
    fn parts(&self, parts: &[Part]) -> Box<[Part]> {
        let len: usize = parts.iter().map(Part::text_bytes).sum();
        let (head, tail) = self.head_and_tail(len);
        let mut start = 0;
        let mut shorter = Vec::with_capacity(parts.len());
        for part in parts {
            let Some(bytes) = part.kind.text() else {
                shorter.push(part.clone());
                continue;
            };
            let end = start + bytes.len();
            let first = head.saturating_sub(start).min(bytes.len());
            let last = end.saturating_sub(len - tail).min(bytes.len());
            // The note stands where the head ends.
            let note = (start..end)
                .contains(&head)
                .then(|| self.note(len - head - tail));
            if first + last >= bytes.len() {
                shorter.push(part.clone());
            } else if first + last > 0 || note.is_some() {
                let text = letters::utf8(bytes);
                let text = cut(&text, first, note.as_deref().unwrap_or_default(), last);
                let mut part = part.clone();
                part.kind = PartKind::Text(text.into_bytes().into());
                shorter.push(part);
            }
            start = end;
        }
        shorter.into()
    }

    /// Keeps the head and tail of a text, with a note of the bytes left out between them; `most` bytes in all, or the note
    /// alone where that is longer.
    fn text(&self, text: &str) -> String {
        if text.len() <= self.most {
            return text.to_owned();
        }
        let (head, tail) = self.head_and_tail(text.len());
        let head = text.floor_char_boundary(head);
        let tail = text.len() - text.ceil_char_boundary(text.len() - tail);
        cut(text, head, &self.note(text.len() - head - tail), tail)
    }
}

/// Keeps the head and tail of a text on character boundaries, with a note between them.
fn cut(text: &str, head: usize, note: &str, tail: usize) -> String {
    let head = text.floor_char_boundary(head);
    let tail = text.ceil_char_boundary(text.len().saturating_sub(tail));
    let (head, tail) = (text.get(..head), text.get(tail..));
    [head.unwrap_or_default(), note, tail.unwrap_or_default()].concat()
}
