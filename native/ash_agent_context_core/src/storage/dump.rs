//! Writing the document of a conversation, or of a part of it.

use crate::context::Context;
use crate::error::Error;
use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::log::message::Message;
use crate::storage::keys;
use crate::storage::limits::VERSION;
use crate::storage::table::*;
use crate::storage::tagged::{self};
use crate::storage::view;
use crate::storage::write::message;
use crate::value::builder::{Json, JsonObject};
use crate::value::time;
use crate::value::{Size, Value};
use crate::view::View;

/// [`Context::delta_size`] counts up to so many iterations; beyond that it takes the whole conversation's size.
const FEW: u64 = 256;

/// The place where a delta begins.
#[derive(Debug, Clone, Copy)]
struct Since {
    /// The number of the first iteration.
    number: u64,
    /// The number of its first messages that the other conversation has as well.
    shared: usize,
}

impl Context {
    /// Writes the whole conversation as JSON text.
    #[must_use]
    pub fn to_snapshot(&self) -> Vec<u8> {
        self.write(None, self.size())
    }

    /// Writes the iterations from this number on as JSON text for [`Context::load_delta`].
    ///
    /// # Errors
    /// [`Error::UnknownIteration`] beyond the current iteration.
    ///
    /// # Complexity
    /// O(size of the text).
    pub fn delta(&self, since: i64) -> Result<Vec<u8>, Error> {
        let size = self.delta_size(since);
        match u64::try_from(since) {
            Ok(number @ 1..) if number <= self.current_iteration() => {
                let since = Since { number, shared: 0 };
                Ok(self.write(Some(since), size))
            }
            _ => Err(self.log.unknown_iteration(since)),
        }
    }

    /// Writes the rest of the conversation after the beginning that it shares with another one, as JSON text for
    /// [`Context::load_delta`] onto that one; all of it when they share nothing.
    #[must_use]
    pub fn delta_beside(&self, base: &Self) -> Vec<u8> {
        let Some(since) = self.fork_from(base) else {
            return self.to_snapshot();
        };
        let entries = |context: &Self| {
            let iteration = context.log.get_numbered(since.number);
            iteration.map(|iteration| iteration.entries().cloned().collect::<Vec<_>>())
        };
        let (own, other) = (entries(self), entries(base));
        let both = own.iter().flatten().zip(other.iter().flatten());
        let shared = both.take_while(|(own, other)| own == other).count();
        let number = i64::try_from(since.number).unwrap_or(i64::MAX);
        self.write(Some(Since { shared, ..since }), self.delta_size(number))
    }

    /// Returns the first iteration that differs in another conversation, or the current one.
    fn fork_from(&self, base: &Self) -> Option<Since> {
        if self.id() != base.id() || self.first_number() != base.first_number() {
            return None;
        }
        let number = match self.last_common(base) {
            Some(common) => common.saturating_add(1).min(self.current_iteration()),
            None => self.first_number(),
        };
        Some(Since { number, shared: 0 })
    }

    /// Returns the size of the text that [`Context::delta`] writes.
    #[must_use]
    pub fn delta_size(&self, since: i64) -> Size {
        let before = u64::try_from(since).map_or(0, |since| since.saturating_sub(1));
        if before < self.first_number() || self.current_iteration().saturating_sub(before) > FEW {
            return self.size();
        }
        let head = self.system().map_or(Size::new(10, 0), Message::size);
        let view = self.view().map_or(Size::default(), view::size);
        let head = head.plus(self.metadata().size()).plus(view);
        self.newest(u64::try_from(since).unwrap_or_default())
            .fold(head, |sum, iteration| {
                let view = self.asked.at(iteration.number).flatten();
                let view = view.map_or(Size::default(), View::noted_size);
                let noted = self.asked.request_at(iteration.number);
                let noted = noted.into_iter().flatten().map(Value::size);
                noted.fold(sum.plus(iteration.size()).plus(view), Size::plus)
            })
    }

    /// Returns the iterations from a number on, newest first.
    fn newest(&self, since: u64) -> impl Iterator<Item = &Iteration> {
        let numbers = (since.max(self.first_number())..=self.current_iteration()).rev();
        numbers.filter_map(|number| self.iteration(i64::try_from(number).ok()?))
    }

