//! The view: the part of the log that models see.
//!
//! It never changes the log. A view has covers over ranges of iterations, each with a summary in its place or with nothing,
//! and rules for the looks of results and texts.

pub mod change;
pub(crate) mod checking;
pub mod count;
pub mod cover;
pub mod excerpt;
pub mod facts;
pub mod masks;
pub(crate) mod note;
pub mod pairs;
pub mod pins;
pub mod recall_handle;
pub mod rendering;
pub(crate) mod search;
pub mod shortening;
pub(crate) mod texts;
pub(crate) mod veil;
pub mod verdict;
mod words;

use std::sync::Arc;

use crate::log::iteration::Iteration;
use crate::log::message::{Message, Role};
use crate::log::part::{Content, Part};
use crate::value::{steps, Map, Size, Value};
use crate::view::cover::{cover_over, Cover, Covers};
use crate::view::facts::FACTS;
use crate::view::masks::Masks;
use crate::view::pins::Pins;
use crate::view::recall_handle::{RecallHandle, RECALL};
use crate::view::rendering::Rendering;
use crate::view::shortening::{Shortening, ShorteningKind};
use crate::view::veil::Compared;

/// The covers and rules by which a log is shown.
#[derive(Debug, Clone, Default)]
pub struct View {
    pub(crate) covers: Covers,
    /// The number of messages of the log that are covered.
    pub(crate) covered: usize,
    /// The number of summaries in their place.
    pub(crate) summaries: usize,
    /// The number of notes in their place.
    pub(crate) notes: usize,
    /// The size of the covers.
    covers_size: Size,
    /// The size of everything else.
    other_size: Size,
    pub(crate) cleared: Option<Arc<Cleared>>,
    /// The most bytes of text that a result may have.
    pub max_result_bytes: Option<usize>,
    pub(crate) masks: Option<Arc<Masks>>,
    /// A tool reads handles, so shortened texts get one.
    pub(crate) recall: bool,
    /// The limit of an index, in thousandths of the tokens that it stands for.
    pub(crate) index: usize,
    /// The most bytes of the user's words in an index; `None` for the default.
    pub(crate) user_bytes: Option<usize>,
    /// Pins, which no policy hides.
    pub(crate) pins: Option<Arc<Pins>>,
    /// The steps that shortened the view because a request was too long, oldest first.
    pub(crate) shortenings: Arc<[Shortening]>,
    /// Texts after the system prompt, by name.
    pub(crate) prompt_texts: Arc<[(Box<str>, Box<str>)]>,
    /// The system prompt with those texts.
    pub(crate) system: Option<Arc<Message>>,
    /// What those texts have in common with the conversation, if there are masks.
    pub(crate) compared: Option<Arc<Compared>>,
}

/// A place before which all results are cleared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleared {
    /// The number of the iteration with the place.
    pub iteration: u64,
    /// The number of its calls before the place.
    pub calls: usize,
    /// The text in the place of a result.
    pub placeholder: Box<str>,
    /// True if a policy chose it.
    pub by_policy: bool,
}

impl Cleared {
    pub(crate) fn at((iteration, calls): (u64, usize), placeholder: &str) -> Self {
        Self {
            iteration,
            calls,
            placeholder: placeholder.into(),
            by_policy: false,
        }
    }
}

/// The default placeholder for a cleared result.
pub(crate) const CLEARED: &str = "[Old tool result cleared]";

/// Terms of a step by which it became shorter.
const STEP: usize = 8;

/// Terms that take as long to free as a compiled pattern.
const MASK: usize = 1_000;

impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        self.covers.size() == other.covers.size()
            && self.covers.iter().eq(other.covers.iter())
            && self.masks == other.masks
            && self.has_rules_of(other)
    }
}

impl Eq for View {}

impl View {
    /// Returns the ranges that are not shown, oldest first, each with the number of its first iteration.
    pub fn covers(&self) -> impl Iterator<Item = (u64, &Cover)> {
        let covers = self.covers.iter().inspect(|_| steps::count(1));
        covers.map(|(first, cover)| (*first, cover))
    }

    /// Returns how much there is to walk, to copy and to free.
    #[must_use]
    pub const fn size(&self) -> Size {
        self.covers_size.plus(self.other_size)
    }

    /// Returns the size of what is noted with a request.
    pub(crate) fn noted_size(&self) -> Size {
        self.covers_size
            .plus(self.rules_size())
            .plus(Size::new(8, 0))
    }

