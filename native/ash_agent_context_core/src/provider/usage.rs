//! Reading what providers report of the tokens they counted.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::context::Context;
use crate::error::Error;
use crate::log::provider::Provider;
use crate::log::usage::Usage;
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
        self.add_usage(Usage::read(&report)?, at)
    }
}

impl Usage {
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
    pub(crate) fn of<R: Report>(report: &R) -> Result<Self, Error> {
        let found = Found::of(report)?;
        match found.inner(Kind::Around) {
            Some(inner) => Found::of(inner)?.usage(),
            None => found.usage(),
        }
    }
}

/// A report, as a value or as JSON that is read in place.
pub(crate) trait Report: Sized {
    /// Its entries; `None` when it has none by its nature.
    fn entries(&self) -> Option<impl Iterator<Item = (&str, Figure<'_, Self>)>>;

    /// A key as the report spells its keys.
    fn key(&self, name: &str) -> Value {
        Value::text(name)
    }
}

/// What stands under a key.
pub(crate) enum Figure<'r, R> {
    Nothing,
    Number(u64),
    Inner(&'r R),
    Other,
}

impl Report for Value {
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
}

impl Report for Node<'_> {
    fn entries(&self) -> Option<impl Iterator<Item = (&str, Figure<'_, Self>)>> {
        let Self::Object(entries) = self else {
            return None;
        };
        let figure = |value| match Self::kind(value) {
            node::Kind::Nil => Figure::Nothing,
            node::Kind::Int(number) => u64::try_from(number).map_or(Figure::Other, Figure::Number),
            node::Kind::Object(_) => Figure::Inner(value),
            _ => Figure::Other,
        };
        Some(
            entries
                .iter()
                .map(move |(key, value)| (&**key, figure(value))),
        )
    }
}

/// The figures of a report.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
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
type Keys = fn(&Figures) -> &'static [&'static str];

const KINDS: [(Kind, Keys); 15] = [
    (Kind::Around, |figures| figures.around),
    (Kind::InputDetails, |figures| figures.input_details),
    (Kind::OutputDetails, |figures| figures.output_details),
    (Kind::CacheRead, |figures| figures.cache_read),
    (Kind::CacheWritten, |figures| figures.cache_written),
    (Kind::Input, |figures| figures.input),
    (Kind::WholeInput, |figures| figures.whole_input),
    (Kind::Tools, |figures| figures.tools),
    (Kind::Thoughts, |figures| figures.thoughts),
    (Kind::Output, |figures| figures.output),
    (Kind::Candidates, |figures| figures.candidates),
    (Kind::Total, |figures| figures.total),
    (Kind::Cached, |figures| figures.cached),
    (Kind::Written, |figures| figures.written),
    (Kind::Reasoning, |figures| figures.reasoning),
];

/// The keys under which any provider has a figure, since a report does not say whose it is: which one it is,
/// and which of its keys. Streams report with each event, so that a key is looked up and not looked for.
static NAMES: LazyLock<HashMap<&'static str, (Kind, usize)>> = LazyLock::new(|| {
    let mut names = HashMap::new();
    for (kind, keys) in KINDS {
        let of = |provider| keys(room(provider).figures());
        for (rank, name) in Provider::ALL.into_iter().flat_map(of).enumerate() {
            names.entry(*name).or_insert((kind, rank));
        }
    }
    names
});

/// What there is of each figure. A number is taken from the first key that has one, so that a report
/// which names it in two ways is counted once.
struct Found<'r, R> {
    numbers: [Option<(usize, u64)>; KINDS.len()],
    inner: [Option<(usize, &'r R)>; KINDS.len()],
}

impl<'r, R: Report> Found<'r, R> {
    fn of(report: &'r R) -> Result<Self, Error> {
        let entries = report.entries();
        let entries = entries.ok_or(Error::InvalidUsage { key: Value::Nil })?;
        let mut found = Self {
            numbers: [None; KINDS.len()],
            inner: [None; KINDS.len()],
        };
        for (name, figure) in entries {
            let Some((kind, rank)) = NAMES.get(name).copied() else {
                continue;
            };
            let holds = matches!(
                kind,
                Kind::Around | Kind::InputDetails | Kind::OutputDetails
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

    fn number(&self, kind: Kind) -> Option<u64> {
        let (_, number) = (*self.numbers.get(kind as usize)?)?;
        Some(number)
    }

    fn inner(&self, kind: Kind) -> Option<&'r R> {
        let (_, inner) = (*self.inner.get(kind as usize)?)?;
        Some(inner)
    }

    /// A figure of the report, or of an object with details.
    fn detail(&self, kind: Kind, details: Kind) -> Result<(Option<u64>, Option<u64>), Error> {
        let details = self.inner(details).map(Found::of).transpose()?;
        let inner = details.and_then(|details| details.number(kind));
        Ok((self.number(kind), inner))
    }

    fn usage(&self) -> Result<Usage, Error> {
        let zero = |number: Option<u64>| number.unwrap_or(0);
        // What is read from a cache and written to it may not be in the input.
        let read = self.number(Kind::CacheRead);
        let apart = self.number(Kind::CacheWritten);
        let beside = zero(read).saturating_add(zero(apart));
        let input = match self.number(Kind::Input) {
            Some(input) => input.saturating_add(beside),
            None => self.number(Kind::WholeInput).unwrap_or(beside),
        };
        let input = input.saturating_add(zero(self.number(Kind::Tools)));
        let thoughts = self.number(Kind::Thoughts);
        let output = self
            .number(Kind::Output)
            .unwrap_or_else(|| zero(self.number(Kind::Candidates)).saturating_add(zero(thoughts)));
        let total = zero(self.number(Kind::Total));
        let (cached, inside) = self.detail(Kind::Cached, Kind::InputDetails)?;
        let cached = zero(cached.or(read).or(inside));
        let (written, noted) = self.detail(Kind::Written, Kind::InputDetails)?;
        let written = zero(written.or(apart).or(noted));
        let (reasoning, within) = self.detail(Kind::Reasoning, Kind::OutputDetails)?;
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
