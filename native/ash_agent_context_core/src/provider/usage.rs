//! Reading what providers report of the tokens they counted.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::context::Context;
use crate::error::Error;
use crate::log::bill::Report;
use crate::log::provider::Provider;
use crate::log::usage::Usage;
use crate::provider::bills;
use crate::provider::figures::Figures;
use crate::provider::node::{self, Node};
use crate::provider::room;
use crate::value::time::Time;
use crate::value::Value;

impl Context {
    /// Keeps what a provider reported with the last message of the model.
    ///
    /// # Errors
    /// [`Error::InvalidUsage`], [`Error::NoAssistantMessage`].
    ///
    /// # Complexity
    /// O(what came since the tokens were last estimated).
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
        Self::of(report)
    }

    /// The same of JSON that is read in place.
    pub(crate) fn of<R: Figured>(report: &R) -> Result<Self, Error> {
        let mut found = FoundFigures::of(report)?;
        let mut whole = report;
        if let Some(inner) = found.inner(FigureKind::Around) {
            found = FoundFigures::of(inner)?;
            whole = inner;
        }
        let usage = found.usage()?;
        match found.has_more.then(|| whole.to_value()).flatten() {
            Some(value) => Ok(bills::read(usage, &value)),
            None => Ok(usage.into()),
        }
    }
}

/// A report, as a value or as JSON that is read in place.
pub(crate) trait Figured: Sized {
    /// Its entries; `None` when it has none by its nature.
    fn entries(&self) -> Option<impl Iterator<Item = (&str, Figure<'_, Self>)>>;

    /// A key as the report spells its keys.
    fn key(&self, name: &str) -> Value {
        Value::text(name)
    }

    /// All of it as a value.
    fn to_value(&self) -> Option<Value>;
}

/// Says what stands under a key.
pub(crate) enum Figure<'r, R> {
    Nothing,
    Number(u64),
    Inner(&'r R),
    Other,
}

impl Figured for Value {
    fn entries(&self) -> Option<impl Iterator<Item = (&str, Figure<'_, Self>)>> {
        let Self::Map(map) = self else { return None };
        let figure = |value| match value {
            &Self::Nil => Figure::Nothing,
            &Self::Int(number) => u64::try_from(number).map_or(Figure::Other, Figure::Number),
            Self::Map(_) => Figure::Inner(value),
            _ => Figure::Other,
        };
        let entries = map.iter();
        Some(entries.filter_map(move |(key, value)| Some((key.as_name()?, figure(value)))))
    }

    fn key(&self, name: &str) -> Value {
        match self {
            Self::Map(map) if matches!(map.iter().next(), Some((Self::Binary(_), _))) => {
                Self::text(name)
            }
            _ => Self::atom(name),
        }
    }

    fn to_value(&self) -> Option<Value> {
        Some(self.clone())
    }
}

impl Figured for Node<'_> {
    fn entries(&self) -> Option<impl Iterator<Item = (&str, Figure<'_, Self>)>> {
        let Self::Object(entries) = self else {
            return None;
        };
        let figure = |value| match Self::kind(value) {
            node::NodeKind::Nil => Figure::Nothing,
            node::NodeKind::Int(number) => {
                u64::try_from(number).map_or(Figure::Other, Figure::Number)
            }
            node::NodeKind::Object(_) => Figure::Inner(value),
            _ => Figure::Other,
        };
        Some(
            entries
                .iter()
                .map(move |(key, value)| (&**key, figure(value))),
        )
    }

    fn to_value(&self) -> Option<Value> {
        node::to_value(self).ok()
    }
}

/// The figures of a report.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FigureKind {
    Around,
    InputDetails,
    OutputDetails,
    CacheRead,
    CacheWritten,
    Input,
    WholeInput,
    Tools,
    Thoughts,
    Output,
    Candidates,
    Total,
    Cached,
    Written,
    Reasoning,
}

/// Some keys of a report.
type FigureKeys = fn(&Figures) -> &'static [&'static str];

