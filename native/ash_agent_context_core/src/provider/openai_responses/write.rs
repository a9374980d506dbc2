//! Writes messages for OpenAI Responses.

use std::borrow::Cow;

use super::calls::{self, input_text, Outputs, PARTS};
use super::item_ids::ItemIds;
use super::texts::{is_content_part, is_empty_message, kept_list, REFUSAL};
use super::{Room, PROVIDER};
use crate::log::exchange::Exchange;
use crate::log::message::{Message, Role};
use crate::log::part::{Part, PartKind};
use crate::provider::dialect::chat::write::{role_message, system_role, text_message};
use crate::provider::format::Writes;
use crate::provider::options::Options;
use crate::provider::order::{in_order, PartOrCall};
use crate::provider::writer::{texts, BlockForm, Thought, Writer};
use crate::value::builder::JsonObject;
use crate::value::json::{AsJson, AsObject};
use crate::value::letters::{self, is_blank};
use crate::value::{Map, Value};

impl Writes for Room {
    fn system(&self, system: &Message, out: &mut Writer<'_>) {
        let texts = texts(&system.content, out);
        if !texts.is_empty() {
            out.json.text(&texts.join("\n\n"));
        }
    }

    fn user(&self, message: &Message, out: &mut Writer<'_>) {
        let role = match message.role {
            Role::System => system_role(out.options.system_role),
            _ => "user",
        };
        role_message(role, &message.content, &PARTS, out);
    }

    fn assistant(&self, message: &Message, out: &mut Writer<'_>) {
        out.say(&message.content, easy_message);
        // Some servers with this API want results directly after their calls, so calls of other providers go last. DeepSeek refuses
        // its own calls in their order: it takes anything between two calls for the end of a message.
        let is_own = message.calls.iter().any(|call| call.came_from(PROVIDER));
        let model = out.options.model.unwrap_or_default();
        let is_deepseek = model.contains("deepseek");
        let said = match is_own && !is_deepseek {
            true => in_order(&message.content, &message.calls),
            false => out.calls_last(message),
        };
        let ids = ItemIds::of(&said, out);
        let mut rest = &*said;
        while let Some((one, behind)) = rest.split_first() {
            rest = behind;
            match one {
                PartOrCall::Call(call) => calls::write_call(call, &ids, out),
                PartOrCall::Part(part) => match part.kind {
                    PartKind::Text(_) => {
                        let more = texts_of_item(part, behind, out);
                        rest = behind.get(more.len()..).unwrap_or_default();
                        write_spoken(part, &more, &ids, out);
                    }
                    PartKind::Thinking(_) => reasoning(part, &ids, out),
                    _ => block(part, out),
                },
            }
        }
    }

    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Writer<'_>) {
        let mut outputs = Outputs {
            out,
            texts: Vec::new(),
            media: Vec::new(),
        };
        for (slot, call) in message.calls.iter().enumerate() {
            let Some(outcome) = exchange.slot(slot) else {
                continue;
            };
            outputs.write(call, outcome, exchange.decision(slot));
        }
        let Outputs { out, texts, media } = outputs;
        out.blocks(false, |out| {
            texts.iter().for_each(|text| input_text(text, out));
            PARTS.all(media, out);
        });
    }
}

/// Writes a text without an item's id.
fn easy_message(text: &str, out: &mut Writer<'_>) {
    text_message("assistant", text, out);
}

/// Returns the texts after this one that were parts of the same message.
fn texts_of_item<'a>(part: &Part, behind: &[PartOrCall<'a>], out: &Writer<'_>) -> Vec<&'a Part> {
    let more = behind.iter().map_while(PartOrCall::part);
    let is_more = |more: &&Part| more.continues(part) && part.is_of(out.options);
    more.take_while(is_more).collect()
}

/// Writes a message of the model with its texts and refusals.
fn write_spoken(part: &Part, more: &[&Part], ids: &ItemIds<'_>, out: &mut Writer<'_>) {
    let options = out.options;
    let id = ids.of_text(part, out);
    let mut texts = Vec::with_capacity(1 + more.len());
    for part in std::iter::once(&part).chain(more) {
        match &part.kind {
            PartKind::Text(_) if id.is_some() && is_empty_message(part) => {
                texts.push((*part, Cow::Borrowed("")));
            }
            PartKind::Text(bytes) => texts.extend(out.text(bytes).map(|text| (*part, text))),
            _ => {}
        }
    }
    if texts.is_empty() {
        return;
    }
    let known = |key| part.provider_text(key).filter(|_| part.is_of(options));
    out.json.raw(",");
    out.json.bare_object(|item| {
        if id.is_some() {
            item.field("type", "message");
        }
        item.field("role", "assistant");
        if let Some(id) = id {
            let status = known("status").unwrap_or("completed");
            item.field("id", id).field("status", status);
        }
        item.given("phase", known("phase"));
        match &*texts {
            [(part, text)] if id.is_none() && is_plain(part, options) => item.text("content", text),
            texts => item.objects("content", texts, |written, (part, text)| {
                content_part(part, text, options, written);
            }),
        };
    });
}

