//! The items of a request: what adds elements to its list.

use crate::log::exchange::{Entry, Exchange};
use crate::log::iteration::Iteration;
use crate::log::message::{Message, Role};
use crate::log::original::Original as Imported;
use crate::log::part::{Content, Part, PartKind};
use crate::log::piece::{Piece, Pieces, Shape};
use crate::log::provider::Provider;
use crate::provider::facts::Rule;
use crate::provider::frame::Escapes;
use crate::provider::late;
use crate::provider::openai_chat::beside::goes_back;
use crate::provider::options::Options;
use crate::provider::room;
use crate::provider::writer::Writer;
use crate::value::{numbers, Map, Size, Value};
use crate::view::change::{Change, ChangeKind};
use crate::view::rendering::Rendering;

/// The slots of an item with all results.
const ALL_SLOTS: (usize, usize) = (0, usize::MAX);

/// Distinguishes encodings of some of the results.
const PART: u64 = 0xa076_1d64_78bd_642f;

/// The bytes reserved for the JSON around a term of a message.
const BESIDE_TERM: usize = 16;

/// A message, or the results of its calls, as elements of a request's list.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    pub message: &'a Message,
    /// The results of its calls, if they are the item.
    pub results: Option<&'a Exchange>,
    /// Those of its slots that are in the item, from one to before another.
    slots: (usize, usize),
    pub rendering: Rendering<'a>,
    /// True if it is the system prompt.
    is_prompt: bool,
    /// True if it is not sent as it was imported.
    is_remade: bool,
}

impl<'a> Item<'a> {
    pub fn of(message: &'a Message, rendering: Rendering<'a>) -> Self {
        Self {
            message,
            results: None,
            slots: ALL_SLOTS,
            rendering,
            is_prompt: false,
            is_remade: false,
        }
    }

    pub fn prompt(message: &'a Message, rendering: Rendering<'a>) -> Self {
        Self {
            is_prompt: true,
            ..Self::of(message, rendering)
        }
    }

    /// Returns the item for the results of the message's calls.
    pub fn results(self, exchange: &'a Exchange) -> Self {
        Self {
            results: Some(exchange),
            is_remade: false,
            ..self
        }
    }

    /// Returns the item for the results of some slots.
    fn of_slots(self, from: usize, to: usize) -> Self {
        Self {
            slots: (from, to),
            ..self
        }
    }

    fn is_by(self, role: Role) -> bool {
        self.results.is_none() && !self.is_prompt && self.message.role == role
    }

    pub fn is_model(self) -> bool {
        self.is_by(Role::Assistant)
    }

    /// Returns whether it is neither the user's nor the model's.
    pub fn is_system(self) -> bool {
        self.is_by(Role::System)
    }

    /// Returns whether it is a whole system row, such as one that adds tools.
    pub fn is_system_row(self, options: &Options<'_>) -> bool {
        if self.results.is_some() || self.is_prompt {
            return false;
        }
        let row = whole_element(self.message, options.provider);
        let role = row.and_then(|row| row.get_named("role"));
        role.and_then(Value::as_name) == Some(Role::System.name())
    }

    /// Returns whether it is a message of the model with calls.
    pub fn calls(self) -> bool {
        self.results.is_none() && !self.is_prompt && !self.message.calls.is_empty()
    }

