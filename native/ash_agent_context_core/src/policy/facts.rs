//! The facts of a conversation: each once, with who used and named it, and the best first.

use std::cell::LazyCell;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::RangeInclusive;

use crate::context::log_text::LogText;
use crate::context::Context;
use crate::log::iteration::Iteration;
use crate::log::marks::{FactCounts, FactMark, Marks, TextMarks, WordMark};
use crate::log::message::Status;
use crate::value::keys::{KeyMap, KeySet, Seed};
use crate::value::Value;
use crate::view::facts::{each, key, of_line, tokens, FactKind, Found};
use crate::view::masks::Masks;
use crate::view::note;

/// A name in a call's arguments has so many bytes.
const NAMES: RangeInclusive<usize> = 3..=64;

/// The place of a text in the log: the number of the iteration, and the slot of a result.
pub(crate) type At = (u64, Option<usize>);

/// A fact of some texts.
#[derive(Debug, Clone)]
pub(crate) struct Fact {
    pub kind: FactKind,
    pub text: Box<str>,
    pub key: u64,
    /// The key of the fact without the word beside it.
    pub piece_key: u64,
    /// The place of the last of these texts that has it.
    pub at: At,
    /// The number of texts that have it.
    pub texts: u32,
    /// The number of times that calls used it.
    pub uses: u32,
    /// A user named it.
    pub is_named: bool,
    /// Every text that has it masks it; then it has no words.
    pub is_masked: bool,
    /// The number of the last text read that has it.
    last: usize,
}

/// The facts of a conversation that were used as arguments or named by users.
#[derive(Debug, Default)]
pub(crate) struct Used {
    /// How often calls used each, and the iteration of the last one.
    by_calls: KeyMap<(u32, u64)>,
    by_users: KeySet,
    /// Tells of most words that no call used them.
    may_be: Vec<bool>,
}

/// As many keys have different places in the filter, mostly.
const FILTER: usize = 1 << 14;

/// The facts of the texts read so far.
#[derive(Debug)]
pub(crate) struct Facts<'u> {
    used: &'u Used,
    known: KeyMap<Fact>,
    texts: usize,
}

impl Context {
    /// Returns the facts that calls used, and those that users named.
    ///
    /// # Complexity
    /// O(iterations and arguments) once they are marked
    pub(crate) fn list_used(&self) -> Used {
        let mut used = Used {
            may_be: vec![false; FILTER],
            ..Used::default()
        };
        for iteration in self.iterations() {
            let marks = marks(iteration);
            used.by_users.extend(&marks.named);
            for key in &marks.used {
                let place = used.may_be.get_mut(*key as usize % FILTER);
                place.into_iter().for_each(|place| *place = true);
                let count = used.by_calls.entry(*key).or_insert((0, 0));
                *count = (count.0.saturating_add(1), iteration.number);
            }
        }
        used
    }
}

