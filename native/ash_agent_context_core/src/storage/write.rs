//! Writing: straight from the conversation to JSON text, without a tree in between.

use crate::log::bill::Bill;
use crate::log::call::{Name, ToolCall};
use crate::log::exchange::{Entry, Exchange};
use crate::log::message::{Message, Output};
use crate::log::original::Original;
use crate::log::part::{Content, Part, PartKind, Source};
use crate::log::reply::Reply;
use crate::log::usage::Usage;
use crate::storage::keys;
use crate::storage::tagged::{self, NameKey};
use crate::value::builder::{Json, JsonObject};
use crate::value::json::AsJson;
use crate::value::time;
use crate::value::Map;

/// Fields that this version does not know, as they came.
pub(crate) fn unknown(json: &mut JsonObject<'_>, fields: Option<&Map>) {
    for (key, value) in fields.into_iter().flat_map(Map::iter) {
        if let Some(key) = key.as_str() {
            json.key(key).value(&AsJson(value));
        }
    }
}

pub(crate) fn message(json: &mut Json, message: &Message, entry: Option<&Entry>) {
    json.object(|json| {
        json.key(keys::ROLE).text(message.role.name());
        let content = json.key(keys::CONTENT);
        match &message.content {
            Content::None => content.value(&()),
            Content::Text(text) => tagged::text(content, text),
            Content::Parts(items) => parts(content, items),
        }
        map(json, keys::METADATA, message.metadata.as_ref());
        if let Some(of) = &message.reply {
            reply(json.key(keys::RESPONSE), of);
        }
        if let Some(exchange) = entry.and_then(|entry| entry.exchange.as_deref()) {
            let calls = message.calls.iter().enumerate();
            json.key(keys::TOOL_CALLS)
                .list(calls, |json, (slot, one)| call(json, one, exchange, slot));
            map(json, keys::RESULTS_METADATA, exchange.metadata.as_ref());
            verbatim(json, keys::RESULTS_WIRE, exchange.original.as_ref());
        }
        if let Some(reported) = entry.and_then(|entry| entry.usage.as_deref()) {
            json.key(keys::USAGE).object(|json| {
                usage(json.key(keys::SUM), reported.sum);
                usage(json.key(keys::LAST_REPORT), reported.last);
                json.key(keys::ESTIMATE).value(&reported.estimate);
                if let Some(bills) = &reported.bills {
                    json.key(keys::BILLS).list(bills.iter(), bill);
                }
            });
        }
        verbatim(json, keys::WIRE, message.original.as_ref());
        unknown(json, message.extra.as_ref());
    });
}

/// Where a message of the model came from. The reason is there when it broke off.
fn reply(json: &mut Json, reply: &Reply) {
    json.object(|json| {
        if let Some(provider) = reply.provider {
            json.key(keys::PROVIDER).text(provider.name());
        }
        text(json, keys::MODEL, reply.model.as_deref());
        text(json, keys::ID, reply.id.as_deref());
        if let Some(finish) = reply.finish {
            json.key(keys::FINISH_REASON).text(finish.name());
        }
        text(json, keys::FINISH_WORD, reply.word.as_deref());
        for (key, at) in [
            (keys::REQUESTED_AT, reply.requested_at),
            (keys::FIRST_CHUNK_AT, reply.first_chunk_at),
            (keys::RECEIVED_AT, reply.received_at),
        ] {
            if let Some(at) = at {
                json.key(key).text(&time::to_text(at));
            }
        }
        if let Some(reason) = &reply.interrupted {
            json.key(keys::INTERRUPTED)
                .object(|json| tagged::value(json.key(keys::REASON), reason));
        }
        map(json, keys::DETAILS, reply.details.as_ref());
        unknown(json, reply.extra.as_ref());
    });
}

pub(crate) fn usage(json: &mut Json, usage: Usage) {
    json.object(|json| {
        json.key(keys::INPUT_TOKENS).value(&usage.input);
        json.key(keys::OUTPUT_TOKENS).value(&usage.output);
        json.key(keys::TOTAL_TOKENS).value(&usage.total);
        json.key(keys::CACHED_TOKENS).value(&usage.cached);
        json.key(keys::REASONING_TOKENS).value(&usage.reasoning);
        if usage.written > 0 {
            json.key(keys::CACHE_WRITE_TOKENS).value(&usage.written);
        }
    });
}

fn bill(json: &mut Json, bill: &Bill) {
    json.object(|json| {
        usage(json.key(keys::USAGE), bill.usage);
        text(json, keys::MODEL, bill.model.as_deref());
        for (name, count) in bill.counts() {
            json.key(name).value(&count);
        }
        for (name, word) in bill.terms() {
            tagged::text(json.key(name), word.as_bytes());
        }
    });
}

