//! Reads providers' reports of the tokens they counted.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::context::Context;
use crate::error::Error;
use crate::log::provider::Provider;
use crate::prices::bill::Report;
use crate::prices::usage::Usage;
use crate::provider::bills;
use crate::provider::figures::FigureKind;
use crate::provider::room;
use crate::value::time::Time;
use crate::value::Value;

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
        if let Some(inner) = found.inner(FigureKind::Around) {
            found = FoundFigures::of(inner)?;
            whole = inner;
        }
        let usage = found.usage()?;
        Ok(match found.has_more {
            true => bills::read(usage, whole),
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
    NAMES.contains_key(name) || bills::is_billed(name)
}

fn keys() -> impl Iterator<Item = (FigureKind, &'static str)> {
    let figures = Provider::ALL.into_iter().map(|of| room(of).figures());
    let keys = figures.flat_map(|figures| figures.keys);
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
            found.has_more |= bills::is_billed(name);
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

    /// Returns a figure of the report, or of an object with details.
    fn detail(
        &self,
        kind: FigureKind,
        details: FigureKind,
    ) -> Result<(Option<u64>, Option<u64>), Error> {
        let details = self.inner(details).map(FoundFigures::of).transpose()?;
        let inner = details.and_then(|details| details.number(kind));
        Ok((self.number(kind), inner))
    }

    fn usage(&self) -> Result<Usage, Error> {
        let zero = |number: Option<u64>| number.unwrap_or(0);
        // Input may leave out the tokens read from a cache or written to it.
        let read = self.number(FigureKind::CacheRead);
        let apart = self.number(FigureKind::CacheWritten);
        let beside = zero(read).saturating_add(zero(apart));
        let input = match self.number(FigureKind::Input) {
            Some(input) => input.saturating_add(beside),
            None => self.number(FigureKind::WholeInput).unwrap_or(beside),
        };
        let input = input.saturating_add(zero(self.number(FigureKind::Tools)));
        let thoughts = self.number(FigureKind::Thoughts);
        let output = self.number(FigureKind::Output).unwrap_or_else(|| {
            zero(self.number(FigureKind::Candidates)).saturating_add(zero(thoughts))
        });
        let total = zero(self.number(FigureKind::Total));
        let (cached, inside) = self.detail(FigureKind::Cached, FigureKind::InputDetails)?;
        let cached = zero(cached.or(read).or(inside));
        let (written, noted) = self.detail(FigureKind::Written, FigureKind::InputDetails)?;
        let written = zero(written.or(apart).or(noted));
        let (reasoning, within) = self.detail(FigureKind::Reasoning, FigureKind::OutputDetails)?;
        let reasoning = zero(reasoning.or(thoughts).or(within));
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
