//! Requests: the message part of a provider's request body.
//!
//! The JSON of each message for a provider is made once, on first use, and kept with the message. The encoding of a message
//! depends on the message and on those before it, never on later ones: so appending changes no earlier byte.
//!
//! An item is a message, or the results of its calls. Imported items that share their JSON are a unit: they go back together or
//! not at all. A piece is an encoding that is kept, of one item or of up to 256 iterations. The list of a request is made of
//! slices, each a part of a piece or of an imported text; cache marks cut it into the segments that are sent.

mod body;
mod bound;
mod cost;
pub mod fields;
pub mod fingerprint;
pub mod forecast;
mod item;
mod kept_options;
pub mod located;
mod marks;
mod pieces;
pub mod replay;
pub mod segment;
mod slice;

use crate::context::Context;
use crate::error::Error;
use crate::log::iteration::Iteration;
use crate::log::late::CallPlace;
use crate::log::served::SplitPairs;
use crate::provider::facts::Rule;
use crate::value::json::AsJson;
use crate::value::{Map, Value};
use crate::view::checking::Unbound;
use crate::view::pairs::Pairs;
use crate::view::rendering::Rendering;
use crate::view::View;

use crate::provider::options::{Known, Options};
use crate::request::body::Body;
use crate::request::fields::Fields;
use crate::request::item::items;
use crate::request::located::Located;
use crate::request::segment::Segment;
use crate::value::builder::Json;