const KINDS: [(FigureKind, FigureKeys); 15] = [
    (FigureKind::Around, |figures| figures.around),
    (FigureKind::InputDetails, |figures| figures.input_details),
    (FigureKind::OutputDetails, |figures| figures.output_details),
    (FigureKind::CacheRead, |figures| figures.cache_read),
    (FigureKind::CacheWritten, |figures| figures.cache_written),
    (FigureKind::Input, |figures| figures.input),
    (FigureKind::WholeInput, |figures| figures.whole_input),
    (FigureKind::Tools, |figures| figures.tools),
    (FigureKind::Thoughts, |figures| figures.thoughts),
    (FigureKind::Output, |figures| figures.output),
    (FigureKind::Candidates, |figures| figures.candidates),
    (FigureKind::Total, |figures| figures.total),
    (FigureKind::Cached, |figures| figures.cached),
    (FigureKind::Written, |figures| figures.written),
    (FigureKind::Reasoning, |figures| figures.reasoning),
];

/// The keys under which any provider has a figure, since a report does not say whose it is: which one it is,
/// and which of its keys. Streams report with each event, so that a key is looked up and not looked for.
static NAMES: LazyLock<HashMap<&'static str, (FigureKind, usize)>> = LazyLock::new(|| {
    let mut names = HashMap::new();
    for (kind, keys) in KINDS {
        let of = |provider| keys(room(provider).figures());
        for (rank, name) in Provider::ALL.into_iter().flat_map(of).enumerate() {
            names.entry(*name).or_insert((kind, rank));
        }
    }
    names
});

/// Holds what there is of each figure. A number is taken from the first key that has one, so that a report
/// which names it in two ways is counted once.
struct FoundFigures<'r, R> {
    numbers: [Option<(usize, u64)>; KINDS.len()],
    inner: [Option<(usize, &'r R)>; KINDS.len()],
    /// Something is there that has a price of its own.
    has_more: bool,
}

impl<'r, R: Figured> FoundFigures<'r, R> {
    fn of(report: &'r R) -> Result<Self, Error> {
        let entries = report.entries();
        let entries = entries.ok_or(Error::InvalidUsage { key: Value::Nil })?;
        let mut found = Self {
            numbers: [None; KINDS.len()],
            inner: [None; KINDS.len()],
            has_more: false,
        };
        for (name, figure) in entries {
            found.has_more |= bills::is_billed(name);
            let Some((kind, rank)) = NAMES.get(name).copied() else {
                continue;
            };
            let holds = matches!(
                kind,
                FigureKind::Around | FigureKind::InputDetails | FigureKind::OutputDetails
            );
            match figure {
                Figure::Nothing => {}
                Figure::Number(number) if !holds => {
                    keep(found.numbers.get_mut(kind as usize), rank, number);
                }
                Figure::Inner(inner) if holds => {
                    keep(found.inner.get_mut(kind as usize), rank, inner);
                }
                _ => {
                    let key = report.key(name);
                    return Err(Error::InvalidUsage { key });
                }
            }
        }
        Ok(found)
    }

    fn number(&self, kind: FigureKind) -> Option<u64> {
        let (_, number) = (*self.numbers.get(kind as usize)?)?;
        Some(number)
    }

    fn inner(&self, kind: FigureKind) -> Option<&'r R> {
        let (_, inner) = (*self.inner.get(kind as usize)?)?;
        Some(inner)
    }

    /// A figure of the report, or of an object with details.
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
        // Tokens read from a cache or written to it may not be part of the input.
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
        let is_known = self.numbers.iter().any(Option::is_some);
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

fn keep<T>(place: Option<&mut Option<(usize, T)>>, rank: usize, value: T) {
    if let Some(place) = place {
        if place.as_ref().is_none_or(|(known, _)| rank < *known) {
            *place = Some((rank, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{room, KINDS};
    use crate::log::provider::Provider;
    use std::collections::HashMap;

    #[test]
    fn a_key_is_one_figure() {
        let mut names = HashMap::new();
        for (kind, keys) in KINDS {
            for name in Provider::ALL
                .into_iter()
                .flat_map(|of| keys(room(of).figures()))
            {
                assert_eq!(*names.entry(*name).or_insert(kind), kind, "{name}");
            }
        }
    }
}
