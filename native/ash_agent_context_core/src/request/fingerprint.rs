//! Digests of sent requests, which show whether a request that is rebuilt from the log is the one that was sent.

use std::sync::Arc;

use crate::context::inputs::{is_one, Beginning};
use crate::context::sent::SentNote;
use crate::context::view_digest;
use crate::context::Context;
use crate::error::Error;
use crate::log::exchange::Exchange;
use crate::log::iteration::Iteration;
use crate::provider::options::{Known, Options};
use crate::provider::writer;
use crate::request::body::{Body, Reached};
use crate::request::item::{items, Item};
use crate::request::slice::{compare, Slice};
use crate::value::builder::Json;
use crate::value::digest::Digest;
use crate::value::Value;

/// The version of the code that renders messages, which is recorded with their digests.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The most iterations whose messages have digests of their own: the first request of an imported conversation may have many.
const ITERATIONS: u64 = 1_000;

/// The most results of a message that have digests of their own.
const RESULTS: usize = 32;

/// A message or a result of a request, with a digest of its own.
pub(super) struct SentItem {
    pub place: SentPlace,
    pub digest: Digest,
}

/// The place of a message or a result in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentPlace {
    /// The number of its iteration.
    pub iteration: u64,
    /// The position of the message in the iteration.
    pub position: usize,
    /// The id of the call, for a result.
    pub call: Option<Box<str>>,
}

impl Context {
    /// Notes the digest of the next request: of the system prompt and the messages, without cache marks; and the digests of the
    /// messages that the last request did not have.
    ///
    /// # Errors
    /// As [`Context::encode_request`].
    ///
    /// # Complexity
    /// O(new bytes + messages)
    pub fn note_sent(&self, options: &Options<'_>) -> Result<Self, Error> {
        self.log.check_nothing_pending()?;
        self.check_from(options)?;
        let number = self.next_number();
        // The messages come first: their encodings are put together then.
        let items = self.list_sent_items(number, options)?;
        let known = self.inputs.beginning.as_deref();
        // What is left out may depend on what comes later.
        let unbound = self.find_unbound(options)?;
        let is_whole = unbound.is_empty();
        let known = known.filter(|known| is_whole && self.begins_with(known, options));
        let mut body = Body::new(self, options);
        body.unbound = Some(unbound);
        let (whole, reached) = body.digest(known)?;
        let looks = known.map_or_else(
            || view_digest::digest(self.view()).into_boxed_str(),
            |known| known.looks.clone(),
        );
        let mut note = format!("{} {VERSION} {looks}", whole.to_text());
        for item in &items {
            note.push(' ');
            note.push_str(&item.digest.to_short_text());
        }
        let mut next = self.clone();
        next.inputs_mut().sent.note(number, Value::text(&note));
        let reached = reached.filter(|_| is_whole);
        let beginning = reached.and_then(|reached| self.beginning(reached, options, looks));
        next.inputs_mut().beginning = beginning.map(Arc::new);
        next.weigh_view();
        Ok(next)
    }

    /// Returns whether the next request begins with everything that the last noted one did.
    fn begins_with(&self, known: &Beginning, options: &Options<'_>) -> bool {
        let last = self.log.get_numbered(known.end.saturating_sub(1));
        let is_last = |last: &Iteration| Arc::ptr_eq(last.pieces(), &known.pieces);
        let next = self.log.get_numbered(known.end);
        let holds = |next: &Iteration| next.held_by().is_some();
        Some(known.options) == what_encodes(options)
            && is_one(known.system.as_ref(), self.log.system.as_ref())
            && is_one(known.view.as_ref(), self.view.as_ref())
            && known.end <= self.current_iteration()
            && last.is_some_and(is_last)
            && !next.is_some_and(holds)
            && self.log.split_pairs().is_none()
    }

    /// Returns the beginning of the noted request, for the next one.
    fn beginning(
        &self,
        (reached, digest): (Reached, Digest),
        options: &Options<'_>,
        looks: Box<str>,
    ) -> Option<Beginning> {
        let last = self.log.get_numbered(reached.number.checked_sub(1)?)?;
        Some(Beginning {
            options: what_encodes(options)?,
            view: self.view.clone(),
            looks,
            system: self.log.system.clone(),
            end: reached.number,
            pieces: last.pieces().clone(),
            model_last: reached.model_last,
            digest,
        })
    }