    /// Returns the size of its texts, pins and shortenings.
    fn rules_size(&self) -> Size {
        let texts: usize = self.prompt_texts.iter().map(|(_, text)| text.len()).sum();
        let pins = self.pins();
        let (pins, bytes) = pins.map_or((0, 0), |pins| (pins.iter().count(), pins.bytes()));
        let terms = 4 * (self.prompt_texts.len() + pins) + STEP * self.shortenings.len();
        Size::new(terms, texts + bytes)
    }

    /// Returns true if both are noted the same with a request: all but the masks and the counts over the log.
    pub(crate) fn is_noted_as(&self, other: &Self) -> bool {
        let mut pairs = self.covers().zip(other.covers());
        self.covers.size() == other.covers.size()
            && pairs.all(|((first, own), (start, other))| first == start && own.looks_as(other))
            && self.has_rules_of(other)
    }

    /// Returns true if both views have the same rules beside their covers and masks.
    fn has_rules_of(&self, other: &Self) -> bool {
        self.cleared == other.cleared
            && self.max_result_bytes == other.max_result_bytes
            && self.prompt_texts == other.prompt_texts
            && self.recall == other.recall
            && self.index == other.index
            && self.user_bytes == other.user_bytes
            && self.pins == other.pins
            && self.shortenings == other.shortenings
    }

    pub(crate) fn resize(&mut self) {
        let masks = self.masks().map_or(0, Masks::count);
        let system = self.system.as_deref().map(Message::size);
        let own = system.unwrap_or_default().plus(self.rules_size());
        self.other_size = own.plus(Size::new(MASK * masks, 0));
    }

    /// Leaves out the steps without effect: all their iterations are shown again, or gone.
    pub(crate) fn retain_shortenings(&mut self, newest: u64) {
        let mut steps = self.shortenings.to_vec();
        let is_later =
            |step: &Shortening| step.kind == ShorteningKind::Shortened && step.iteration > newest;
        let later = steps.iter().position(is_later);
        if let Some(step) = later.and_then(|from| shortening::take_shortened(&mut steps, from)) {
            self.max_result_bytes = step.most_before();
        }
        steps.retain_mut(|step| {
            step.last = step.last.min(newest);
            let covered = self.covers.range(..=step.last).next_back();
            let is_covered = || covered.is_some_and(|(_, cover)| cover.last >= step.first);
            use ShorteningKind::{Cleared, Shortened};
            let is_there = matches!(step.kind, Cleared | Shortened) || is_covered();
            is_there && step.iteration <= newest && step.first <= step.last
        });
        self.shortenings = steps.into();
    }

    /// Returns the cost of reading and copying texts as they look.
    #[must_use]
    pub fn cost(&self, size: Size) -> Size {
        let facts = if self.tells_facts() { FACTS } else { 0 };
        let times = facts + self.masks().map_or(1, Masks::cost);
        Size::new(size.terms, size.bytes.saturating_mul(times))
    }

    /// Returns true if notes in the place of results tell which facts these have.
    #[must_use]
    pub fn tells_facts(&self) -> bool {
        self.recall && (self.cleared.is_some() || self.max_result_bytes.is_some())
    }

    /// Returns true if messages may look different from the log's.
    #[must_use]
    pub fn changes_looks(&self) -> bool {
        self.masks.is_some() || self.cleared.is_some() || self.max_result_bytes.is_some()
    }

    /// Returns the place before which results are cleared.
    #[must_use]
    pub fn cleared(&self) -> Option<&Cleared> {
        self.cleared.as_deref()
    }

    /// Returns the masks.
    #[must_use]
    pub fn masks(&self) -> Option<&Masks> {
        self.masks.as_deref()
    }

    /// Returns the pins.
    #[must_use]
    pub fn pins(&self) -> Option<&Pins> {
        self.pins.as_deref()
    }

    /// Returns the texts after the system prompt, by name.
    #[must_use]
    pub fn prompt_texts(&self) -> &[(Box<str>, Box<str>)] {
        &self.prompt_texts
    }

    /// Returns the cover over an iteration, with the number of its first.
    pub(crate) fn cover(&self, number: u64) -> Option<(u64, &Cover)> {
        cover_over(&self.covers, number)
    }

    pub(crate) fn put(&mut self, first: u64, cover: Cover) {
        self.covered += cover.messages;
        self.summaries += usize::from(cover.summary.is_some());
        self.notes += usize::from(cover.note.is_some());
        self.covers_size = self.covers_size.plus(cover.size());
        self.covers.insert_mut(first, cover);
    }

