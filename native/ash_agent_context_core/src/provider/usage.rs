//! Reads providers' reports of the tokens they counted, and of what they bill apart.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use crate::context::Context;
use crate::error::Error;
use crate::log::provider::Provider;
use crate::prices::bill::{Bill, Count, Report, Term};
use crate::prices::usage::Usage;
use crate::provider::figures::{Billed, FigureKind, FigureKind::*, Figures};
use crate::provider::room;
use crate::value::time::Time;
use crate::value::{Map, Value};

impl Context {
    /// Keeps a provider's report with the last message of the model.
    ///
    /// # Errors
    /// [`Error::InvalidUsage`], [`Error::NoAssistantMessage`].
    ///
    /// # Complexity
    /// O(messages since the tokens were last estimated).
    pub fn add_token_usage(&self, report: Value, at: Time) -> Result<Self, Error> {
        self.add_report(&Report::read(&report)?, at)
    }
}

impl Report {
    /// Reads the report of any provider, or the answer that holds it.
    ///
    /// # Errors
    /// [`Error::InvalidUsage`].
    ///
    /// # Complexity
    /// O(entries of the report)
    pub fn read(report: &Value) -> Result<Self, Error> {
        let mut found = FoundFigures::of(report)?;
        let mut whole = report;
        if let Some(inner) = found.inner(Around) {
            found = FoundFigures::of(inner)?;
            whole = inner;
        }
        let usage = found.usage()?;
        Ok(match found.has_more {
            true => read_bills(usage, whole),
            false => usage.into(),
        })
    }
}

/// The keys under which any provider has a figure, since a report does not say whose it is, with the figure and the rank of the
/// key. A map, since streams report with each event.
static NAMES: LazyLock<HashMap<&'static str, (FigureKind, usize)>> = LazyLock::new(|| {
    let mut names = HashMap::new();
    for (rank, (kind, name)) in keys().enumerate() {
        names.entry(name).or_insert((kind, rank));
    }
    names
});

/// Returns every key of a figure, in the order in which they count.
/// Returns whether a report's value under this key counts.
pub(crate) fn is_figure(name: &str) -> bool {
    NAMES.contains_key(name) || BILLED.contains(name)
}

fn keys() -> impl Iterator<Item = (FigureKind, &'static str)> {
    let keys = all().flat_map(|figures| figures.keys);
    keys.flat_map(|(kind, names)| names.iter().map(|name| (*kind, *name)))
}

/// The figures of a report. A number is taken from the first key that has one, so that a report with two names for it is counted
/// once.
#[derive(Default)]
struct FoundFigures<'r> {
    found: [Option<(usize, &'r Value)>; FigureKind::COUNT],
    /// True if there is a count with a price of its own.
    has_more: bool,
}

impl<'r> FoundFigures<'r> {
    fn of(report: &'r Value) -> Result<Self, Error> {
        let Value::Map(map) = report else {
            return Err(Error::InvalidUsage { key: Value::Nil });
        };
        let mut found = Self::default();
        for (key, value) in map.iter() {
            let Some(name) = key.as_name() else { continue };
            found.has_more |= BILLED.contains(name);
            let Some((kind, rank)) = NAMES.get(name).copied() else {
                continue;
            };
            let fits = match value {
                Value::Nil => continue,
                Value::Map(_) => kind.is_object(),
                value => !kind.is_object() && value.as_count().is_some(),
            };
            if !fits {
                // A key in the form that the report uses.
                let key = match map.iter().next() {
                    Some((Value::Binary(_), _)) => Value::text(name),
                    _ => Value::atom(name),
                };
                return Err(Error::InvalidUsage { key });
            }
            if let Some(place) = found.found.get_mut(kind as usize) {
                if place.is_none_or(|(known, _)| rank < known) {
                    *place = Some((rank, value));
                }
            }
        }
        Ok(found)
    }

    fn number(&self, kind: FigureKind) -> Option<u64> {
        self.inner(kind)?.as_count()
    }

    fn inner(&self, kind: FigureKind) -> Option<&'r Value> {
        self.found.get(kind as usize)?.map(|(_, value)| value)
    }

    /// Returns a number among the details of others.
    fn inside(&self, details: FigureKind, kind: FigureKind) -> Result<Option<u64>, Error> {
        let details = self.inner(details).map(FoundFigures::of).transpose()?;
        Ok(details.and_then(|details| details.number(kind)))
    }

    fn usage(&self) -> Result<Usage, Error> {
        let zero = |number: Option<u64>| number.unwrap_or(0);
        // Input may leave out the tokens read from a cache or written to it.
        let read = self.number(CacheRead);
        let apart = self.number(CacheWritten);
        let beside = zero(read).saturating_add(zero(apart));
        let input = match self.number(Input) {
            Some(input) => input.saturating_add(beside),
            None => self.number(WholeInput).unwrap_or(beside),
        };
        let input = input.saturating_add(zero(self.number(Tools)));
        let thoughts = self.number(Thoughts);
        let output = self
            .number(Output)
            .unwrap_or_else(|| zero(self.number(Candidates)).saturating_add(zero(thoughts)));
        let total = zero(self.number(Total));
        let inside = self.inside(InputDetails, Cached)?;
        let cached = zero(self.number(Cached).or(read).or(inside));
        let noted = self.inside(InputDetails, Written)?;
        let written = zero(self.number(Written).or(apart).or(noted));
        let within = self.inside(OutputDetails, Reasoning)?;
        let reasoning = self.number(Reasoning).or(thoughts);
        let reasoning = zero(reasoning.or(within));
        let mut found = self.found.iter().flatten();
        let is_known = found.any(|(_, value)| value.as_count().is_some());
        if !is_known && inside.or(noted).or(within).is_none() {
            return Err(Error::InvalidUsage { key: Value::Nil });
        }
        Ok(Usage {
            input,
            output,
            total: total.max(input.saturating_add(output)),
            cached,
            written,
            reasoning,
        })
    }
}

