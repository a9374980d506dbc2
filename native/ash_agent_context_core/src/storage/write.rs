//! Writing: straight from the conversation to JSON text, without a tree in between.

use crate::log::call::{Name, ToolCall};
use crate::log::exchange::{Entry, Exchange};
use crate::log::message::{Message, Output};
use crate::log::part::{Content, Part, PartKind, Source};
use crate::storage::keys;
use crate::storage::table::*;
use crate::storage::tagged::{self, NameKey};
use crate::value::builder::{Json, JsonObject};
use crate::value::time;
use crate::value::Map;

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
        if let Some(reply) = message.reply.as_deref() {
            Of::write(reply, keys::RESPONSE, json);
        }
        if let Some(exchange) = entry.and_then(|entry| entry.exchange.as_deref()) {
            let calls = message.calls.iter().enumerate();
            json.key(keys::TOOL_CALLS)
                .list(calls, |json, (slot, one)| call(json, one, exchange, slot));
            map(json, keys::RESULTS_METADATA, exchange.metadata.as_ref());
            Given::<Of>::write(&exchange.original, keys::RESULTS_WIRE, json);
        }
        if let Some(reported) = entry.and_then(|entry| entry.usage.as_deref()) {
            Of::write(reported, keys::USAGE, json);
        }
        Given::<Of>::write(&message.original, keys::WIRE, json);
        unknown(json, message.extra.as_ref());
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
            Of::write(decision, keys::DECISION, json);
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
