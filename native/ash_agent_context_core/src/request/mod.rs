//! Requests: the message part of what a provider is sent.
//!
//! Each message's JSON for a provider is made once, on first use, and kept beside it. A request is
//! a list of slices of what is kept. What a message becomes depends on the message and on what
//! came before it, never on what comes behind: so appending changes no byte in front.

mod assembly;

use std::borrow::Cow;
use std::collections::HashSet;

use crate::context::Context;
use crate::error::Error;
use crate::log::call::ToolCall;
use crate::log::iteration::{Exchange, Iteration};
use crate::log::message::{Message, Role};
use crate::log::once::{Piece, Pieces};
use crate::log::part::{Content, Part, PartKind};
use crate::log::provider::Provider;
use crate::log::wire::Wire as Imported;
use crate::value::json::AsJson;
use crate::value::{Map, Size};
use crate::view::look::Look;
use crate::view::{self, Step};

use crate::provider;
use crate::provider::dialect::chat::reasoning::goes_back;
use crate::provider::format::Format;
use crate::provider::options::{Known, Options};
use crate::provider::writer::Writer;
use crate::value::builder::Json;
use crate::view::change::Change;
use assembly::Assembly;

/// A stretch of a request's bytes.
#[derive(Debug)]
pub enum Segment<'a> {
    /// Part of an encoding that the context keeps.
    Kept(&'a [u8]),
    /// Made for this request.
    Made(Cow<'static, [u8]>),
}

impl Segment<'_> {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Kept(bytes) => bytes,
            Self::Made(bytes) => bytes,
        }
    }
}

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
        self.check_nothing_pending()?;
        self.check_from(options)?;
        let format = provider::room(options.provider);
        let mut head = Json::default();
        head.raw("{");
        let mut seen = HashSet::new();
        for (key, value) in body.iter() {
            let Some(key) = key.as_name().filter(|key| seen.insert(*key)) else {
                continue;
            };
            let is_known = options.known.field().is_some_and(|(known, _)| known == key);
            if key == format.list() || Some(key) == format.system_key() || is_known {
                return Err(Error::ReservedField { key: key.into() });
            }
            head.value(key);
            head.raw(":");
            head.value(&AsJson(value));
            head.raw(",");
        }
        if let Some((key, id)) = options.known.field() {
            head.value(key);
            head.raw(":");
            head.value(id);
            head.raw(",");
        }
        Assembly::new(self, format, options).finish(head)
    }

    /// What a projection changes of the conversation, so that the provider takes it.
    ///
    /// # Errors
    /// As [`Context::encode_request`].
    pub fn request_report(&self, options: &Options<'_>) -> Result<Vec<Located>, Error> {
        self.check_nothing_pending()?;
        self.check_from(options)?;
        let format = provider::room(options.provider);
        let mut report = Vec::new();
        let first = self.first_sent(options);
        for step in self.sent(options) {
            match step {
                Step::Iteration(iteration, look) => {
                    let leads = usize::from(self.leads(iteration));
                    let known = Self::known_items(iteration, first, options);
                    let items = items(iteration, look, options).zip(leads..);
                    for (item, position) in items.skip(known) {
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

    /// The number of the first iteration that is sent.
    fn first_sent(&self, options: &Options<'_>) -> u64 {
        match (options.from, options.known) {
            (Some(from), _) => from,
            (None, Known::Nothing) => 0,
            // What the model said last is known.
            (None, _) => self
                .iterations_back()
                .find(|iteration| iteration.has_assistant())
                .map_or(0, |iteration| iteration.number),
        }
    }

    /// How many of an iteration's items the provider knows: all up to what the model said last in the
    /// first one that is sent.
    fn known_items(iteration: &Iteration, first: u64, options: &Options<'_>) -> usize {
        if options.known == Known::Nothing || iteration.number != first {
            return 0;
        }
        let items: Vec<_> = items(iteration, Look::PLAIN, options).collect();
        let said = items.iter().rposition(|item| item.is_model());
        said.map_or(0, |last| last + 1)
    }

    /// What is sent of the view.
    fn sent(&self, options: &Options<'_>) -> impl Iterator<Item = Step<'_>> {
        let most = options.max_result_bytes.unwrap_or(usize::MAX);
        self.steps(self.first_sent(options), u64::MAX)
            .map(move |step| match step {
                Step::Iteration(iteration, look) => Step::Iteration(iteration, look.at_most(most)),
                cover @ Step::Cover(..) => cover,
            })
    }
}

/// Everything of an iteration that adds to the list.
fn items<'a>(
    iteration: &'a Iteration,
    look: Look<'a>,
    options: &Options<'_>,
) -> impl Iterator<Item = Item<'a>> {
    let (provider, dialect) = (options.provider, options.dialect);
    let mut slots = 0;
    iteration.entries().flat_map(move |entry| {
        let look = look.behind(slots);
        slots += entry.message.calls.len();
        let exchange = entry.exchange.as_deref();
        let exchange = exchange.filter(|exchange| exchange.filled() > 0);
        let is_renamed = entry.message.calls.iter().any(ToolCall::is_renamed);
        // Results that are made by the rules have the ids that the rules give their calls, and the other way round.
        let by_rules = exchange
            .is_some_and(|exchange| exchange.wire.is_none() || look.key_of_results(exchange) != 0);
        let speaks_otherwise = dialect.is_some_and(|dialect| {
            let elements = Imported::of(entry.message.wire.as_ref(), provider);
            elements.is_some_and(|elements| !goes_back(&entry.message, elements, dialect))
        });
        let message = if speaks_otherwise || (by_rules && is_renamed) {
            Item::Remade(&entry.message, look)
        } else {
            Item::Message(&entry.message, look)
        };
        let results = exchange.map(|exchange| match speaks_otherwise && is_renamed {
            true => Item::RemadeResults(&entry.message, exchange, look),
            false => Item::Results(&entry.message, exchange, look),
        });
        std::iter::once(message).chain(results)
    })
}

/// The element that a message is whole, without a neutral form of its own.
fn whole_element(message: &Message, provider: Provider) -> Option<&Map> {
    let Content::Parts(parts) = &message.content else {
        return None;
    };
    match &**parts {
        [Part {
            kind: PartKind::ProviderBlock { provider: of, data },
            ..
        }] if *of == provider && data.get_named("role").is_some() => Some(data),
        _ => None,
    }
}

/// The change that a cover makes.
fn covered(first: u64, last: u64, summary: Option<&Message>, look: Look<'_>) -> Change {
    let shown = summary.and_then(|summary| look.message(summary));
    let to = shown.as_ref().or(summary).and_then(view::summary_text);
    Change {
        what: match summary {
            Some(_) => "summarized_iterations",
            None => "hidden_iterations",
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

/// What adds elements to a request's list.
#[derive(Clone, Copy)]
enum Item<'a> {
    Message(&'a Message, Look<'a>),
    /// A message that is not sent as it was imported.
    Remade(&'a Message, Look<'a>),
    Results(&'a Message, &'a Exchange, Look<'a>),
    /// Results that are not sent as they were imported.
    RemadeResults(&'a Message, &'a Exchange, Look<'a>),
}

impl<'a> Item<'a> {
    fn is_model(self) -> bool {
        matches!(
            self,
            Self::Message(message, _) | Self::Remade(message, _)
                if message.role == Role::Assistant
        )
    }

    /// Whether it is the model's and calls tools.
    fn calls(self) -> bool {
        match self {
            Self::Message(message, _) | Self::Remade(message, _) => !message.calls.is_empty(),
            _ => false,
        }
    }

    fn pieces(self) -> &'a Pieces {
        match self {
            Self::Message(message, _) | Self::Remade(message, _) => &message.pieces,
            Self::Results(_, exchange, _) | Self::RemadeResults(_, exchange, _) => &exchange.pieces,
        }
    }

    /// What distinguishes its encodings; 0 when it looks as in the log.
    fn look(self) -> u64 {
        match self {
            Self::Message(_, look) | Self::Remade(_, look) => look.key_of_message(),
            Self::Results(_, exchange, look) | Self::RemadeResults(_, exchange, look) => {
                look.key_of_results(exchange)
            }
        }
    }

    /// The elements by the rules.
    fn encode(self, format: &dyn Format, options: &Options<'_>) -> Piece {
        let mut out = Writer::new(options, format);
        self.render(format, &mut out);
        let is_model = self.is_model();
        Piece {
            begins_with_model: is_model,
            begins_with_calls: self.calls(),
            ends_with_model: is_model,
            ..out.piece()
        }
    }

    fn size(self) -> Size {
        match self {
            Self::Message(message, _) | Self::Remade(message, _) => message.size(),
            Self::Results(_, exchange, _) | Self::RemadeResults(_, exchange, _) => exchange.size(),
        }
    }

    /// The elements that its own provider had, where they are sent.
    fn imported(self, options: &Options<'_>) -> Option<&'a str> {
        // Breakpoints are placed in what the rules make, and so are other words.
        let anew = options.cache
            || matches!(self, Self::Remade(..) | Self::RemadeResults(..))
            || self.look() != 0;
        self.elements(options).filter(|_| !anew)
    }

    /// The elements that its own provider had.
    fn elements(self, options: &Options<'_>) -> Option<&'a str> {
        let imported = match self {
            Self::Message(message, _) | Self::Remade(message, _) => message.wire.as_ref(),
            Self::Results(_, exchange, _) | Self::RemadeResults(_, exchange, _) => {
                exchange.wire.as_ref()
            }
        };
        Imported::of(imported, options.provider)
    }

    fn render(self, format: &dyn Format, out: &mut Writer<'_>) {
        match self {
            Self::Message(message, look) | Self::Remade(message, look) => {
                let shown = look.message(message);
                let message = shown.as_ref().unwrap_or(message);
                match whole_element(message, out.options.provider) {
                    Some(element) => out.element(element),
                    None => format.message(message, out),
                }
            }
            Self::Results(message, exchange, look)
            | Self::RemadeResults(message, exchange, look) => match look.exchange(exchange) {
                Some(shown) => format.results(message, &shown, out),
                None => format.results(message, exchange, out),
            },
        }
    }

    /// What is changed so that the provider takes it, or by its look.
    fn changes(self, format: &dyn Format, options: &Options<'_>) -> Vec<Change> {
        let mut changes = match self {
            Self::Message(message, look) | Self::Remade(message, look) => {
                look.changes_of_message(message)
            }
            Self::Results(message, exchange, look)
            | Self::RemadeResults(message, exchange, look) => {
                look.changes_of_results(&message.calls, exchange)
            }
        };
        // What is imported goes back as it came.
        if self.imported(options).is_none() {
            let mut out = Writer::reporting(options, format);
            self.render(format, &mut out);
            let vanishes = out.json.0.is_empty();
            changes.extend(out.changes());
            // A reason is mostly reported already.
            if vanishes && changes.is_empty() {
                changes.extend(self.vanished());
            }
        }
        changes
    }

    /// The change that a message is not sent at all, if it says anything.
    fn vanished(self) -> Option<Change> {
        let (Self::Message(message, _) | Self::Remade(message, _)) = self else {
            return None;
        };
        let is_empty = match &message.content {
            Content::None => true,
            Content::Text(text) => text.is_empty(),
            Content::Parts(parts) => parts.is_empty(),
        };
        (!is_empty).then(|| Change {
            what: "dropped_message",
            from: message.role.name().to_owned(),
            to: None,
        })
    }
}
