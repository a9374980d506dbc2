//! Reading what providers report of the tokens they counted.

use crate::context::Context;
use crate::error::Error;
use crate::log::provider::Provider;
use crate::log::usage::Usage;
use crate::provider::figures::Figures;
use crate::provider::room;
use crate::value::fields::Fields;
use crate::value::time::Time;
use crate::value::{Map, Value};

impl Context {
    /// Notes what a provider reported with the last message of the model.
    ///
    /// # Errors
    /// [`Error::InvalidUsage`], [`Error::NoAssistantMessage`].
    ///
    /// # Complexity
    /// O(what came since the tokens were last estimated).
    pub fn add_token_usage(&self, report: Value, at: Time) -> Result<Self, Error> {
        self.add_usage(Usage::read(report)?, at)
    }
}

impl Usage {
    /// Reads the report of any provider, or the answer that holds it.
    ///
    /// # Errors
    /// [`Error::InvalidUsage`].
    pub fn read(value: Value) -> Result<Self, Error> {
        let mut report = Report::of(value)?;
        if let Some(inner) = report.take_map(|figures| figures.around)? {
            report = Report::of(Value::Map(inner))?;
        }
        report.read()
    }
}

/// A report that is being read. A number is taken from the first key that has one, so that a report
/// which names it in two ways is counted once.
struct Report {
    fields: Fields,
    known: bool,
}

impl Report {
    fn of(value: Value) -> Result<Self, Error> {
        match Fields::of(value) {
            Some(fields) => Ok(Self {
                fields,
                known: false,
            }),
            None => Err(Error::InvalidUsage { key: Value::Nil }),
        }
    }

    fn read(mut self) -> Result<Usage, Error> {
        let mut input_details = self.take_details(|figures| figures.input_details)?;
        let mut output_details = self.take_details(|figures| figures.output_details)?;
        // What is read from a cache and written to it may not be in the input.
        let read = self.first(|figures| figures.cache_read)?;
        let written = self.first(|figures| figures.cache_written)?;
        let beside = read.unwrap_or(0).saturating_add(written.unwrap_or(0));
        let input = match self.first(|figures| figures.input)? {
            Some(input) => input.saturating_add(beside),
            None => self.first(|figures| figures.whole_input)?.unwrap_or(beside),
        };
        let tools = self.first(|figures| figures.tools)?.unwrap_or(0);
        let thoughts = self.first(|figures| figures.thoughts)?;
        let output = match self.first(|figures| figures.output)? {
            Some(output) => output,
            None => {
                let candidates = self.first(|figures| figures.candidates)?.unwrap_or(0);
                candidates.saturating_add(thoughts.unwrap_or(0))
            }
        };
        let total = self.first(|figures| figures.total)?.unwrap_or(0);
        let cached = match self.first(|figures| figures.cached)?.or(read) {
            Some(cached) => cached,
            None => input_details.first(|figures| figures.cached)?.unwrap_or(0),
        };
        let reasoning = match self.first(|figures| figures.reasoning)?.or(thoughts) {
            Some(reasoning) => reasoning,
            None => output_details
                .first(|figures| figures.reasoning)?
                .unwrap_or(0),
        };
        if !self.known {
            return Err(Error::InvalidUsage { key: Value::Nil });
        }
        let input = input.saturating_add(tools);
        Ok(Usage {
            input,
            output,
            total: total.max(input.saturating_add(output)),
            cached,
            reasoning,
        })
    }

    /// The number under the first of these keys that has one.
    fn first(&mut self, keys: Keys) -> Result<Option<u64>, Error> {
        let mut found = None;
        for name in all(keys) {
            let number = match self.fields.take_given(name) {
                None => continue,
                Some(Value::Int(number)) => u64::try_from(number).ok(),
                Some(_) => None,
            };
            // Most names are not there: a key is made for the one that is wrong.
            let number = number.ok_or_else(|| self.wrong(name))?;
            self.known = true;
            found = found.or(Some(number));
        }
        Ok(found)
    }

    fn take_map(&mut self, keys: Keys) -> Result<Option<Map>, Error> {
        for name in all(keys) {
            match self.fields.take_map(name) {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(_) => return Err(self.wrong(name)),
            }
        }
        Ok(None)
    }

    fn wrong(&self, name: &str) -> Error {
        let key = self.fields.key(name);
        Error::InvalidUsage { key }
    }

    fn take_details(&mut self, keys: Keys) -> Result<Self, Error> {
        Self::of(Value::Map(self.take_map(keys)?.unwrap_or_default()))
    }
}

/// Some keys of a report.
type Keys = fn(&Figures) -> &'static [&'static str];

/// The keys under which any provider has a figure: a report does not say whose it is.
fn all(keys: Keys) -> impl Iterator<Item = &'static str> {
    let of = move |provider| keys(room(provider).figures());
    Provider::ALL.into_iter().flat_map(of).copied()
}