    fn write(&self, since: Option<Since>, size: Size) -> Vec<u8> {
        // Mostly text; keys and punctuation take some 20 bytes a term.
        let expected = size.bytes.saturating_add(size.terms.saturating_mul(20));
        let mut json = Json::with_capacity(expected);
        self.document(since, &mut json);
        json.into_bytes()
    }

    fn document(&self, since: Option<Since>, json: &mut Json) {
        json.object(|json| {
            json.key(keys::VERSION).value(&VERSION);
            tagged::text(json.key(keys::ID), self.id().as_bytes());
            if let Some(since) = since {
                json.key(keys::SINCE).value(&since.number);
                if since.shared > 0 {
                    json.key(keys::SHARED).value(&since.shared);
                }
            }
            json.key(keys::CREATED_AT)
                .text(&time::to_text(self.created_at()));
            json.key(keys::UPDATED_AT)
                .text(&time::to_text(self.updated_at()));
            self.write_beside(json);
            let iterations = json.key(keys::ITERATIONS);
            match since {
                Some(since) if since.number > self.first_number() || since.shared > 0 => {
                    let mut newest: Vec<_> = self.newest(since.number).collect();
                    newest.reverse();
                    let shared = std::iter::once(since.shared).chain(std::iter::repeat(0));
                    iterations.list(newest.into_iter().zip(shared), |json, (one, shared)| {
                        self.iteration_document(json, one, shared);
                    });
                }
                _ => iterations.list(self.iterations(), |json, one| {
                    self.iteration_document(json, one, 0);
                }),
            }
            unknown(json, self.extra());
        });
    }

    /// Writes the conversation without its iterations, its id and its times.
    fn write_beside(&self, json: &mut JsonObject<'_>) {
        tagged::entries(json.key(keys::METADATA), self.metadata());
        if let Some(origin) = self.origin() {
            Of::write(origin, keys::ORIGIN, json);
        }
        if let Some(system) = self.system() {
            message(json.key(keys::SYSTEM), system, None);
        }
        if let Some(view) = self.view() {
            view::write(json, view);
        }
    }

    /// Returns one iteration as it is in a document.
    pub(crate) fn iteration_text(&self, of: &Iteration) -> Vec<u8> {
        let size = of.size();
        let expected = size.bytes.saturating_add(size.terms.saturating_mul(20));
        let mut json = Json::with_capacity(expected);
        self.iteration_document(&mut json, of, 0);
        json.into_bytes()
    }

    fn iteration_document(&self, json: &mut Json, iteration: &Iteration, shared: usize) {
        json.object(|json| {
            json.key(keys::NUMBER).value(&iteration.number);
            json.key(keys::STARTED_AT)
                .text(&time::to_text(iteration.started_at));
            match iteration.completed_at {
                Some(at) => json.key(keys::COMPLETED_AT).text(&time::to_text(at)),
                None => json.key(keys::COMPLETED_AT).value(&()),
            }
            tagged::entries(json.key(keys::METADATA), &iteration.metadata);
            if iteration.failures.iter().len() > 0 {
                json.key(keys::FAILURES)
                    .list(iteration.failures.iter(), |json, failure| {
                        failure.write(json)
                    });
            }
            if let Some(view) = self.asked.at(iteration.number) {
                view::write_asked(json, view);
            }
            let noted = self.asked.request_at(iteration.number);
            for (key, value) in keys::REQUEST.into_iter().zip(noted) {
                if let Some(value) = value {
                    tagged::value(json.key(key), value);
                }
            }
            json.key(keys::MESSAGES).list(
                iteration.entries().skip(shared),
                |json, entry: &Entry| {
                    message(json, &entry.message, Some(entry));
                },
            );
            unknown(json, iteration.extra.as_ref());
        });
    }

    /// Returns the document without its iterations and the time of the last change, which is the only field of it that each
    /// operation changes.
    pub(crate) fn head(&self) -> Vec<u8> {
        let mut json = Json::with_capacity(256);
        json.object(|json| {
            json.key(keys::VERSION).value(&VERSION);
            tagged::text(json.key(keys::ID), self.id().as_bytes());
            json.key(keys::CREATED_AT)
                .text(&time::to_text(self.created_at()));
            self.write_beside(json);
            unknown(json, self.extra());
        });
        json.into_bytes()
    }
}
