//! Knows what adds elements to the list of a request.

use crate::log::exchange::Exchange;
use crate::log::iteration::Iteration;
use crate::log::message::{Message, Role};
use crate::log::original::Original as Imported;
use crate::log::part::{Content, Part, PartKind};
use crate::log::piece::{Piece, Pieces, Shape};
use crate::log::provider::Provider;
use crate::provider::dialect::chat::reasoning::goes_back;
use crate::provider::options::Options;
use crate::provider::room;
use crate::provider::writer::Writer;
use crate::value::{Map, Size, Value};
use crate::view::change::{Change, ChangeKind};
use crate::view::rendering::Rendering;

/// Room for what stands around a term of a message.
const BESIDE_TERM: usize = 16;

/// Says what adds elements to a request's list.
#[derive(Clone, Copy)]
pub(crate) enum Item<'a> {
    /// The system prompt.
    System(&'a Message, Rendering<'a>),
    Message(&'a Message, Rendering<'a>),
    /// A message that is not sent as it was imported.
    Remade(&'a Message, Rendering<'a>),
    Results(&'a Message, &'a Exchange, Rendering<'a>),
}

impl<'a> Item<'a> {
    pub fn is_model(self) -> bool {
        matches!(
            self,
            Self::Message(message, _) | Self::Remade(message, _)
                if message.role == Role::Assistant
        )
    }

    /// Returns whether it is neither the user's nor the model's.
    pub fn is_system(self) -> bool {
        matches!(
            self,
            Self::Message(message, _) | Self::Remade(message, _)
                if message.role == Role::System
        )
    }

    /// Returns whether it is a whole row of the system's, such as one that adds tools.
    pub fn is_system_row(self, options: &Options<'_>) -> bool {
        let (Self::Message(message, _) | Self::Remade(message, _)) = self else {
            return false;
        };
        let role = whole_element(message, options.provider).and_then(|row| row.get_named("role"));
        role.and_then(Value::as_name) == Some(Role::System.name())
    }

    /// Returns whether it is the model's and calls tools.
    pub fn calls(self) -> bool {
        match self {
            Self::Message(message, _) | Self::Remade(message, _) => !message.calls.is_empty(),
            _ => false,
        }
    }

