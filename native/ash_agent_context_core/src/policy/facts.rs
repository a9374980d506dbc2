//! The facts of a conversation: each once, with who used and named it, and the best first.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use crate::context::log_text::LogText;
use crate::context::Context;
use crate::log::message::Status;
use crate::value::Value;
use crate::view::facts::{each, key, of_line, tokens, FactKind, Found};
use crate::view::masks::Masks;

/// A name in a call's arguments may have so many bytes.
const NAME: usize = 64;

/// The place of a text in the log: the number of the iteration, and the slot of a result.
pub(crate) type At = (u64, Option<usize>);

/// A fact of some texts.
#[derive(Debug, Clone)]
pub(crate) struct Fact {
    pub kind: FactKind,
    pub text: Box<str>,
    /// The fact without the word beside it.
    pub piece: Box<str>,
    pub key: u64,
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
    by_calls: HashMap<u64, (u32, u64)>,
    by_users: HashSet<u64>,
}

/// The facts of the texts read so far.
#[derive(Debug)]
pub(crate) struct Facts<'u> {
    used: &'u Used,
    known: HashMap<u64, Fact>,
    texts: usize,
}

impl Context {
    /// Returns the facts that calls used, and those that users named.
    ///
    /// # Complexity
    /// O(what was said but for results)
    pub(crate) fn list_used(&self) -> Used {
        let mut used = Used::default();
        for (number, said) in self.texts_between(0, u64::MAX) {
            match said {
                LogText::Call(_, call) if !said.is_recall() => {
                    used.add_arguments(&call.arguments.value, number);
                }
                said if said.is_of_user() => used.add_user(&said.text(None)),
                _ => {}
            }
        }
        used
    }
}

impl Used {
    fn add_user(&mut self, text: &str) {
        each(text, |found| {
            self.by_users.extend(found.kind.map(|_| found.key));
        });
    }

    /// Adds all texts in the arguments of a call.
    fn add_arguments(&mut self, value: &Value, iteration: u64) {
        let mut rest = vec![value];
        while let Some(value) = rest.pop() {
            match value {
                Value::Map(map) => rest.extend(map.iter().map(|(_, value)| value)),
                Value::List(items) | Value::Tuple(items) => rest.extend(items.iter()),
                value => {
                    if let Some(text) = value.as_str() {
                        self.add_argument(text, iteration);
                    }
                }
            }
        }
    }

    fn add_argument(&mut self, text: &str, iteration: u64) {
        let mut pieces = tokens(text).peekable();
        let mut is_first = true;
        while let Some(piece) = pieces.next() {
            let is_all = is_first && pieces.peek().is_none();
            is_first = false;
            let is_known = piece.kind().is_some() || piece.is_name() || is_all;
            if is_known && (3..=NAME).contains(&piece.text.len()) {
                let count = self.by_calls.entry(piece.key()).or_insert((0, 0));
                *count = (count.0.saturating_add(1), iteration);
            }
        }
    }
}

impl<'u> Facts<'u> {
    pub fn new(used: &'u Used) -> Self {
        Self {
            used,
            known: HashMap::new(),
            texts: 0,
        }
    }

    /// Reads a text as models may read it. Facts that a mask hides are counted, and their words are not kept.
    pub fn read(&mut self, said: &LogText<'_>, at: At, masks: Option<&Masks>) {
        self.texts += 1;
        let seen = said.text(masks);
        self.read_text(said, &seen, at, None);
        let text = masks.map(|_| said.text(None));
        if let Some(text) = text.filter(|text| *text != seen) {
            self.read_text(said, &text, at, Some(&keys(&seen)));
        }
    }

    fn read_text(&mut self, said: &LogText<'_>, text: &str, at: At, seen: Option<&HashSet<u64>>) {
        let mut add = |found: Found<'_>| self.add(found, at, seen);
        match said {
            LogText::Message(..) if said.is_of_user() => add(first_line(FactKind::Decision, text)),
            LogText::Decision(..) => add(of_line(FactKind::Decision, text)),
            LogText::Result(_, _, outcome) if outcome.status == Status::Error => {
                add(first_line(FactKind::Error, text));
            }
            _ => {}
        }
        each(text, add);
    }

    /// Adds a fact. With `seen`, the keys that models see of the text, it only adds facts that they do not see, without their
    /// words.
    fn add(&mut self, found: Found<'_>, at: At, seen: Option<&HashSet<u64>>) {
        if found.text.is_empty() || seen.is_some_and(|seen| seen.contains(&found.key)) {
            return;
        }
        let used = self.used.by_calls.get(&key(&[found.piece]));
        // A word is a fact where a later call uses it as a name.
        let later = used.filter(|(_, last)| *last > at.0);
        let Some(kind) = found.kind.or(later.map(|_| FactKind::Name)) else {
            return;
        };
        let is_masked = seen.is_some();
        let (uses, texts) = (used.map_or(0, |(uses, _)| *uses), self.texts);
        let fact = self.known.entry(found.key).or_insert_with(|| Fact {
            kind,
            text: Box::default(),
            piece: Box::default(),
            key: found.key,
            at,
            texts: 0,
            uses,
            is_named: self.used.by_users.contains(&found.key),
            is_masked: true,
            last: 0,
        });
        if fact.is_masked && !is_masked {
            (fact.text, fact.piece) = (found.text.into(), found.piece.into());
            fact.is_masked = false;
        }
        if !is_masked && fact.last < texts {
            fact.texts = fact.texts.saturating_add(1);
            (fact.last, fact.at) = (texts, at);
        }
    }

    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns all of them, the likeliest to be needed again first.
    pub fn rank(self) -> Vec<Fact> {
        let texts = self.texts.max(1) as f64;
        let facts = self.known.into_values();
        let facts = facts.map(|fact| (score(&fact, texts), fact));
        let mut facts: Vec<(f64, Fact)> = facts.collect();
        facts.sort_by(|(a, one), (b, other)| {
            let scores = b.partial_cmp(a).unwrap_or(Ordering::Equal);
            // The order of a hash map must not show.
            scores
                .then(other.last.cmp(&one.last))
                .then(one.text.cmp(&other.text))
                .then(one.key.cmp(&other.key))
        });
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
pub(crate) fn keys(text: &str) -> HashSet<u64> {
    let mut keys = HashSet::new();
    add_keys(text, &mut keys);
    keys
}

/// Adds the keys of one more text. A number is found by the words on either side of it, and a line as a whole.
pub(crate) fn add_keys(text: &str, keys: &mut HashSet<u64>) {
    each(text, |found| {
        keys.insert(found.key);
        keys.extend(found.other);
    });
    for line in text.lines() {
        let line = line.strip_prefix("user: ").unwrap_or(line);
        keys.insert(of_line(FactKind::Decision, line).key);
    }
}