fn content_part(part: &Part, text: &str, options: &Options<'_>, written: &mut JsonObject<'_>) {
    if is_refusal(part, options) {
        written.field("type", "refusal").text("refusal", text);
        return;
    }
    written.field("type", "output_text").text("text", text);
    match part.provider_list(options, "annotations") {
        Some(annotations) => written.field("annotations", &AsJson(annotations)),
        None => written.raw("annotations", "[]"),
    };
    let logprobs = part.provider_list(options, "logprobs");
    written.given("logprobs", logprobs.map(AsJson));
}

fn is_refusal(part: &Part, options: &Options<'_>) -> bool {
    part.is_noted(REFUSAL) && part.is_of(options)
}

/// Returns whether a part is only a text.
fn is_plain(part: &Part, options: &Options<'_>) -> bool {
    let has = |key| part.provider_list(options, key).is_some();
    !has("annotations") && !has("logprobs") && !is_refusal(part, options)
}

/// Writes a part that has no other form: an item of the API's own, or a medium.
fn block(part: &Part, out: &mut Writer<'_>) {
    match &part.kind {
        PartKind::ProviderBlock { .. } => match out.block(part) {
            // A part of a message, which is not there.
            BlockForm::Own(data) if is_content_part(data) => out.drop_part(part),
            BlockForm::Own(data) => {
                let data = without_author(data);
                out.json.raw(",").value(&AsObject(&data));
            }
            BlockForm::Words(words) => easy_message(&words, out),
            BlockForm::Nothing => {}
        },
        PartKind::RedactedThinking(_) => out.drop_part(part),
        _ => {
            let words = out.media_words(part);
            easy_message(&words, out);
        }
    }
}

/// Returns an item without `created_by`, which the API sends but does not take (`items.py` of OpenAI's agents SDK). A shell's
/// output has it in each of its pieces, too.
fn without_author(data: &Map) -> Cow<'_, Map> {
    const AUTHOR: &str = "created_by";
    let is_shell = data.get_named("type").and_then(Value::as_name) == Some("shell_call_output");
    if !is_shell && data.get_named(AUTHOR).is_none() {
        return Cow::Borrowed(data);
    }
    let without = |map: &Map| {
        let entries = map.iter().filter(|(key, _)| key.as_name() != Some(AUTHOR));
        Map::new(entries.cloned().collect())
    };
    let inside = |value: &Value| match value {
        Value::Map(map) => Value::Map(without(map)),
        other => other.clone(),
    };
    let entry = |(key, value): (Value, Value)| match value {
        Value::List(items) if is_shell => (key, Value::List(items.iter().map(inside).collect())),
        value => (key, value),
    };
    let entries = without(data).into_entries().into_iter().map(entry);
    Cow::Owned(Map::new(entries.collect()))
}

fn reasoning(part: &Part, ids: &ItemIds<'_>, out: &mut Writer<'_>) {
    let Some(id) = ids.of_reasoning(part, out) else {
        if let Thought::Text(text) = out.turn_thinking_into_text(part) {
            easy_message(&text, out);
        }
        return;
    };
    let Some(bytes) = part.kind.thoughts() else {
        return;
    };
    let text = letters::utf8(bytes);
    let list = |key| kept_list(part, out.options, key);
    let (summary, content) = (list("summary"), list("content"));
    out.json.raw(",");
    out.json.bare_object(|item| {
        item.field("type", "reasoning").field("id", id);
        match summary {
            Some(summary) => item.field("summary", &AsJson(summary)),
            None => item.list("summary", |list| {
                if content.is_none() && !is_blank(&text) {
                    list.strings(&[("type", "summary_text"), ("text", &text)]);
                }
            }),
        };
        item.given("content", content.map(AsJson));
        for key in ["encrypted_content", "status"] {
            item.given(key, part.provider_text(key));
        }
    });
}
