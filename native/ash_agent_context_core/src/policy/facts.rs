//! Where the facts of iterations are in their texts, and the keys by which facts are found again.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use crate::context::log_text::LogText;
use crate::log::iteration::Iteration;
use crate::log::marks::{FactCounts, FactMark, Marks, TextMarks, WordMark};
use crate::log::message::Status;
use crate::value::keys::{KeySet, Seed};
use crate::value::Value;
use crate::view::facts::{each, key, of_line, tokens, FactKind, Found};
use crate::view::note;

/// A name in a call's arguments has so many bytes.
const NAMES: RangeInclusive<usize> = 3..=64;

/// The place of a text in the log: the number of the iteration, and the slot of a result.
pub(crate) type At = (u64, Option<usize>);

/// Returns the marks of an iteration's texts as they are without masks.
pub(super) fn marks(iteration: &Iteration) -> &Marks {
    iteration.marks(|| {
        let (mut texts, mut used, mut named) = (Vec::new(), Vec::new(), Vec::new());
        for said in iteration.entries().flat_map(LogText::of) {
            let words = said.text(None);
            let text = TextMarks::of(&said, &words);
            match said {
                LogText::Call(_, call) if !said.is_recall() => {
                    add_arguments(&call.arguments.value, &mut used);
                }
                said if said.is_of_user() => {
                    // Its first line is a wish, whatever it names.
                    let facts = text.facts.iter();
                    let facts = facts.filter(|fact| fact.kind != FactKind::Decision as u8);
                    named.extend(facts.map(|fact| fact.key));
                }
                // The first line of an error is a mark that its text need not have.
                LogText::Result(_, _, outcome) if outcome.status != Status::Error => {
                    outcome.keep_counts(|| FactCounts::of_marks(&words, &text.facts));
                }
                _ => {}
            }
            texts.push(text);
        }
        Marks {
            texts: texts.into(),
            used: used.into(),
            named: named.into(),
        }
    })
}

impl TextMarks {
    pub(super) fn of(said: &LogText<'_>, text: &str) -> Self {
        let short = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let range = |part: &str| {
            let start = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
            (short(start), short(start + part.len()))
        };
        let (mut facts, mut words) = (Vec::new(), Vec::new());
        let mut known: HashSet<_, Seed> = HashSet::default();
        let mut add = |found: Found<'_>| {
            let kind = found.kind.map_or(u8::MAX, |kind| kind as u8);
            if found.text.is_empty() || !known.insert((found.key, kind)) {
                return;
            }
            let (at, piece_key) = (range(found.text), key(&[found.piece]));
            match (found.kind, u8::try_from(found.text.len())) {
                (Some(_), _) => facts.push(FactMark {
                    key: found.key,
                    piece_key,
                    kind,
                    at,
                }),
                // Nothing else is a name that calls use.
                (None, Ok(len)) if NAMES.contains(&found.text.len()) && piece_key == found.key => {
                    words.push(WordMark {
                        key: found.key,
                        start: at.0,
                        len,
                    });
                }
                _ => {}
            }
        };
        match said {
            LogText::Message(..) if said.is_of_user() => add(first_line(FactKind::Decision, text)),
            LogText::Decision(..) => add(of_line(FactKind::Decision, text)),
            LogText::Result(_, _, outcome) if outcome.status == Status::Error => {
                add(first_line(FactKind::Error, text));
            }
            _ => {}
        }
        each(text, add);
        facts.shrink_to_fit();
        words.shrink_to_fit();
        Self { facts, words }
    }
}

/// Adds the keys of all texts in the arguments of a call.
fn add_arguments(value: &Value, keys: &mut Vec<u64>) {
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        match value {
            Value::Map(map) => rest.extend(map.iter().map(|(_, value)| value)),
            Value::List(items) | Value::Tuple(items) => rest.extend(items.iter()),
            value => keys.extend(value.as_str().into_iter().flat_map(argument_keys)),
        }
    }
}

fn argument_keys(text: &str) -> impl Iterator<Item = u64> + '_ {
    let mut pieces = tokens(text).peekable();
    let mut is_first = true;
    std::iter::from_fn(move || {
        let piece = pieces.next()?;
        let is_all = std::mem::take(&mut is_first) && pieces.peek().is_none();
        Some((piece, is_all))
    })
    .filter(|(piece, is_all)| piece.kind().is_some() || piece.is_name() || *is_all)
    .filter(|(piece, _)| NAMES.contains(&piece.text.len()))
    .map(|(piece, _)| piece.key())
}

fn first_line(kind: FactKind, text: &str) -> Found<'_> {
    let line = text.trim_start().lines().next();
    of_line(kind, line.unwrap_or_default())
}

/// Returns the keys by which a text's facts and words are found again.
pub(crate) fn keys(text: &str) -> KeySet {
    let mut keys = KeySet::default();
    add_keys(text, &mut keys);
    keys
}

/// Adds the keys of one more text. A number is found by the words on either side of it, and a line as a whole.
pub(crate) fn add_keys(text: &str, keys: &mut KeySet) {
    each(&note::without_counts(text), |found| {
        keys.insert(found.key);
        keys.extend(found.other);
    });
    for line in text.lines() {
        let line = line.strip_prefix("user: ").unwrap_or(line);
        keys.insert(of_line(FactKind::Decision, line).key);
    }
}
