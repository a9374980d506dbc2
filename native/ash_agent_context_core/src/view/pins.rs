//! Pins: things that no policy takes out of a view.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::error::Error;

/// There may be so many pins: each result of a view is looked up among them.
const MOST: usize = 100;

/// A line with a pinned fact is cut after so many bytes.
const LINE: usize = 200;

/// Something that stays in the view.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Pin {
    /// All of an iteration.
    Iteration(u64),
    /// A message: the number of its iteration and its position there.
    Message(u64, usize),
    /// The result of a call: the number of its iteration and its slot there.
    Result(u64, usize),
    /// The lines that have these words.
    Fact(Box<str>),
}

impl Pin {
    fn iteration(&self) -> u64 {
        match self {
            Self::Iteration(number) | Self::Message(number, _) | Self::Result(number, _) => *number,
            Self::Fact(_) => 0,
        }
    }

    /// Returns its name in errors: `iteration 3`, `message 3.0`, `call 17.2`, or the words.
    #[must_use]
    pub fn name(&self) -> Box<str> {
        match self {
            Self::Iteration(number) => format!("iteration {number}").into(),
            Self::Message(number, position) => format!("message {number}.{position}").into(),
            Self::Result(number, slot) => format!("call {number}.{}", slot + 1).into(),
            Self::Fact(words) => words.clone(),
        }
    }
}

/// Pins, in the order in which they were put.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins {
    pins: Vec<Pin>,
    /// A key that distinguishes the looks of results.
    pub(crate) key: u64,
}

impl Pins {
    pub(crate) fn new(pins: impl IntoIterator<Item = Pin>) -> Result<Self, Error> {
        let mut known: Vec<Pin> = Vec::new();
        for pin in pins {
            if known.contains(&pin) {
                continue;
            }
            if known.len() == MOST {
                return Err(Error::TooManyPins { most: MOST });
            }
            known.push(pin);
        }
        let mut hasher = DefaultHasher::new();
        known.hash(&mut hasher);
        Ok(Self {
            pins: known,
            key: hasher.finish() | 1,
        })
    }

    /// Returns the pins in the order in which they were put.
    pub fn iter(&self) -> impl Iterator<Item = &Pin> {
        self.pins.iter()
    }

    /// Returns true if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pins.is_empty()
    }

    /// Returns the pins up to an iteration: everything after it is gone, and its numbers are used again.
    pub(crate) fn up_to(&self, number: u64) -> Self {
        let kept = self.pins.iter().filter(|pin| pin.iteration() <= number);
        Self::new(kept.cloned()).unwrap_or_default()
    }

    pub(crate) fn bytes(&self) -> usize {
        let bytes = |pin: &Pin| match pin {
            Pin::Fact(words) => words.len(),
            _ => 0,
        };
        self.pins.iter().map(bytes).sum()
    }

    /// Returns true if a message or a result is pinned, or all of its iteration.
    pub(crate) fn has(&self, pin: &Pin) -> bool {
        let all = Pin::Iteration(pin.iteration());
        self.pins.iter().any(|one| one == pin || *one == all)
    }

    /// Returns the lines of a text that have pinned words, the first of each.
    pub(crate) fn lines<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let mut lines = Vec::new();
        for pin in &self.pins {
            let Pin::Fact(words) = pin else { continue };
            if let Some(line) = line_with(text, words).filter(|line| !lines.contains(line)) {
                lines.push(line);
            }
        }
        lines
    }
}

/// Returns the piece of a line around some words.
fn line_with<'t>(text: &'t str, words: &str) -> Option<&'t str> {
    let at = text.find(words)?;
    let start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let start = start.max(text.floor_char_boundary(at.saturating_sub(LINE / 2)));
    let rest = text.get(start..)?;
    let end = rest
        .get(at - start..)?
        .find('\n')
        .map_or(rest.len(), |end| at - start + end);
    let most = rest.floor_char_boundary(LINE.max(at - start + words.len()));
    rest.get(..end.min(most)).map(str::trim)
}