    pub(crate) fn take(&mut self, first: u64) -> Option<Cover> {
        let cover = self.covers.get(&first)?.clone();
        self.covers.remove_mut(&first);
        self.covered -= cover.messages;
        self.summaries -= usize::from(cover.summary.is_some());
        self.notes -= usize::from(cover.note.is_some());
        self.covers_size = self.covers_size.minus(cover.size());
        Some(cover)
    }

    /// Returns the look of an iteration's results.
    pub(crate) fn rendering(&self, number: u64) -> Rendering<'_> {
        let (cleared, placeholder) = match &self.cleared {
            Some(cleared) if number < cleared.iteration => (usize::MAX, &*cleared.placeholder),
            Some(cleared) if number == cleared.iteration => (cleared.calls, &*cleared.placeholder),
            _ => (0, ""),
        };
        Rendering {
            cleared,
            placeholder,
            most: self.max_result_bytes.unwrap_or(usize::MAX),
            masks: self.masks.as_deref(),
            pins: self.pins.as_deref(),
            recall: self.recall,
            iteration: number,
            ..Rendering::PLAIN
        }
    }
}

/// A part of the view: an iteration or a cover.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stretch<'a> {
    /// An iteration, and the look of its results.
    Iteration(&'a Iteration, Rendering<'a>),
    /// A cover from an iteration to another, with the message in their place and its look.
    Cover(u64, u64, Option<&'a Message>, Rendering<'a>),
}

impl Stretch<'_> {
    /// Returns the numbers of its first and last iteration.
    pub const fn bounds(&self) -> (u64, u64) {
        match self {
            Self::Iteration(iteration, _) => (iteration.number, iteration.number),
            Self::Cover(first, last, ..) => (*first, *last),
        }
    }
}

/// Returns the system prompt and the texts after it, with blank lines between.
pub(crate) fn with_prompt_texts(
    system: Option<&Message>,
    texts: &[(Box<str>, Box<str>)],
) -> Content {
    let texts = texts.iter().map(|(_, text)| &**text);
    let texts = texts.collect::<Vec<_>>().join("\n\n");
    match system.map(|system| &system.content) {
        None | Some(Content::None) => Content::Text(texts.into_bytes().into()),
        Some(Content::Text(text)) => {
            Content::Text([text, b"\n\n".as_slice(), texts.as_bytes()].concat().into())
        }
        Some(Content::Parts(parts)) => {
            let text = Part::text(texts.into_bytes().into());
            Content::Parts(parts.iter().cloned().chain([text]).collect())
        }
    }
}

/// Makes a user message that stands for iterations, marked as a summary of them.
pub(crate) fn summary(first: u64, last: u64, text: &str, handle: Option<RecallHandle>) -> Message {
    let range = match first == last {
        true => format!("iteration {first}"),
        false => format!("iterations {first} to {last}"),
    };
    let recall = handle.map_or_else(String::new, |handle| format!(", {RECALL} {handle}"));
    let content = format!("[Summary of {range} of this conversation{recall}]\n{text}");
    make_stand_in("summary", first, last, content)
}

const HIDDEN: &str = "hidden";

/// Makes a user message that stands for hidden iterations.
pub(crate) fn note(first: u64, last: u64, text: String) -> Message {
    make_stand_in(HIDDEN, first, last, text)
}

/// Returns true for such a note.
pub(crate) fn is_note(message: &Message) -> bool {
    let metadata = message.metadata.as_ref();
    metadata.is_some_and(|metadata| metadata.get_named(HIDDEN).is_some())
}

/// Makes a user message that stands for iterations and names its kind.
fn make_stand_in(kind: &str, first: u64, last: u64, text: String) -> Message {
    let number = |number| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
    let range = Map::new(vec![
        (Value::atom("first"), number(first)),
        (Value::atom("last"), number(last)),
    ]);
    let metadata = Map::new(vec![(Value::atom(kind), Value::Map(range))]);
    let content = Content::Text(text.into_bytes().into());
    Message::new(Role::User, content, Box::default(), Some(metadata))
}

/// The first line of a summary has at most so many bytes.
const FIRST_LINE: usize = 200;

/// Returns the text of a summary without its first line.
pub(crate) fn summary_text(message: &Message) -> Option<&[u8]> {
    let Content::Text(text) = &message.content else {
        return None;
    };
    // Our first lines are short; a longer one is not ours.
    let mut start = text.iter().take(FIRST_LINE);
    let end = start.position(|byte| *byte == b'\n')?;
    text.get(end + 1..)
}