    pub fn pieces(self) -> &'a Pieces {
        match self {
            Self::System(message, _) | Self::Message(message, _) | Self::Remade(message, _) => {
                &message.pieces
            }
            Self::Results(_, exchange, _) => &exchange.pieces,
        }
    }

    /// Returns what distinguishes its encodings; 0 when it looks as in the log.
    pub fn rendering(self) -> u64 {
        match self {
            Self::System(message, rendering)
            | Self::Message(message, rendering)
            | Self::Remade(message, rendering) => rendering.key_of_message(message),
            Self::Results(_, exchange, rendering) => rendering.key_of_results(exchange),
        }
    }

    /// How its elements fit to others.
    pub fn shape(self) -> Shape {
        Shape {
            begins_with_model: self.is_model(),
            begins_with_calls: self.calls(),
            ends_with_model: self.is_model(),
            ..Shape::default()
        }
    }

    /// The elements by the rules.
    pub fn encode(self, options: &Options<'_>) -> Piece {
        let size = self.size();
        let room = Vec::with_capacity(size.bytes + size.terms * BESIDE_TERM);
        let mut out = Writer::behind(room, options);
        self.render(&mut out);
        let (bytes, mark, by_hand) = out.into_parts();
        let shape = Shape {
            mark,
            ..self.shape()
        };
        Piece::new(bytes, shape, by_hand)
    }

    pub fn size(self) -> Size {
        match self {
            Self::System(message, _) | Self::Message(message, _) | Self::Remade(message, _) => {
                message.size()
            }
            Self::Results(_, exchange, _) => exchange.size(),
        }
    }

    /// The elements that its own provider had, where they are sent.
    pub fn imported_elements(self, options: &Options<'_>) -> Option<&'a str> {
        // Breakpoints are placed in what the rules make, and so are other words.
        let anew = options.cache || matches!(self, Self::Remade(..)) || self.rendering() != 0;
        self.elements(options).filter(|_| !anew)
    }

    /// The elements that its own provider had.
    pub fn elements(self, options: &Options<'_>) -> Option<&'a str> {
        let imported = match self {
            Self::System(message, _) | Self::Message(message, _) | Self::Remade(message, _) => {
                message.original.as_ref()
            }
            Self::Results(_, exchange, _) => exchange.original.as_ref(),
        };
        Imported::of(imported, options.provider)
    }

    /// Returns whether the item before it has its elements.
    pub fn is_held(self, options: &Options<'_>) -> bool {
        self.elements(options) == Some("")
    }

    pub fn render(self, out: &mut Writer<'_>) {
        let format = room(out.options.provider);
        match self {
            Self::System(message, rendering) => {
                let shown = rendering.message(message);
                format.system(shown.as_ref().unwrap_or(message), out);
            }
            Self::Message(message, rendering) | Self::Remade(message, rendering) => {
                let shown = rendering.message(message);
                let message = shown.as_ref().unwrap_or(message);
                match whole_element(message, out.options.provider) {
                    Some(element) => out.element(element),
                    None => format.message(message, out),
                }
            }
            Self::Results(message, exchange, rendering) => {
                match rendering.exchange(&message.calls, exchange) {
                    Some(shown) => format.results(message, &shown, out),
                    None => format.results(message, exchange, out),
                }
            }
        }
    }

    /// Returns what is changed so that the provider takes it, or by its look, where it is not sent as it was imported.
    pub fn changes(self, options: &Options<'_>) -> Vec<Change> {
        let mut changes = match self {
            Self::System(message, rendering)
            | Self::Message(message, rendering)
            | Self::Remade(message, rendering) => rendering.changes_of_message(message),
            Self::Results(message, exchange, rendering) => {
                rendering.changes_of_results(&message.calls, exchange)
            }
        };
        let mut out = Writer::reporting(options);
        self.render(&mut out);
        let vanishes = out.json.0.is_empty();
        changes.extend(out.changes());
        // A reason is mostly reported already.
        if vanishes && changes.is_empty() {
            changes.extend(self.report_vanished());
        }
        changes
    }

    /// The change that a message is not sent at all, if it says anything.
    fn report_vanished(self) -> Option<Change> {
        let (Self::System(message, _) | Self::Message(message, _) | Self::Remade(message, _)) =
            self
        else {
            return None;
        };
        let is_empty = match &message.content {
            Content::None => true,
            Content::Text(text) => text.is_empty(),
            Content::Parts(parts) => parts.is_empty(),
        };
        (!is_empty).then(|| Change {
            what: ChangeKind::DroppedMessage,
            from: message.role.name().to_owned(),
            to: None,
        })
    }
}

/// Everything of an iteration that adds to the list.
pub(crate) fn items<'a>(
    iteration: &'a Iteration,
    rendering: Rendering<'a>,
    options: &Options<'_>,
) -> impl Iterator<Item = Item<'a>> {
    let (provider, dialect) = (options.provider, options.dialect);
    let mut slots = 0;
    iteration.entries().flat_map(move |entry| {
        let rendering = rendering.behind(slots);
        slots += entry.message.calls.len();
        let exchange = entry.exchange.as_deref();
        let exchange = exchange.filter(|exchange| exchange.count_filled() > 0);
        let speaks_otherwise = dialect.is_some_and(|dialect| {
            let elements = Imported::of(entry.message.original.as_ref(), provider);
            elements.is_some_and(|elements| !goes_back(&entry.message, elements, dialect))
        });
        let message = if speaks_otherwise {
            Item::Remade(&entry.message, rendering)
        } else {
            Item::Message(&entry.message, rendering)
        };
        let results = exchange.map(|exchange| Item::Results(&entry.message, exchange, rendering));
        std::iter::once(message).chain(results)
    })
}

/// The element that is all of a message, without a neutral form of its own.
fn whole_element(message: &Message, provider: Provider) -> Option<&Map> {
    let Content::Parts(parts) = &message.content else {
        return None;
    };
    match &**parts {
        _ if !message.calls.is_empty() => None,
        [Part {
            kind: PartKind::ProviderBlock { provider: of, data },
            withheld: false,
            ..
        }] if *of == provider && room(provider).is_row(data) => Some(data),
        _ => None,
    }
}
