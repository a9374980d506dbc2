//! Writing: straight from the conversation to JSON text, without a tree in between.

use crate::context::Context;
use crate::error::Error;
use crate::log::call::{Name, ToolCall};
use crate::log::iteration::{Entry, Exchange, Iteration};
use crate::log::message::{Message, Output};
use crate::log::part::{Content, Part, PartKind, Source};
use crate::log::usage::Usage;
use crate::log::wire::Wire;
use crate::storage::tag::{self, Key};
use crate::storage::text::Json;
use crate::storage::{keys, view, VERSION};
use crate::value::json::AsJson;
use crate::value::time;
use crate::value::{Map, Size};

/// Iterations that [`Context::delta_size`] counts; of more it takes the whole conversation's size.
const FEW: u64 = 256;

/// Where a delta begins.
#[derive(Debug, Clone, Copy)]
struct Since {
    /// The number of the first iteration.
    number: u64,
    /// How many of its messages, from the first, the other conversation has.
    shared: usize,
}

impl Context {
    /// The whole conversation as JSON text.
    #[must_use]
    pub fn to_snapshot(&self) -> Vec<u8> {
        self.write(None, self.size())
    }

    /// JSON text with the iterations from this number on, for [`Context::load_delta`].
    ///
    /// # Errors
    /// [`Error::UnknownIteration`] beyond the current iteration.
    ///
    /// # Complexity
    /// O(size of what is written).
    pub fn delta(&self, since: i64) -> Result<Vec<u8>, Error> {
        let size = self.delta_size(since);
        match u64::try_from(since) {
            Ok(number @ 1..) if number <= self.current_iteration() => {
                let since = Since { number, shared: 0 };
                Ok(self.write(Some(since), size))
            }
            _ => Err(self.unknown_iteration(since)),
        }
    }

    /// JSON text with what the conversation has beyond another one that began as the same, for
    /// [`Context::load_delta`] onto that one; all of it when they share nothing.
    #[must_use]
    pub fn delta_beside(&self, base: &Self) -> Vec<u8> {
        let Some(since) = self.fork_from(base) else {
            return self.to_snapshot();
        };
        let entries = |context: &Self| {
            let iteration = context.numbered(since.number);
            iteration.map(|iteration| iteration.entries().cloned().collect::<Vec<_>>())
        };
        let (own, other) = (entries(self), entries(base));
        let both = own.iter().flatten().zip(other.iter().flatten());
        let shared = both.take_while(|(own, other)| own == other).count();
        let number = i64::try_from(since.number).unwrap_or(i64::MAX);
        self.write(Some(Since { shared, ..since }), self.delta_size(number))
    }

    /// The first iteration that is not the same in another conversation, or the current one.
    fn fork_from(&self, base: &Self) -> Option<Since> {
        if self.id != base.id || self.first_number() != base.first_number() {
            return None;
        }
        let number = match self.last_common(base) {
            Some(common) => common.saturating_add(1).min(self.current_iteration()),
            None => self.first_number(),
        };
        Some(Since { number, shared: 0 })
    }

    /// How much [`Context::delta`] writes.
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
            .fold(head, |sum, iteration| sum.plus(iteration.size()))
    }

    /// The iterations from a number on, newest first.
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
            tag::text(json.key(keys::ID), self.id.as_bytes());
            if let Some(since) = since {
                json.key(keys::SINCE).value(&since.number);
                if since.shared > 0 {
                    json.key(keys::SHARED).value(&since.shared);
                }
            }
            json.key(keys::CREATED_AT)
                .string(&time::to_text(self.created_at));
            json.key(keys::UPDATED_AT)
                .string(&time::to_text(self.updated_at));
            tag::entries(json.key(keys::METADATA), &self.metadata);
            if let Some(system) = self.system() {
                message(json.key(keys::SYSTEM), system, None);
            }
            if let Some(view) = self.view() {
                view::write(json, view);
            }
            let iterations = json.key(keys::ITERATIONS);
            match since {
                Some(since) if since.number > self.first_number() || since.shared > 0 => {
                    let mut newest: Vec<_> = self.newest(since.number).collect();
                    newest.reverse();
                    let shared = std::iter::once(since.shared).chain(std::iter::repeat(0));
                    iterations.list(newest.into_iter().zip(shared), iteration);
                }
                _ => iterations.list(self.iterations().zip(std::iter::repeat(0)), iteration),
            }
            unknown(json, self.extra.as_deref());
        });
    }
}

/// Fields that this version does not know, as they came.
fn unknown(json: &mut Json, fields: Option<&Map>) {
    for (key, value) in fields.into_iter().flat_map(Map::iter) {
        if let Some(key) = key.as_str() {
            json.key(key).value(&AsJson(value));
        }
    }
}

fn iteration(json: &mut Json, (iteration, shared): (&Iteration, usize)) {
    json.object(|json| {
        json.key(keys::NUMBER).value(&iteration.number);
        json.key(keys::STARTED_AT)
            .string(&time::to_text(iteration.started_at));
        match iteration.completed_at {
            Some(at) => json.key(keys::COMPLETED_AT).string(&time::to_text(at)),
            None => json.key(keys::COMPLETED_AT).value(&()),
        }
        tag::entries(json.key(keys::METADATA), &iteration.metadata);
        json.key(keys::MESSAGES)
            .list(iteration.entries().skip(shared), |json, entry: &Entry| {
                message(json, &entry.message, Some(entry));
            });
        unknown(json, iteration.extra.as_ref());
    });
}

