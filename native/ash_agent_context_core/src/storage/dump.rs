//! Writing the document of a conversation, or of a part of it.

use crate::context::Context;
use crate::error::Error;
use crate::log::exchange::Entry;
use crate::log::iteration::Iteration;
use crate::log::message::Message;
use crate::storage::late::LateHead;
use crate::storage::limits::{LATE_VERSION, VERSION};
use crate::storage::table::*;
use crate::storage::tables::REQUEST;
use crate::storage::tagged;
use crate::storage::view;
use crate::storage::write::message;
use crate::value::builder::{Json, JsonObject};
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
                Ok(self.write(Some(Since { number, shared: 0 }), size))
            }
            _ => Err(self.log.unknown_iteration(since)),
        }
    }

    /// Writes the rest of the conversation after the beginning that it shares with another one, as JSON text for
    /// [`Context::load_delta`] onto that one; all of it when they share nothing.
    #[must_use]
    pub fn delta_beside(&self, base: &Self) -> Vec<u8> {
        if self.id() != base.id() || self.first_number() != base.first_number() {
            return self.to_snapshot();
        }
        // The first iteration that differs, or the current one.
        let number = match self.last_common(base) {
            Some(common) => common.saturating_add(1).min(self.current_iteration()),
            None => self.first_number(),
        };
        let entries = |context: &'_ Self| {
            let iteration = context.log.get_numbered(number).into_iter();
            iteration
                .flat_map(Iteration::entries)
                .cloned()
                .collect::<Vec<_>>()
        };
        let (own, other) = (entries(self), entries(base));
        let both = own.iter().zip(&other);
        let shared = both.take_while(|(own, other)| own == other).count();
        let size = self.delta_size(i64::try_from(number).unwrap_or(i64::MAX));
        self.write(Some(Since { number, shared }), size)
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
        self.iterations_from(u64::try_from(since).unwrap_or_default())
            .fold(head, |sum, iteration| {
                let view = self.inputs.at(iteration.number).flatten();
                let view = view.map_or(Size::default(), View::noted_size);
                let noted = self.inputs.request_at(iteration.number);
                let noted = noted.into_iter().flatten().map(Value::size);
                noted.fold(sum.plus(iteration.size()).plus(view), Size::plus)
            })
    }

    fn iterations_from(&self, number: u64) -> impl Iterator<Item = &Iteration> {
        let numbers = number.max(self.first_number())..=self.current_iteration();
        numbers.filter_map(|number| self.log.get_numbered(number))
    }

    fn write(&self, since: Option<Since>, size: Size) -> Vec<u8> {
        let mut json = json_of(size);
        json.object(|json| {
            json.key("version").value(self.version());
            tagged::text(json.key("id"), self.id().as_bytes());
            if let Some(since) = since {
                json.key("since").value(&since.number);
                if since.shared > 0 {
                    json.key("shared").value(&since.shared);
                }
            }
            When::write(&self.created_at(), "created_at", json);
            When::write(&self.updated_at(), "updated_at", json);
            self.write_beside(json);
            let (number, shared) = since.map_or((0, 0), |since| (since.number, since.shared));
            let shared = std::iter::once(shared).chain(std::iter::repeat(0));
            let iterations = self.iterations_from(number).zip(shared);
            json.key("iterations")
                .list(iterations, |json, (one, shared)| {
                    self.iteration_document(json, one, shared);
                });
            unknown(json, self.extra());
        });
        json.into_bytes()
    }

    /// Writes the conversation without its iterations, its id and its times.
    fn write_beside(&self, json: &mut JsonObject<'_>) {
        tagged::entries(json.key("metadata"), self.metadata());
        if let Some(origin) = self.origin() {
            Of::write(origin, "origin", json);
        }
        if let Some(system) = self.system() {
            message(json.key("system"), system, None);
        }
        if let Some(view) = self.view() {
            view::write(json, view);
        }
        let today = self.view().and_then(View::masks);
        let asked = self.inputs.asked_masks();
        if let Some(asked) = asked.filter(|asked| today != Some(asked)) {
            view::write_masks(json, "asked_masks", asked);
        }
        LateHead::write(&self.log, json);
    }

    /// Returns the version of its form.
    const fn version(&self) -> &'static i64 {
        match self.log.held_waiting() {
            true => &LATE_VERSION,
            false => &VERSION,
        }
    }

    /// Returns one iteration as it is in a document.
    pub(crate) fn iteration_text(&self, of: &Iteration) -> Vec<u8> {
        let mut json = json_of(of.size());
        self.iteration_document(&mut json, of, 0);
        json.into_bytes()
    }

    fn iteration_document(&self, json: &mut Json, iteration: &Iteration, shared: usize) {
        json.object(|json| {
            json.key("number").value(&iteration.number);
            When::write(&iteration.started_at, "started_at", json);
            match iteration.completed_at {
                Some(at) => When::write(&at, "completed_at", json),
                None => json.key("completed_at").value(&()),
            }
            tagged::entries(json.key("metadata"), &iteration.metadata);
            if iteration.failures.iter().len() > 0 {
                json.key("failures")
                    .list(iteration.failures.iter(), |json, failure| {
                        failure.write(json)
                    });
            }
            if let Some(view) = self.inputs.at(iteration.number) {
                view::write_asked(json, view);
            }
            let noted = self.inputs.request_at(iteration.number);
            for (key, value) in REQUEST.into_iter().zip(noted) {
                if let Some(value) = value {
                    tagged::value(json.key(key), value);
                }
            }
            json.key("messages")
                .list(iteration.entries().skip(shared), |json, entry: &Entry| {
                    message(json, &entry.message, Some(entry));
                });
            unknown(json, iteration.extra.as_ref());
        });
    }

    /// Returns the document without its iterations and the time of the last change, which is the only field of it that each
    /// operation changes.
    pub(crate) fn head(&self) -> Vec<u8> {
        let mut json = Json::with_capacity(256);
        json.object(|json| {
            json.key("version").value(self.version());
            tagged::text(json.key("id"), self.id().as_bytes());
            When::write(&self.created_at(), "created_at", json);
            self.write_beside(json);
            unknown(json, self.extra());
        });
        json.into_bytes()
    }
}

/// Starts a text for so much: mostly text, with some 20 bytes a term for keys and punctuation.
fn json_of(size: Size) -> Json {
    Json::with_capacity(size.bytes.saturating_add(size.terms.saturating_mul(20)))
}
