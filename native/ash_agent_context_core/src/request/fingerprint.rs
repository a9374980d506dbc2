//! The digest of what was sent: whether a request that is made again from the log is the one that the provider got.

use crate::context::looks;
use crate::context::Context;
use crate::error::Error;
use crate::log::exchange::Exchange;
use crate::log::iteration::Iteration;
use crate::provider;
use crate::provider::options::Options;
use crate::request::body::Body;
use crate::request::forecast::compare;
use crate::request::item::{items, Item};
use crate::request::slice::Slice;
use crate::value::digest::Digest;
use crate::value::Value;

/// The code that renders messages; its version is recorded with their digests.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Iterations whose messages are digested one by one, at most: the first request of an imported conversation may have many.
const ITERATIONS: u64 = 1_000;

/// Results of a message that are digested one by one, at most.
const RESULTS: usize = 32;

/// The record of a request that was sent.
pub(super) struct SentNote<'a> {
    /// The digest of all of it.
    pub whole: &'a str,
    /// The version that made it.
    pub version: Option<&'a str>,
    /// The digest of its view.
    pub view: Option<&'a str>,
    /// Those of each message and result that the request before it had not.
    pub pieces: Vec<&'a str>,
}

impl<'a> SentNote<'a> {
    pub fn read(note: &'a Value) -> Option<Self> {
        let mut words = note.as_str()?.split(' ');
        Some(Self {
            whole: words.next()?,
            version: words.next(),
            view: words.next(),
            pieces: words.collect(),
        })
    }
}

/// Something of a request with a digest of its own.
pub(super) struct SentPiece {
    /// The number of its iteration.
    pub iteration: u64,
    /// Where its message stands there.
    pub position: usize,
    /// The call whose result it is.
    pub call: Option<Box<str>>,
    pub digest: Digest,
}

impl Context {
    /// Notes the digest of the next request: of the system prompt and the messages, without marks for the cache; and those of what
    /// the last one had not.
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
        let room = provider::room(options.provider);
        let (slices, _) = Body::new(self, room, options).lay_out()?;
        let mut note = [
            digest(&slices).to_text(),
            VERSION.to_owned(),
            looks::digest(self.view()),
        ]
        .join(" ");
        for piece in self.list_pieces(number, options)? {
            note.push(' ');
            note.push_str(&piece.digest.to_short_text());
        }
        let mut next = self.clone();
        next.asked.note_sent(number, &note);
        next.weigh_view();
        Ok(next)
    }

    /// The digests of the messages and results that an iteration's request added to the last request before it.
    ///
    /// # Errors
    /// [`Error::TooMuchWork`].
    pub(super) fn list_pieces(
        &self,
        number: u64,
        options: &Options<'_>,
    ) -> Result<Vec<SentPiece>, Error> {
        let since = self.asked.sent_before(number);
        let first = since.unwrap_or(self.first_number());
        let first = first.max(number.saturating_sub(ITERATIONS));
        let most = options.max_result_bytes.unwrap_or(usize::MAX);
        let mut body = Body::new(self, provider::room(options.provider), options);
        let mut pieces = Vec::new();
        let numbers = first..=number.min(self.current_iteration());
        for iteration in numbers.filter_map(|number| self.log.get_numbered(number)) {
            let rendering = self.rendering(iteration.number).at_most(most);
            let all: Vec<_> = items(iteration, rendering, options).collect();
            // Everything before the answer to the last request was part of that request.
            let answer = all.iter().rposition(|item| item.is_model());
            let known = answer.filter(|_| since == Some(iteration.number));
            let leads = usize::from(self.leads(iteration));
            for (item, position) in all.into_iter().zip(leads..).skip(known.unwrap_or(0)) {
                body.list_item(item, (iteration.number, position), &mut pieces)?;
            }
        }
        Ok(pieces)
    }

    /// The digest that was noted of all that an iteration's last request sent.
    #[must_use]
    pub fn sent_note(&self, iteration: &Iteration) -> Option<&str> {
        let note = SentNote::read(self.asked.sent_at(iteration.number)?)?;
        Some(note.whole)
    }

    /// Returns whether the last request of an iteration surely began with all of that of another one: both can be made again, and
    /// are what was sent.
    pub(super) fn surely_continues(&self, before: &Iteration, next: &Iteration) -> bool {
        let pair = self.as_sent(before).zip(self.as_sent(next));
        pair.is_some_and(|(before, next)| {
            let both = [&before, &next].map(|(context, options)| lay_out(context, options));
            let [Some(before), Some(next)] = both else {
                return false;
            };
            let (same, _) = compare(&before, &next);
            is_all(&before, same)
        })
    }

    /// The conversation as the last request of an iteration was made from it, if it is known to be that.
    fn as_sent<'a>(&'a self, iteration: &'a Iteration) -> Option<(Self, Options<'a>)> {
        let sent = self.asked.sent_at(iteration.number)?;
        let context = self.as_asked(iteration)?;
        let options = self.noted_options(iteration)?;
        // Parts that may have marks look different, and who notes by hand may not say that there were any.
        let found = [options.cache, !options.cache]
            .into_iter()
            .find_map(|cache| {
                let options = Options {
                    cache,
                    ..options.clone()
                };
                let slices = lay_out(&context, &options)?;
                let whole = digest(&slices).to_text();
                SentNote::read(sent)
                    .is_some_and(|note| note.whole == whole)
                    .then_some(options)
            });
        let options = found?;
        Some((context, options))
    }
}