    /// Returns the digests of the messages and results that an iteration's request added to the one before it.
    ///
    /// # Errors
    /// [`Error::TooMuchWork`].
    pub(super) fn list_sent_items(
        &self,
        number: u64,
        options: &Options<'_>,
    ) -> Result<Vec<SentItem>, Error> {
        let since = self.inputs.sent.before(number);
        let first = since.unwrap_or(self.first_number());
        let first = first.max(number.saturating_sub(ITERATIONS));
        let most = options.max_result_bytes.unwrap_or(usize::MAX);
        let mut body = Body::new(self, options);
        let mut list = Vec::new();
        for iteration in self.log.between(first, number) {
            let rendering = self.rendering(iteration.number).at_most(most);
            let all: Vec<_> = items(iteration, rendering, options).collect();
            // An iteration that is encoded as a whole does not keep its messages' encodings.
            let key = body.key ^ rendering.key_of_iteration(iteration);
            let keeps = iteration.pieces().find(key).is_none();
            // The last request had everything before its answer.
            let answer = all.iter().rposition(|item| item.is_model());
            let known = answer.filter(|_| since == Some(iteration.number));
            let leads = usize::from(self.leads(iteration));
            for (item, position) in all.into_iter().zip(leads..).skip(known.unwrap_or(0)) {
                let place = (iteration.number, position);
                body.list_item(item, place, keeps, &mut list)?;
            }
        }
        Ok(list)
    }

    /// Returns the digest that was noted for an iteration's last request.
    #[must_use]
    pub fn sent_note(&self, iteration: &Iteration) -> Option<&str> {
        let note = SentNote::read(self.inputs.sent.at(iteration.number)?)?;
        Some(note.whole)
    }

    /// Returns whether the last request of an iteration surely began with all of another one's: both can be rebuilt, with the
    /// digests of what was sent.
    pub(crate) fn surely_continues(&self, before: &Iteration, next: &Iteration) -> bool {
        let pair = self.as_sent(before).zip(self.as_sent(next));
        pair.is_some_and(|(before, next)| {
            let both = [&before, &next].map(|(context, options)| lay_out(context, options));
            let [Some(before), Some(next)] = both else {
                return false;
            };
            let (same, _) = compare(&before, &next);
            is_all(before.iter().map(Slice::len).sum(), same)
        })
    }

    /// Returns the conversation from which the last request of an iteration was made, if rebuilding it gives what was sent.
    fn as_sent<'a>(&'a self, iteration: &'a Iteration) -> Option<(Self, Options<'a>)> {
        let note = SentNote::read(self.inputs.sent.at(iteration.number)?)?;
        let (context, options) = self.make_again(iteration)?;
        let found = context.find_sent(&options, &note)?;
        Some((context, found))
    }

    /// Returns the conversation and the options of an iteration's last request, as far as they are known.
    pub(super) fn make_again<'a>(
        &'a self,
        iteration: &'a Iteration,
    ) -> Option<(Self, Options<'a>)> {
        self.as_asked(iteration, false)
            .zip(self.noted_options(iteration))
    }

    /// Returns the options with which the request is the one that was sent. A part that may have a mark is encoded differently,
    /// and a note made by hand may not mention marks.
    pub(super) fn find_sent<'o>(
        &self,
        options: &Options<'o>,
        note: &SentNote<'_>,
    ) -> Option<Options<'o>> {
        [options.cache, !options.cache]
            .into_iter()
            .find_map(|cache| {
                let options = Options {
                    cache,
                    ..options.clone()
                };
                let whole = digest(Digest::EMPTY, &lay_out(self, &options)?).to_text();
                (note.whole == whole).then_some(options)
            })
    }
}