    pub fn pieces(self) -> &'a Pieces {
        let results = self.results.map(|exchange| &exchange.pieces);
        results.unwrap_or(&self.message.pieces)
    }

    /// Returns a key that distinguishes its encodings; 0 if it is shown as in the log.
    pub fn rendering(self) -> u64 {
        match self.results {
            None => self.rendering.key_of_message(self.message),
            Some(exchange) => {
                let key = self.rendering.key_of_results(exchange);
                match self.slots {
                    ALL_SLOTS => key,
                    // Each begins with the first slot, or ends with the last.
                    (0, to) => key.rotate_left(to as u32 + 1) ^ PART,
                    (from, _) => key.rotate_left(from as u32 + 1) ^ !PART,
                }
            }
        }
    }

    /// Returns how its elements fit to others.
    pub fn shape(self) -> Shape {
        Shape {
            begins_with_model: self.is_model(),
            begins_with_calls: self.calls(),
            ends_with_model: self.is_model(),
            has_model: self.is_model(),
            ..Shape::default()
        }
    }

    /// Returns its elements as the rules write them.
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
        let results = self.results.map(Exchange::size);
        results.unwrap_or_else(|| self.message.size())
    }

    /// Returns the elements that it was imported with, if they are sent.
    pub fn imported_elements(self, options: &Options<'_>) -> Option<&'a str> {
        // Breakpoints, changed texts and numbers as text are only in elements that the rules write.
        let anew = options.cache || self.is_remade || self.rendering() != 0;
        let elements = self.elements(options).filter(|_| !anew);
        elements.filter(|elements| numbers::find(elements.as_bytes()).is_empty())
    }

    /// Returns the elements that it was imported with.
    pub fn elements(self, options: &Options<'_>) -> Option<&'a str> {
        let imported = match self.results {
            None => &self.message.original,
            Some(exchange) => &exchange.original,
        };
        Imported::of(imported.as_ref(), options.provider)
    }

    /// Returns whether an item before it has its elements.
    pub fn is_held(self, options: &Options<'_>) -> bool {
        self.elements(options) == Some("")
    }

    pub fn render(self, out: &mut Writer<'_>) {
        let (message, format) = (self.message, room(out.options.provider));
        if message.is_left_out_by(out.options.provider) {
            return;
        }
        // The words of the model and of the application are their own.
        if self.results.is_some() || self.is_by(Role::User) {
            out.escapes = Escapes::All;
        }
        if let Some(exchange) = self.results {
            let shown = self.rendering.exchange(&message.calls, exchange);
            let shown = shown.as_ref().unwrap_or(exchange);
            let arrived = shown.arrival.zip(message.calls.first().zip(shown.slot(0)));
            if let Some((of, (call, outcome))) = arrived {
                let is_sent = of.iteration > 0 && !self.rendering.apart;
                if !is_sent || !late::stays_open(call, out.options.provider) {
                    let framed = late::frame(call, outcome, out);
                    format.user(&framed, out);
                    out.result = None;
                    return;
                }
            }
            let provider = out.options.provider;
            let shown = late::without_open(&message.calls, shown, self.slots, provider);
            return format.results(message, &shown, out);
        }
        let shown = self.rendering.message(message);
        let message = shown.as_ref().unwrap_or(message);
        if self.is_prompt {
            return format.system(message, out);
        }
        match whole_element(message, out.options.provider) {
            Some(element) => out.element(element),
            None if message.role == Role::Assistant => format.assistant(message, out),
            None => format.user(message, out),
        }
    }

    /// Returns the changes that the provider needs, or that the view makes, unless it is sent as it was imported.
    pub fn changes(self, options: &Options<'_>) -> Vec<Change> {
        let mut changes = match self.results {
            None => Vec::from_iter(self.rendering.change_of_message(self.message)),
            Some(_) if self.slots.0 > 0 => Vec::new(), // told with the first slots
            Some(exchange) => {
                let calls = &self.message.calls;
                self.rendering.changes_of_results(calls, exchange)
            }
        };
        let mut out = Writer::reporting(options);
        self.render(&mut out);
        let vanishes = out.json.0.is_empty();
        changes.extend(out.changes());
        // The reason is mostly reported already.
        let is_empty = self.message.calls.is_empty()
            && match &self.message.content {
                Content::Text(text) => text.is_empty(),
                content => content.count_parts() == 0,
            };
        if vanishes && changes.is_empty() && self.results.is_none() && !is_empty {
            changes.push(Change {
                what: ChangeKind::DroppedMessage,
                from: self.message.role.name().to_owned(),
                to: None,
            });
        }
        changes
    }
}

/// Returns the items of an iteration. Where results may come late, those for which a call waited stand in front of its own.
pub(crate) fn items<'a>(
    iteration: &'a Iteration,
    rendering: Rendering<'a>,
    options: &Options<'_>,
) -> impl Iterator<Item = Item<'a>> {
    let provider = options.provider;
    let dialect = options.dialect.filter(|_| provider == Provider::OpenAiChat);
    let takes_late = provider.facts().has(Rule::LateOutputs) && !rendering.apart;
    let mut waited: Option<&Message> = None;
    let late_slot = move |entry: &Entry, message: &Message| {
        let is_late = takes_late && entry.message.is_arrival();
        is_late
            .then(|| late::slot_before(entry, message, provider))
            .flatten()
    };
    let late_item = move |entry: &'a Entry| {
        let item = Item::of(&entry.message, rendering.behind(entry.slots));
        Some(item.results(entry.exchange.as_deref()?))
    };
    iteration
        .entries()
        .enumerate()
        .flat_map(move |(at, entry)| {
            let is_late = entry.message.is_arrival();
            let stood = waited.filter(|_| is_late);
            let has_stood = stood.is_some_and(|message| late_slot(entry, message).is_some());
            let message = &*entry.message;
            let (mut slot, mut late) = (None, Vec::new());
            if takes_late && !is_late && entry.exchange.is_some() {
                let following = (at + 1..).map_while(|at| iteration.entry(at));
                let following = following.take_while(|next| next.message.is_arrival());
                for (next, before) in
                    following.filter_map(|next| Some((next, late_slot(next, message)?)))
                {
                    slot = Some(slot.unwrap_or(before).min(before));
                    late.extend(late_item(next));
                }
            }
            if !is_late {
                waited = Some(message);
            }
            let rendering = rendering.behind(entry.slots);
            let exchange = entry.exchange.as_deref();
            let exchange = exchange.filter(|exchange| !has_stood && exchange.count_filled() > 0);
            let speaks_otherwise = dialect.is_some_and(|dialect| {
                let elements = Imported::of(entry.message.original.as_ref(), provider);
                elements.is_some_and(|elements| !goes_back(&entry.message, elements, dialect))
            });
            let message = Item {
                is_remade: speaks_otherwise,
                ..Item::of(&entry.message, rendering)
            };
            let results = exchange.map(|exchange| message.results(exchange));
            let said = (!is_late).then_some(message);
            let (first, slot) = (slot.filter(|slot| *slot > 0), slot.unwrap_or(0));
            let (from, to) = (slot, usize::MAX);
            let first = first.and(results.map(|results| results.of_slots(0, slot)));
            let results = results.map(|results| results.of_slots(from, to));
            said.into_iter().chain(first).chain(late).chain(results)
        })
}