impl Context {
    /// Returns the body of a request: the caller's fields and the message part, as one JSON object.
    ///
    /// # Errors
    /// [`Error::PendingToolCalls`]; [`Error::ReservedField`] when a field of the caller would
    /// overwrite the message part; [`Error::Invalid`] when a ready-made one is not JSON;
    /// [`Error::UnknownIteration`].
    ///
    /// # Complexity
    /// O(new bytes + messages)
    pub fn encode_request(
        &self,
        options: &Options<'_>,
        body: &Map,
    ) -> Result<Vec<Segment<'_>>, Error> {
        self.check_sendable(options)?;
        self.encode_with(options, &Fields::new(body)?)
    }

    /// The same with fields that were encoded before, as the fields of many requests are.
    ///
    /// # Errors
    /// As [`Context::encode_request`].
    ///
    /// # Complexity
    /// O(new bytes + messages)
    pub fn encode_with(
        &self,
        options: &Options<'_>,
        fields: &Fields,
    ) -> Result<Vec<Segment<'_>>, Error> {
        self.check_sendable(options)?;
        let facts = options.provider.facts();
        let mut head = Json::default();
        head.raw("{");
        // Tools that run in a container are refused without it. Its expiry is not checked: the provider restores a container for
        // weeks after the time that the answer names.
        let known = options.known.field(options.provider);
        let mut container = facts.container.zip(self.log.ids.container());
        for field in fields.iter() {
            let key = field.key();
            let is_known = known.as_ref().is_some_and(|(known, _)| *known == key);
            if key == facts.list || Some(key) == facts.system() || is_known {
                return Err(Error::ReservedField { key: key.into() });
            }
            let named = container.take_if(|(name, _)| *name == key);
            head.value(key);
            head.raw(":");
            match named.and_then(|(_, id)| field.with_id(id)) {
                Some(named) => head.value(&AsJson(&named)),
                None => head.0.extend_from_slice(field.json()),
            }
            head.raw(",");
        }
        let container = container.map(|(key, id)| (key, Value::text(id)));
        for (key, id) in known.into_iter().chain(container) {
            head.value(key);
            head.raw(":");
            head.value(&AsJson(&id));
            head.raw(",");
        }
        Body::new(self, options).finish(head)
    }

    /// Returns the changes that a provider's request needs, those of the system prompt first.
    ///
    /// # Errors
    /// As [`Context::encode_request`].
    ///
    /// # Complexity
    /// O(n)
    pub fn request_report(&self, options: &Options<'_>) -> Result<Vec<Located>, Error> {
        self.check_sendable(options)?;
        Body::new(self, options).report()
    }

    /// Returns whether the system prompt is shown as the first message of an iteration.
    fn leads(&self, iteration: &Iteration) -> bool {
        iteration.number == self.first_number() && self.system().is_some()
    }

    fn check_sendable(&self, options: &Options<'_>) -> Result<(), Error> {
        self.log.check_nothing_pending()?;
        self.check_from(options)
    }

    fn check_from(&self, options: &Options<'_>) -> Result<(), Error> {
        let known = self.first_number()..=self.current_iteration();
        match options.from.filter(|from| !known.contains(from)) {
            Some(from) => Err(self.log.unknown_number(from)),
            None => Ok(()),
        }
    }

    /// Returns the number of the first iteration that is sent.
    fn first_sent(&self, options: &Options<'_>) -> u64 {
        match (options.from, options.known) {
            (Some(from), _) => from,
            (None, Known::Nothing) => 0,
            // The provider knows the model's last message.
            (None, _) => {
                let mut back = self.log.iterations_back();
                let last = back.find(|iteration| iteration.has_assistant());
                last.map_or(0, |last| last.number)
            }
        }
    }

    /// Returns how many of an iteration's items the provider knows: in the first iteration that is sent, all up to the model's
    /// last message.
    fn known_items(iteration: &Iteration, first: u64, options: &Options<'_>) -> usize {
        if options.known == Known::Nothing || iteration.number != first {
            return 0;
        }
        let items: Vec<_> = items(iteration, Rendering::PLAIN, options).collect();
        let said = items.iter().rposition(|item| item.is_model());
        said.map_or(0, |last| last + 1)
    }

    /// Returns the looks of the iterations in a request.
    fn sent_looks(&self, options: &Options<'_>, unbound: Unbound) -> SentLooks<'_> {
        SentLooks {
            most: options.max_result_bytes.unwrap_or(usize::MAX),
            // There are hardly ever any, so they are looked up once for all iterations.
            split: self.log.split_pairs(),
            unbound,
            apart: self.find_apart(options),
            pairs: Pairs {
                log: &self.log,
                covers: self.view().map(|view| &view.covers),
                masks: self.view().and_then(View::masks),
                from: self.first_sent(options),
                knows_earlier: options.known != Known::Nothing,
                closes_uses: options.provider.facts().has(Rule::ClosesUses),
            },
        }
    }

    /// Returns the iterations with results that arrived late for calls which are not sent: no output can stand alone.
    fn find_apart(&self, options: &Options<'_>) -> Vec<u64> {
        if !options.provider.facts().has(Rule::LateOutputs) {
            return Vec::new();
        }
        let first = match options.known {
            Known::Nothing => self.first_sent(options),
            _ => 0,
        };
        let is_left_out = |of: CallPlace| {
            let iteration = self.log.get_numbered(of.iteration);
            let entry = iteration.and_then(|iteration| iteration.entry(of.message));
            entry.is_none_or(|entry| entry.message.is_left_out_by(options.provider))
        };
        let arrivals = self.log.placed_arrivals();
        let apart = arrivals
            .filter(|(of, _)| of.iteration < first || self.hides(of.iteration) || is_left_out(*of));
        apart.map(|(_, placed)| placed).collect()
    }
}

/// What decides the looks of iterations in a request beside the view.
struct SentLooks<'a> {
    most: usize,
    split: Option<&'a SplitPairs>,
    unbound: Unbound,
    apart: Vec<u64>,
    pairs: Pairs<'a>,
}

impl<'a> SentLooks<'a> {
    fn of(&self, iteration: &Iteration, rendering: Rendering<'a>) -> Rendering<'a> {
        let met = self.split.filter(|split| split.meet(iteration.number));
        Rendering {
            pairs: met.map(|_| self.pairs),
            unbound: self.unbound.of(iteration.number),
            apart: self.apart.contains(&iteration.number),
            ..rendering.at_most(self.most)
        }
    }
}