/// The most parts of an answer to read; real ones have a few.
const PARTS: usize = 100;

/// The keys of any provider's report with counts, words or parts that change the price.
static BILLED: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    let mut names = HashSet::new();
    for figures in all() {
        names.extend(figures.billed.iter().flat_map(|billed| billed.under));
        names.extend(figures.terms.iter().map(|(name, _)| *name));
        names.extend(figures.parts);
    }
    names
});

fn all() -> impl Iterator<Item = &'static Figures> {
    Provider::ALL.into_iter().map(|of| room(of).figures())
}

/// Reads the rest of a report whose tokens are known.
fn read_bills(usage: Usage, report: &Value) -> Report {
    let Some(report) = report.as_map() else {
        return usage.into();
    };
    let names = all().flat_map(|figures| figures.parts);
    let lists = names.filter_map(|name| report.get_named(name)?.as_list());
    let parts = lists.flatten().take(PARTS);
    let mut parts: Vec<Bill> = parts.filter_map(read_part).collect();
    let whole = read_bill(usage, report);
    if parts.is_empty() {
        return Report::new(usage, vec![whole]);
    }
    // The answer's tier applies to its parts; only searches are billed separately.
    for of in Term::ALL {
        let missing = parts.iter_mut().filter(|part| part.term(of).is_none());
        missing.for_each(|part| part.put_term(of, whole.term(of).unwrap_or_default()));
    }
    if let Some(last) = parts.last_mut() {
        last.add(Count::Searches, whole.count(Count::Searches));
    }
    Report::new(usage, parts)
}

/// Reads a part, which has the keys of a report.
fn read_part(part: &Value) -> Option<Bill> {
    let map = part.as_map()?;
    let usage = Report::read(part).ok()?.usage;
    let mut bill = read_bill(usage, map);
    if let Some(model) = map.get_named("model").and_then(Value::as_str) {
        bill.put_model(model);
    }
    Some(bill)
}

fn read_bill(usage: Usage, report: &Map) -> Bill {
    let mut bill = Bill::plain(usage);
    for figures in all() {
        for billed in figures.billed {
            let names = billed.under.iter();
            let numbers = names.filter_map(|name| Some(number(billed, report.get_named(name)?)));
            bill.add(billed.count, numbers.fold(0, u64::saturating_add));
        }
        for (name, term) in figures.terms {
            if let Some(word) = report.get_named(name).and_then(Value::as_name) {
                bill.put_term(*term, word);
            }
        }
    }
    bill
}

fn number(billed: &Billed, given: &Value) -> u64 {
    let count = |map: &Map| {
        let numbers = billed.number.iter().filter_map(|key| map.get_named(key));
        let mut numbers = numbers.filter_map(Value::as_count);
        numbers.next().unwrap_or(0)
    };
    match (given, billed.of) {
        (Value::Map(map), None) => count(map),
        (Value::List(items), Some((key, word))) => {
            let maps = items.iter().filter_map(Value::as_map);
            let is_meant = |map: &&Map| map.get_named(key).and_then(Value::as_name) == Some(word);
            let counts = maps.filter(is_meant).map(count);
            counts.fold(0, u64::saturating_add)
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_key_is_one_figure() {
        let mut names = std::collections::HashMap::new();
        for (kind, name) in super::keys() {
            assert_eq!(*names.entry(name).or_insert(kind), kind, "{name}");
        }
    }
}
