//! Writing: straight from the conversation to JSON text, without a tree in between.

use crate::log::call::{Arguments, Name, ToolCall};
use crate::log::exchange::{Entry, Exchange};
use crate::log::message::{Message, Outcome, Output};
use crate::log::part::{Content, Part, PartKind, Source};
use crate::storage::spelling::Spelling;
use crate::storage::table::*;
use crate::storage::tagged::{self, NameKey};
use crate::value::builder::{Json, JsonObject};
use crate::value::time;

pub(crate) fn message(json: &mut Json, message: &Message, entry: Option<&Entry>) {
    json.object(|json| {
        json.key("role").text(message.role.name());
        let content = json.key("content");
        match &message.content {
            Content::None => content.value(&()),
            Content::Text(text) => tagged::text(content, text),
            Content::Parts(items) => parts(content, items),
        }
        Given::<Terms>::write(&message.metadata, "metadata", json);
        if let Some(reply) = message.reply.as_deref() {
            Of::write(reply, "response", json);
        }
        if let Some(exchange) = entry.and_then(|entry| entry.exchange.as_deref()) {
            let calls = message.calls.iter().enumerate();
            json.key("tool_calls")
                .list(calls, |json, (slot, one)| call(json, one, exchange, slot));
            Given::<Terms>::write(&exchange.metadata, "results_metadata", json);
            Given::<Of>::write(&exchange.original, "results_wire", json);
            Given::<Of>::write(&exchange.arrival, "arrival", json);
        }
        if let Some(reported) = entry.and_then(|entry| entry.usage.as_deref()) {
            Of::write(reported, "usage", json);
        }
        Given::<Of>::write(&message.original, "wire", json);
        unknown(json, message.extra.as_ref());
    });
}

fn parts(json: &mut Json, parts: &[Part]) {
    json.list(parts, |json, part| {
        let Part {
            kind,
            provider_metadata,
            hints,
            extra,
            withheld: _,
            number: _,
        } = part;
        json.object(|json| {
            write_kind(json, kind);
            Given::<Terms>::write(provider_metadata, "provider_metadata", json);
            Given::<Terms>::write(hints, "options", json);
            unknown(json, extra.as_ref());
        });
    });
}

fn write_kind(json: &mut JsonObject<'_>, kind: &PartKind) {
    json.key("type").text(kind.name());
    match kind {
        PartKind::Text(bytes) | PartKind::Thinking(bytes) => tagged::text(json.key("text"), bytes),
        PartKind::Media(media) => {
            Given::<Text>::write(&media.media_type, "media_type", json);
            Given::<Text>::write(&media.filename, "filename", json);
            at(json, &media.source);
        }
        PartKind::RedactedThinking(data) => Text::write(data, "data", json),
        PartKind::ProviderBlock { provider, data } => {
            json.key("provider").text(provider.name());
            tagged::entries(json.key("data"), data);
        }
    }
}

fn at(json: &mut JsonObject<'_>, source: &Source) {
    match source {
        Source::Data(data) => Text::write(data, "data", json),
        Source::Url(url) => Text::write(url, "url", json),
        Source::Stored { provider, id } => {
            Text::write(id, "file_id", json);
            json.key("provider").text(provider.name());
        }
    }
}

pub(crate) fn result(json: &mut JsonObject<'_>, outcome: &Outcome) {
    match &outcome.output {
        Output::Value(value) => tagged::value(json.key("value"), value),
        Output::Parts(items) => parts(json.key("parts"), items),
    }
    if let Some((started, ended)) = outcome.ran {
        json.key("started_at").text(&time::to_text(started));
        json.key("ended_at").text(&time::to_text(ended));
    }
    Given::<Text>::write(&outcome.error_type, "error_type", json);
    Given::<Edited>::write(&outcome.edited, "edited", json);
    if let Some(late) = outcome.late.as_deref() {
        late.write(json);
    }
    unknown(json, outcome.extra.as_ref());
}

/// Writes how the text of the arguments is made of them, or the text.
fn arguments_text(json: &mut JsonObject<'_>, arguments: &Arguments) {
    let text = arguments.json.as_deref();
    match text.and_then(|text| Spelling::of(text, &arguments.value)) {
        Some(spelling) => {
            let keys = json.key("arguments_order");
            keys.list(&spelling.keys, |json, key| json.text(key));
            Mark::write(&spelling.spaced, "arguments_spaced", json);
        }
        None => Given::<Text>::write(&arguments.json, "arguments_json", json),
    }
}

fn call(json: &mut Json, call: &ToolCall, exchange: &Exchange, slot: usize) {
    let name = match &call.name {
        Name::Atom(name) => NameKey::Atom(name),
        Name::Text(name) => NameKey::Text(name),
    };
    let outcome = exchange.slot(slot);
    json.object(|json| {
        Text::write(&call.id, "id", json);
        if !call.kind.is_function() {
            json.key("kind").text(call.kind.name());
        }
        tagged::text(json.key("name"), name.text().as_bytes());
        tagged::value(json.key("arguments"), &call.arguments.value);
        arguments_text(json, &call.arguments);
        Given::<Terms>::write(&call.provider_metadata, "provider_metadata", json);
        Given::<Terms>::write(&call.extra, "extra", json);
        json.key("status").text(exchange.status(slot).name());
        if let Some(decision) = exchange.decision(slot) {
            Of::write(decision, "decision", json);
        }
        match exchange.decisions.asked_arguments(slot) {
            Some(edited) if exchange.decisions.edited(slot).is_some() => {
                // A version that does not know them asks about the call's own.
                json.key("was_asked").value(&true);
                Edited::write(edited, "edited", json);
            }
            Some(arguments) => tagged::value(json.key("asked"), arguments),
            None if exchange.decisions.is_asked(slot) => json.key("was_asked").value(&true),
            None => {}
        }
        Mark::write(&exchange.decisions.is_question(slot), "question", json);
        if let Some(outcome) = outcome {
            json.key("result").object(|json| result(json, outcome));
        }
        unknown(json, call.unknown.as_ref());
    });
}