impl<'a> Body<'a, '_> {
    /// Returns the digest of the request without its marks, and its state before the current iteration. The digest of its
    /// beginning may be known.
    fn digest(
        mut self,
        known: Option<&Beginning>,
    ) -> Result<(Digest, Option<(Reached, Digest)>), Error> {
        if let Some(known) = known {
            (self.behind, self.model_last) = (Some(known.end), known.model_last);
        }
        self.fill(&mut Json::default())?;
        let close = Digest::of(writer::CLOSE.as_bytes());
        let start = known.map_or(Digest::EMPTY, |known| known.digest);
        let system = self.system.iter().map(|(_, slice)| slice.digest());
        let start = system.fold(start, Digest::then);
        let goes_on = match self.goes_on {
            true => start.without_end(close),
            false => start,
        };
        let reached = self.reached.map(|reached| {
            let slices = self.slices.get(..reached.slices).unwrap_or_default();
            let digest = match slices.last() {
                None => start,
                // Its last element continues after it.
                Some(last) if last.end < reached.end => digest(goes_on, slices).then(close),
                Some(_) => digest(goes_on, slices),
            };
            (reached, digest)
        });
        Ok((digest(goes_on, &self.slices), reached))
    }

    /// Adds the digests of an item: one for each result, unless there are many.
    fn list_item(
        &mut self,
        item: Item<'a>,
        (iteration, position): (u64, usize),
        keeps: bool,
        items: &mut Vec<SentItem>,
    ) -> Result<(), Error> {
        let mut add = |call: Option<&Box<str>>, digest| {
            let place = SentPlace {
                iteration,
                position,
                call: call.cloned(),
            };
            items.push(SentItem { place, digest });
        };
        if let Some(imported) = item.imported_elements(self.options) {
            add(None, Digest::of(imported.as_bytes()));
            return Ok(());
        }
        self.step()?;
        let calls = &item.message.calls;
        let few = |exchange: &&Exchange| exchange.count_filled() <= RESULTS;
        let results = item.results.filter(few);
        let Some(exchange) = results.filter(|_| calls.len() > 1) else {
            let call = results.and_then(|_| calls.first());
            let piece = self.piece(item, keeps)?;
            add(call.map(|call| &call.id), piece.digest());
            return Ok(());
        };
        self.spend(item.size())?;
        for (slot, outcome) in exchange.outcomes().enumerate() {
            let (Some(outcome), Some(call)) = (outcome, calls.get(slot)) else {
                continue;
            };
            let mut alone = Exchange::new(calls.len());
            alone.decisions.clone_from(&exchange.decisions);
            alone.fill(slot, outcome.clone());
            let alone = item.results(&alone);
            add(Some(&call.id), alone.encode(self.options).digest());
        }
        Ok(())
    }
}

/// How messages and results first differ from those that were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentChange {
    /// One is another one.
    Other,
    /// One that was sent is gone.
    Dropped,
    /// One was not sent.
    Added,
}

/// Returns where messages and results first differ from those that were sent, by their number, and how.
pub(super) fn find_differing(items: &[SentItem], sent: &[&str]) -> Option<(usize, SentChange)> {
    let digests: Vec<String> = items
        .iter()
        .map(|item| item.digest.to_short_text())
        .collect();
    let is = |at: usize, noted: usize| {
        let pair = digests.get(at).zip(sent.get(noted));
        pair.is_some_and(|(is, was)| is == was)
    };
    let at = (0..items.len().max(sent.len())).find(|at| !is(*at, *at))?;
    let change = match (items.get(at), sent.get(at)) {
        (None, _) => SentChange::Dropped,
        (_, None) => SentChange::Added,
        _ if is(at, at + 1) => SentChange::Dropped,
        _ if is(at + 1, at) => SentChange::Added,
        _ => SentChange::Other,
    };
    Some((at, change))
}

fn lay_out<'a>(context: &'a Context, options: &Options<'_>) -> Option<Vec<Slice<'a>>> {
    let (slices, _) = Body::new(context, options).lay_out().ok()?;
    Some(slices)
}

/// Returns whether `same` bytes are all of a request but the end of its last element, which continues.
pub(super) const fn is_all(bytes: u64, same: u64) -> bool {
    bytes.saturating_sub(same) <= writer::CLOSE.len() as u64
}

/// Returns the digest of slices after bytes with the digest `start`.
fn digest(start: Digest, slices: &[Slice<'_>]) -> Digest {
    slices.iter().map(Slice::digest).fold(start, Digest::then)
}

/// Returns the options that decide which messages are encoded, and how; `None` if the provider knows some of the messages.
fn what_encodes(options: &Options<'_>) -> Option<(u64, Option<u64>, Option<usize>)> {
    let is_all = options.known == Known::Nothing;
    is_all.then(|| (options.key(), options.from, options.max_result_bytes))
}