impl Used {
    /// Returns how often calls used a key, and the iteration of the last one.
    fn of(&self, key: u64) -> Option<(u32, u64)> {
        let may_be = self.may_be.get(key as usize % FILTER) == Some(&true);
        may_be.then(|| self.by_calls.get(&key).copied())?
    }
}

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
    fn of(said: &LogText<'_>, text: &str) -> Self {
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

impl<'u> Facts<'u> {
    pub fn new(used: &'u Used) -> Self {
        Self {
            used,
            known: KeyMap::default(),
            texts: 0,
        }
    }

    /// Reads a text by its number in its iteration, as models may read it. Facts that a mask hides are counted, and their words are
    /// not kept.
    pub fn read(
        &mut self,
        (iteration, number): (&Iteration, usize),
        said: &LogText<'_>,
        masks: Option<&Masks>,
    ) {
        self.texts += 1;
        let Some(marks) = marks(iteration).texts.get(number) else {
            return;
        };
        let (at, text) = (
            (iteration.number, said.slot()),
            LazyCell::new(|| said.text(None)),
        );
        let seen = masks.map(|masks| said.text(Some(masks)));
        match seen.filter(|seen| *seen != *text) {
            None => self.add(marks, at, None, || &text),
            Some(seen) => {
                self.add(&TextMarks::of(said, &seen), at, None, || &seen);
                self.add(marks, at, Some(&keys(&seen)), || &text);
            }
        }
    }

    /// Adds the facts of a text. With `seen`, the keys that models see of it, it only adds facts that they do not see, without
    /// their words.
    fn add<'t>(
        &mut self,
        marks: &TextMarks,
        at: At,
        seen: Option<&KeySet>,
        text: impl Fn() -> &'t str,
    ) {
        let used = self.used;
        let facts = marks.facts.iter().filter_map(|mark| {
            let kind = FactKind::ALL.get(usize::from(mark.kind))?;
            let uses = used.of(mark.piece_key).map_or(0, |(uses, _)| uses);
            Some((*kind, *mark, uses))
        });
        let words = marks.words.iter().filter_map(|word| {
            // A word is a fact where a later call uses it as a name.
            let (uses, _) = used.of(word.key).filter(|(_, last)| *last > at.0)?;
            let range = (word.start, word.start + u32::from(word.len));
            let mark = FactMark {
                key: word.key,
                piece_key: word.key,
                kind: 0,
                at: range,
            };
            Some((FactKind::Name, mark, uses))
        });
        let is_masked = seen.is_some();
        let texts = self.texts;
        for (kind, mark, uses) in facts.chain(words) {
            if seen.is_some_and(|seen| seen.contains(&mark.key)) {
                continue;
            }
            let fact = self.known.entry(mark.key).or_insert_with(|| Fact {
                kind,
                text: Box::default(),
                key: mark.key,
                piece_key: 0,
                at,
                texts: 0,
                uses,
                is_named: used.by_users.contains(&mark.key),
                is_masked: true,
                last: 0,
            });
            if fact.is_masked && !is_masked {
                let (start, end) = mark.at;
                let words = text().get(start as usize..end as usize);
                (fact.text, fact.piece_key) = (words.unwrap_or_default().into(), mark.piece_key);
                fact.is_masked = false;
            }
            if !is_masked && fact.last < texts {
                fact.texts = fact.texts.saturating_add(1);
                (fact.last, fact.at) = (texts, at);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    pub fn has(&self, key: u64) -> bool {
        self.known.contains_key(&key)
    }

    /// Returns up to so many of those to take, the likeliest to be needed again first. Asks about each once.
    pub fn rank(self, most: usize, mut takes: impl FnMut(&Fact) -> bool) -> Vec<Fact> {
        let texts = self.texts.max(1) as f64;
        let facts = self.known.into_values().filter(|fact| takes(fact));
        let facts = facts.map(|fact| (score(&fact, texts), fact));
        let mut facts: Vec<(f64, Fact)> = facts.collect();
        let order = |(a, one): &(f64, Fact), (b, other): &(f64, Fact)| {
            let scores = b.partial_cmp(a).unwrap_or(Ordering::Equal);
            // The order of a hash map must not show.
            scores
                .then(other.last.cmp(&one.last))
                .then(one.text.cmp(&other.text))
                .then(one.key.cmp(&other.key))
        };
        if most < facts.len() {
            facts.select_nth_unstable_by(most, order);
            facts.truncate(most);
        }
        facts.sort_unstable_by(order);
        facts.into_iter().map(|(_, fact)| fact).collect()
    }
}

/// Returns how likely a fact is to be needed again. The weights were chosen on every second recorded run of agents; the guide
/// to budgets has the results for the others.
fn score(fact: &Fact, texts: f64) -> f64 {
    let kind = match fact.kind {
        FactKind::Name => 3.0,
        FactKind::Id | FactKind::Address => 2.5,
        FactKind::Path => 2.0,
        FactKind::Error | FactKind::ExitCode | FactKind::Number => -1.0,
        // The user's words are quoted beside an index.
        FactKind::Decision => -2.0,
    };
    let uses = 0.5 * f64::from(fact.uses.min(4));
    let named = if fact.is_named { 2.0 } else { 0.0 };
    let age = 4.0 * fact.last as f64 / texts;
    let often = f64::from(fact.texts.min(20)).ln_1p();
    // A shorter fact takes less of the room.
    kind + uses + named + age + often - 0.03 * fact.text.len() as f64
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