pub(crate) fn message(json: &mut Json, message: &Message, entry: Option<&Entry>) {
    json.object(|json| {
        json.key(keys::ROLE).string(message.role.name());
        let content = json.key(keys::CONTENT);
        match &message.content {
            Content::None => content.value(&()),
            Content::Text(text) => tag::text(content, text),
            Content::Parts(items) => parts(content, items),
        }
        map(json, keys::METADATA, message.metadata.as_ref());
        if let Some(exchange) = entry.and_then(|entry| entry.exchange.as_deref()) {
            let calls = message.calls.iter().enumerate();
            json.key(keys::TOOL_CALLS)
                .list(calls, |json, (slot, one)| call(json, one, exchange, slot));
            map(json, keys::RESULTS_METADATA, exchange.metadata.as_ref());
            verbatim(json, keys::RESULTS_WIRE, exchange.wire.as_ref());
        }
        if let Some(reported) = entry.and_then(|entry| entry.usage.as_deref()) {
            json.key(keys::USAGE).object(|json| {
                usage(json.key(keys::SUM), reported.sum);
                usage(json.key(keys::LAST_REPORT), reported.last);
                json.key(keys::ESTIMATE).value(&reported.estimate);
            });
        }
        verbatim(json, keys::WIRE, message.wire.as_ref());
        unknown(json, message.extra.as_ref());
    });
}

fn usage(json: &mut Json, usage: Usage) {
    json.object(|json| {
        json.key(keys::INPUT_TOKENS).value(&usage.input);
        json.key(keys::OUTPUT_TOKENS).value(&usage.output);
        json.key(keys::TOTAL_TOKENS).value(&usage.total);
        json.key(keys::CACHED_TOKENS).value(&usage.cached);
        json.key(keys::REASONING_TOKENS).value(&usage.reasoning);
    });
}

/// A map of values that may be absent.
fn map(json: &mut Json, key: &str, map: Option<&Map>) {
    if let Some(map) = map {
        tag::entries(json.key(key), map);
    }
}

/// Text that may be absent.
pub(crate) fn text(json: &mut Json, key: &str, text: Option<&str>) {
    if let Some(text) = text {
        tag::text(json.key(key), text.as_bytes());
    }
}

fn verbatim(json: &mut Json, key: &str, wire: Option<&Wire>) {
    if let Some(wire) = wire {
        json.key(key).object(|json| {
            json.key(keys::PROVIDER).string(wire.provider.name());
            text(json, keys::JSON, Some(&wire.json));
        });
    }
}

fn parts(json: &mut Json, parts: &[Part]) {
    json.list(parts, |json, part| {
        json.object(|json| {
            kind(json, &part.kind);
            map(
                json,
                keys::PROVIDER_METADATA,
                part.provider_metadata.as_ref(),
            );
            map(json, keys::OPTIONS, part.hints.as_ref());
            unknown(json, part.extra.as_ref());
        });
    });
}

fn kind(json: &mut Json, kind: &PartKind) {
    json.key(keys::TYPE).string(kind.name());
    match kind {
        PartKind::Text(bytes) | PartKind::Thinking(bytes) => tag::text(json.key(keys::TEXT), bytes),
        PartKind::Image { media_type, source }
        | PartKind::Audio { media_type, source }
        | PartKind::Video { media_type, source } => {
            text(json, keys::MEDIA_TYPE, media_type.as_deref());
            at(json, source);
        }
        PartKind::File {
            media_type,
            source,
            filename,
        } => {
            text(json, keys::MEDIA_TYPE, media_type.as_deref());
            text(json, keys::FILENAME, filename.as_deref());
            at(json, source);
        }
        PartKind::RedactedThinking(data) => text(json, keys::DATA, Some(data)),
        PartKind::ProviderBlock { provider, data } => {
            json.key(keys::PROVIDER).string(provider.name());
            tag::entries(json.key(keys::DATA), data);
        }
    }
}

fn at(json: &mut Json, source: &Source) {
    match source {
        Source::Data(data) => text(json, keys::DATA, Some(data)),
        Source::Url(url) => text(json, keys::URL, Some(url)),
        Source::Stored { provider, id } => {
            text(json, keys::FILE_ID, Some(id));
            json.key(keys::PROVIDER).string(provider.name());
        }
    }
}

fn call(json: &mut Json, call: &ToolCall, exchange: &Exchange, slot: usize) {
    let name = match &call.name {
        Name::Atom(name) => Key::Atom(name),
        Name::Text(name) => Key::Text(name),
    };
    let outcome = exchange.slot(slot);
    json.object(|json| {
        text(json, keys::ID, Some(&call.id));
        if !call.kind.is_function() {
            json.key(keys::KIND).string(call.kind.name());
        }
        text(json, keys::NAME, Some(&name.text()));
        tag::value(json.key(keys::ARGUMENTS), &call.arguments.value);
        text(json, keys::ARGUMENTS_JSON, call.arguments.json.as_deref());
        map(
            json,
            keys::PROVIDER_METADATA,
            call.provider_metadata.as_ref(),
        );
        map(json, keys::EXTRA, call.extra.as_ref());
        json.key(keys::STATUS).string(exchange.status(slot).name());
        if let Some(decision) = exchange.decision(slot) {
            json.key(keys::DECISION).object(|json| {
                json.key(keys::APPROVED).value(&decision.approved);
                tag::value(json.key(keys::BY), &decision.by);
                json.key(keys::AT).string(&time::to_text(decision.at));
                tag::value(json.key(keys::REASON), &decision.reason);
            });
        }
        if let Some(outcome) = outcome {
            json.key(keys::RESULT).object(|json| {
                match &outcome.output {
                    Output::Value(value) => tag::value(json.key(keys::VALUE), value),
                    Output::Parts(items) => parts(json.key(keys::PARTS), items),
                }
                unknown(json, outcome.extra.as_ref());
            });
        }
        unknown(json, call.unknown.as_ref());
    });
}