/// Returns the element that is the whole of a message without a neutral form.
fn whole_element(message: &Message, provider: Provider) -> Option<&Map> {
    let Content::Parts(parts) = &message.content else {
        return None;
    };
    match &**parts {
        _ if !message.calls.is_empty() => None,
        [Part {
            kind: PartKind::ProviderBlock { provider: of, data },
            withheld: false,
            number: None,
            ..
        }] if *of == provider && room(provider).is_row(data) => Some(data),
        _ => None,
    }
}

/// An item and its place.
#[derive(Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub item: Item<'a>,
    /// The number of the iteration.
    pub iteration: u64,
    /// The 0-based position of the message in it.
    pub position: usize,
}

/// Returns the elements of a unit, which are items that share them, if all of the items go back as they were imported.
pub(crate) fn shared_elements<'a>(unit: &[Item<'a>], options: &Options<'_>) -> Option<&'a str> {
    let is_imported = |item: &Item<'a>| item.imported_elements(options).is_some();
    let elements = unit.first()?.imported_elements(options)?;
    (!elements.is_empty() && unit.iter().all(is_imported)).then_some(elements)
}

/// Splits items into units, and returns with each item the elements with which it goes back as it was imported.
pub(crate) fn resolve_units<'a, 'i, 'o>(
    items: &'i [Item<'a>],
    options: &'i Options<'o>,
) -> impl Iterator<Item = (Item<'a>, Option<&'a str>)> + use<'a, 'i, 'o> {
    let units = items.chunk_by(|_, next| next.is_held(options));
    units.flat_map(move |unit| {
        let is_imported = shared_elements(unit, options).is_some();
        let elements = move |item: &Item<'a>| item.elements(options).filter(|_| is_imported);
        unit.iter().map(move |item| (*item, elements(item)))
    })
}
