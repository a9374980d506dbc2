//! Requests: the message part of what a provider is sent.
//!
//! Each message's JSON for a provider is made once, on first use, and kept beside it. A request is
//! a list of slices of what is kept. What a message becomes depends on the message and on what
//! came before it, never on what comes behind: so appending changes no byte in front.

mod assembly;
mod cost;
mod item;
pub mod segment;

use std::collections::HashSet;

use crate::context::Context;
use crate::error::Error;
use crate::log::iteration::Iteration;
use crate::log::message::Message;
use crate::value::json::AsJson;
use crate::value::Map;
use crate::view::look::Look;
use crate::view::{self, Step};

use crate::provider;
use crate::provider::options::Options;
use crate::request::assembly::Assembly;
use crate::request::item::items;
use crate::request::segment::Segment;
use crate::value::builder::Json;
use crate::view::change::{Change, ChangeKind};

impl Context {
    /// The body of a request: the caller's fields and the message part, as one JSON object.
    ///
    /// # Errors
    /// [`Error::PendingToolCalls`]; [`Error::ReservedField`] when a field of the caller would
    /// overwrite the message part; [`Error::UnknownIteration`].
    ///
    /// # Complexity
    /// O(new bytes + messages)
    pub fn encode_request(
        &self,
        options: &Options<'_>,
        body: &Map,
    ) -> Result<Vec<Segment<'_>>, Error> {
        self.log.check_nothing_pending()?;
        self.check_from(options)?;
        let format = provider::room(options.provider);
        let mut head = Json::default();
        head.raw("{");
        let mut seen = HashSet::new();
        for (key, value) in body.iter() {
            let Some(key) = key.as_name().filter(|key| seen.insert(*key)) else {
                continue;
            };
            if key == format.list() || Some(key) == format.system_key() {
                return Err(Error::ReservedField { key: key.into() });
            }
            head.value(key);
            head.raw(":");
            head.value(&AsJson(value));
            head.raw(",");
        }
        Assembly::new(self, format, options).finish(head)
    }

    /// What a projection changes of the conversation, so that the provider takes it.
    ///
    /// # Errors
    /// As [`Context::encode_request`].
    pub fn request_report(&self, options: &Options<'_>) -> Result<Vec<Located>, Error> {
        self.log.check_nothing_pending()?;
        self.check_from(options)?;
        let format = provider::room(options.provider);
        let mut report = Vec::new();
        for step in self.sent(options) {
            match step {
                Step::Iteration(iteration, look) => {
                    let leads = usize::from(self.leads(iteration));
                    for (item, position) in items(iteration, look).zip(leads..) {
                        let changes = item.changes(format, options);
                        report.extend(changes.into_iter().map(|change| Located {
                            change,
                            iteration: iteration.number,
                            position,
                        }));
                    }
                }
                Step::Cover(first, last, summary, look) => report.push(Located {
                    change: covered(first, last, summary, look),
                    iteration: first,
                    position: 0,
                }),
            }
        }
        Ok(report)
    }

    /// Whether the system prompt is shown as the first message of an iteration.
    fn leads(&self, iteration: &Iteration) -> bool {
        iteration.number == self.first_number() && self.system().is_some()
    }

    fn check_from(&self, options: &Options<'_>) -> Result<(), Error> {
        let (first, last) = (self.first_number(), self.current_iteration());
        match options.from {
            Some(from) if !(first..=last).contains(&from) => Err(Error::UnknownIteration {
                number: i64::try_from(from).unwrap_or(i64::MAX),
                first,
                last,
            }),
            _ => Ok(()),
        }
    }

    /// What is sent of the view.
    fn sent(&self, options: &Options<'_>) -> impl Iterator<Item = Step<'_>> {
        let most = options.max_result_bytes.unwrap_or(usize::MAX);
        self.steps(options.from.unwrap_or(0), u64::MAX)
            .map(move |step| match step {
                Step::Iteration(iteration, look) => Step::Iteration(iteration, look.at_most(most)),
                cover @ Step::Cover(..) => cover,
            })
    }
}

/// The change that a cover makes.
fn covered(first: u64, last: u64, summary: Option<&Message>, look: Look<'_>) -> Change {
    let shown = summary.and_then(|summary| look.message(summary));
    let to = shown.as_ref().or(summary).and_then(view::summary_text);
    Change {
        what: match summary {
            Some(_) => ChangeKind::SummarizedIterations,
            None => ChangeKind::HiddenIterations,
        },
        from: format!("{first}..{last}"),
        to: to.map(|text| String::from_utf8_lossy(text).into_owned()),
    }
}

/// A change and where it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The change.
    pub change: Change,
    /// The number of the iteration.
    pub iteration: u64,
    /// The 0-based position of the message in it.
    pub position: usize,
}