/// A map of values that may be absent.
pub(crate) fn map(json: &mut JsonObject<'_>, key: &str, map: Option<&Map>) {
    if let Some(map) = map {
        tagged::entries(json.key(key), map);
    }
}

/// Text that may be absent.
pub(crate) fn text(json: &mut JsonObject<'_>, key: &str, text: Option<&str>) {
    if let Some(text) = text {
        tagged::text(json.key(key), text.as_bytes());
    }
}

pub(crate) fn verbatim(json: &mut JsonObject<'_>, key: &str, original: Option<&Original>) {
    if let Some(original) = original {
        json.key(key).object(|json| {
            json.key(keys::PROVIDER).text(original.provider.name());
            text(json, keys::JSON, Some(&original.json));
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

fn kind(json: &mut JsonObject<'_>, kind: &PartKind) {
    json.key(keys::TYPE).text(kind.name());
    match kind {
        PartKind::Text(bytes) | PartKind::Thinking(bytes) => {
            tagged::text(json.key(keys::TEXT), bytes)
        }
        PartKind::Media(media) => {
            text(json, keys::MEDIA_TYPE, media.media_type.as_deref());
            text(json, keys::FILENAME, media.filename.as_deref());
            at(json, &media.source);
        }
        PartKind::RedactedThinking(data) => text(json, keys::DATA, Some(data)),
        PartKind::ProviderBlock { provider, data } => {
            json.key(keys::PROVIDER).text(provider.name());
            tagged::entries(json.key(keys::DATA), data);
        }
    }
}

fn at(json: &mut JsonObject<'_>, source: &Source) {
    match source {
        Source::Data(data) => text(json, keys::DATA, Some(data)),
        Source::Url(url) => text(json, keys::URL, Some(url)),
        Source::Stored { provider, id } => {
            text(json, keys::FILE_ID, Some(id));
            json.key(keys::PROVIDER).text(provider.name());
        }
    }
}

fn call(json: &mut Json, call: &ToolCall, exchange: &Exchange, slot: usize) {
    let name = match &call.name {
        Name::Atom(name) => NameKey::Atom(name),
        Name::Text(name) => NameKey::Text(name),
    };
    let outcome = exchange.slot(slot);
    json.object(|json| {
        text(json, keys::ID, Some(&call.id));
        if !call.kind.is_function() {
            json.key(keys::KIND).text(call.kind.name());
        }
        text(json, keys::NAME, Some(&name.text()));
        tagged::value(json.key(keys::ARGUMENTS), &call.arguments.value);
        text(json, keys::ARGUMENTS_JSON, call.arguments.json.as_deref());
        map(
            json,
            keys::PROVIDER_METADATA,
            call.provider_metadata.as_ref(),
        );
        map(json, keys::EXTRA, call.extra.as_ref());
        json.key(keys::STATUS).text(exchange.status(slot).name());
        if let Some(decision) = exchange.decision(slot) {
            json.key(keys::DECISION).object(|json| {
                json.key(keys::APPROVED).value(&decision.approved);
                tagged::value(json.key(keys::BY), &decision.by);
                json.key(keys::AT).text(&time::to_text(decision.at));
                tagged::value(json.key(keys::REASON), &decision.reason);
                if let Some(arguments) = &decision.arguments {
                    tagged::value(json.key(keys::ARGUMENTS), arguments);
                }
                text(json, keys::DIGEST, decision.digest.as_deref());
            });
        }
        match exchange.asked_arguments(slot) {
            Some(arguments) => tagged::value(json.key(keys::ASKED), arguments),
            None if exchange.is_asked(slot) => json.key(keys::WAS_ASKED).value(&true),
            None => {}
        }
        if let Some(outcome) = outcome {
            json.key(keys::RESULT).object(|json| {
                match &outcome.output {
                    Output::Value(value) => tagged::value(json.key(keys::VALUE), value),
                    Output::Parts(items) => parts(json.key(keys::PARTS), items),
                }
                if let Some((started, ended)) = outcome.ran {
                    json.key(keys::STARTED_AT).text(&time::to_text(started));
                    json.key(keys::ENDED_AT).text(&time::to_text(ended));
                }
                text(json, keys::ERROR_TYPE, outcome.error_type.as_deref());
                unknown(json, outcome.extra.as_ref());
            });
        }
        unknown(json, call.unknown.as_ref());
    });
}
