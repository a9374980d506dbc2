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

pub(crate) fn message(json: &mut Json, message: &Message, entry: Option<&Entry>) {
    json.object(|json| {
        json.key(keys::ROLE).text(message.role.name());
        let content = json.key(keys::CONTENT);
        match &message.content {
            Content::None => content.value(&()),
            Content::Text(text) => tagged::text(content, text),
            Content::Parts(items) => parts(content, items),
        }
        Given::<Terms>::write(&message.metadata, keys::METADATA, json);
        if let Some(reply) = message.reply.as_deref() {
            Of::write(reply, keys::RESPONSE, json);
        }
        if let Some(exchange) = entry.and_then(|entry| entry.exchange.as_deref()) {
            let calls = message.calls.iter().enumerate();
            json.key(keys::TOOL_CALLS)
                .list(calls, |json, (slot, one)| call(json, one, exchange, slot));
            Given::<Terms>::write(&exchange.metadata, keys::RESULTS_METADATA, json);
            Given::<Of>::write(&exchange.original, keys::RESULTS_WIRE, json);
        }
        if let Some(reported) = entry.and_then(|entry| entry.usage.as_deref()) {
            Of::write(reported, keys::USAGE, json);
        }
        Given::<Of>::write(&message.original, keys::WIRE, json);
        unknown(json, message.extra.as_ref());
    });
}

fn parts(json: &mut Json, parts: &[Part]) {
    json.list(parts, |json, part| {
        json.object(|json| {
            kind(json, &part.kind);
            Given::<Terms>::write(&part.provider_metadata, keys::PROVIDER_METADATA, json);
            Given::<Terms>::write(&part.hints, keys::OPTIONS, json);
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
            Given::<Text>::write(&media.media_type, keys::MEDIA_TYPE, json);
            Given::<Text>::write(&media.filename, keys::FILENAME, json);
            at(json, &media.source);
        }
        PartKind::RedactedThinking(data) => Text::write(data, keys::DATA, json),
        PartKind::ProviderBlock { provider, data } => {
            json.key(keys::PROVIDER).text(provider.name());
            tagged::entries(json.key(keys::DATA), data);
        }
    }
}

fn at(json: &mut JsonObject<'_>, source: &Source) {
    match source {
        Source::Data(data) => Text::write(data, keys::DATA, json),
        Source::Url(url) => Text::write(url, keys::URL, json),
        Source::Stored { provider, id } => {
            Text::write(id, keys::FILE_ID, json);
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
        Text::write(&call.id, keys::ID, json);
        if !call.kind.is_function() {
            json.key(keys::KIND).text(call.kind.name());
        }
        tagged::text(json.key(keys::NAME), name.text().as_bytes());
        tagged::value(json.key(keys::ARGUMENTS), &call.arguments.value);
        Given::<Text>::write(&call.arguments.json, keys::ARGUMENTS_JSON, json);
        Given::<Terms>::write(&call.provider_metadata, keys::PROVIDER_METADATA, json);
        Given::<Terms>::write(&call.extra, keys::EXTRA, json);
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
                Given::<Text>::write(&outcome.error_type, keys::ERROR_TYPE, json);
                unknown(json, outcome.extra.as_ref());
            });
        }
        unknown(json, call.unknown.as_ref());
    });
}