impl<'a> Body<'a, '_> {
    /// Adds the digests of an item: of each result, unless there are many.
    fn list_item(
        &mut self,
        item: Item<'a>,
        (iteration, position): (u64, usize),
        pieces: &mut Vec<SentPiece>,
    ) -> Result<(), Error> {
        let mut add = |call: Option<&Box<str>>, digest| {
            pieces.push(SentPiece {
                iteration,
                position,
                call: call.cloned(),
                digest,
            });
        };
        if let Some(imported) = item.imported_elements(self.options) {
            add(None, Digest::of(imported.as_bytes()));
            return Ok(());
        }
        self.step()?;
        let is_results = matches!(item, Item::Results(..));
        if let Some(kept) = item.pieces().find(self.key ^ item.rendering()) {
            if !is_results {
                add(None, kept.piece.digest());
                return Ok(());
            }
        }
        self.spend(item.size())?;
        let Item::Results(message, exchange, rendering) = item else {
            add(None, item.encode(self.format, self.options).digest());
            return Ok(());
        };
        if exchange.count_filled() > RESULTS {
            add(None, item.encode(self.format, self.options).digest());
            return Ok(());
        }
        for (slot, outcome) in exchange.outcomes().enumerate() {
            let (Some(outcome), Some(call)) = (outcome, message.calls.get(slot)) else {
                continue;
            };
            let mut alone = Exchange::new(message.calls.len());
            alone.copy_decisions(exchange);
            alone.fill_shared(slot, outcome.clone());
            let alone = Item::Results(message, &alone, rendering);
            add(
                Some(&call.id),
                alone.encode(self.format, self.options).digest(),
            );
        }
        Ok(())
    }
}

pub(super) fn lay_out<'a>(context: &'a Context, options: &Options<'_>) -> Option<Vec<Slice<'a>>> {
    let room = provider::room(options.provider);
    let (slices, _) = Body::new(context, room, options).lay_out().ok()?;
    Some(slices)
}

/// Returns whether so many bytes are all of a request but its end, which goes on.
pub(super) fn is_all(slices: &[Slice<'_>], same: u64) -> bool {
    let all: u64 = slices.iter().map(Slice::len).sum();
    all.saturating_sub(same) <= provider::writer::CLOSE.len() as u64
}

pub(super) fn digest(slices: &[Slice<'_>]) -> Digest {
    let digests = slices.iter().map(Slice::digest);
    digests.fold(Digest::EMPTY, Digest::then)
}
