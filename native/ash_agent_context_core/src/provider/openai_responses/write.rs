//! OpenAI Responses.

use crate::log::exchange::Exchange;
use crate::log::message::{Message, Outcome, Output, Role};
use crate::log::part::{Content, Part, PartKind};
use crate::log::provider::Provider;
use crate::value::json::AsObject;
use crate::value::{Map, Value};

use super::Room;
use crate::log::media::{Location, Media};
use crate::provider::dialect::chat::write::text_message;
use crate::provider::format::Writes;
use crate::provider::options::SystemRole;
use crate::provider::writer::{texts, Thought, Writer};
use crate::value::builder::Json;
use crate::value::letters::{self, is_blank};
use crate::view::change::ChangeKind;

impl Writes for Room {
    fn list(&self) -> &'static str {
        "input"
    }

    fn system_key(&self) -> Option<&'static str> {
        Some("instructions")
    }

    fn system(&self, system: &Message, out: &mut Writer<'_>) {
        let texts = texts(&system.content, out);
        if !texts.is_empty() {
            out.json.text(&texts.join("\n\n"));
        }
    }

    fn message(&self, message: &Message, out: &mut Writer<'_>) {
        let role = match (message.role, out.options.system_role) {
            (Role::Assistant, _) => return assistant(message, out),
            (Role::User, _) => "user",
            (Role::System, SystemRole::System) => "system",
            (Role::System, SystemRole::Developer) => "developer",
        };
        match &message.content {
            Content::Text(bytes) => {
                if let Some(text) = out.text(bytes) {
                    text_message(role, &text, out);
                }
            }
            Content::Parts(parts) => {
                let open = format!(",{{\"role\":\"{role}\",\"content\":[");
                out.wrapped(&open, "]}", |out| {
                    for part in &**parts {
                        user_part(part, out);
                    }
                });
            }
            Content::None => {}
        }
    }

    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Writer<'_>) {
        for (call, outcome) in message.calls.iter().zip(exchange.slots()) {
            let Some(outcome) = outcome else { continue };
            let id = out.id(call);
            let output = output(outcome, out);
            out.json.raw(",");
            out.json.bare_object(|item| {
                item.field("type", "function_call_output")
                    .field("call_id", &*id)
                    .raw("output", &output);
            });
        }
    }
}

fn output(outcome: &Outcome, out: &mut Writer<'_>) -> String {
    let output = out.apart(|out| match &outcome.output {
        Output::Value(_) => {
            let text = out.worded_result(outcome);
            out.json.text(&text);
        }
        Output::Parts(parts) => out.wrapped("[", "]", |out| {
            for part in &**parts {
                user_part(part, out);
            }
        }),
    });
    if output.is_empty() {
        return out.apart(|out| out.json.text(crate::value::words::NO_OUTPUT));
    }
    output
}

fn user_part(part: &Part, out: &mut Writer<'_>) {
    match &part.kind {
        PartKind::Text(bytes) => {
            if let Some(text) = out.text(bytes) {
                input_text(&text, out);
            }
        }
        PartKind::ProviderBlock { .. } => {
            if let Some(data) = out.own_block(part) {
                out.json.element(&AsObject(data));
            }
        }
        _ => media(part, out),
    }
}

fn input_text(text: &str, out: &mut Writer<'_>) {
    out.json.object(|part| {
        part.field("type", "input_text").text("text", text);
    });
}

/// One output item of the model.
struct Item {
    json: Vec<u8>,
    /// Whether reasoning may stand in front of it.
    follows: bool,
    is_reasoning: bool,
}

impl Item {
    fn new(follows: bool, fill: impl FnOnce(&mut crate::value::builder::Object<'_>)) -> Self {
        let mut json = Json::default();
        json.bare_object(fill);
        Self {
            json: json.0,
            follows,
            is_reasoning: false,
        }
    }
}

fn assistant(message: &Message, out: &mut Writer<'_>) {
    let mut items: Vec<Item> = Vec::new();
    let keeps_ids = keeps_ids(message, out);
    match &message.content {
        Content::None => {}
        Content::Text(bytes) => items.extend(out.text(bytes).map(|text| easy_message(&text))),
        Content::Parts(parts) => {
            for part in &**parts {
                items.extend(item(part, keeps_ids, out));
            }
        }
    }
    for call in &message.calls {
        let (id, name) = (out.id(call), out.name(call));
        let arguments = out.arguments(call);
        let own = call
            .provider_text(Provider::OpenAiResponses, "id")
            .filter(|id| keeps_ids && is_item_id(id, "fc") && !call.aliases.item_reused);
        items.push(Item::new(true, |item| {
            item.field("type", "function_call")
                .field("call_id", &*id)
                .field("name", &*name)
                .text("arguments", &arguments);
            if let Some(own) = own {
                item.field("id", own);
            }
        }));
    }
    let mut items = items.into_iter().peekable();
    while let Some(item) = items.next() {
        // Reasoning stands directly in front of the item that it led to, or not at all.
        if item.is_reasoning && !items.peek().is_some_and(|next| next.follows) {
            out.changed(ChangeKind::DroppedThinking, || "reasoning".to_owned(), None);
            continue;
        }
        out.json.raw(",");
        out.json.0.extend_from_slice(&item.json);
    }
}

fn easy_message(text: &str) -> Item {
    Item::new(false, |item| {
        item.field("role", "assistant").text("content", text);
    })
}

/// Whether items go with the ids that they came with. An item of a message whose reasoning is not sent
/// would be refused with its id ("... was provided without its required 'reasoning' item").
fn keeps_ids(message: &Message, out: &Writer<'_>) -> bool {
    let Content::Parts(parts) = &message.content else {
        return true;
    };
    parts.iter().enumerate().all(|(index, part)| {
        if !matches!(part.kind, PartKind::Thinking(_)) {
            return true;
        }
        let behind = parts
            .iter()
            .skip(index + 1)
            .find(|part| out.says(part) || is_own_reasoning(part, out));
        let follows = match behind {
            Some(behind) => message_id(behind, out).is_some() || is_own_block(behind, out),
            None => !message.calls.is_empty(),
        };
        is_own_reasoning(part, out) && follows
    })
}

fn is_own_block(part: &Part, out: &Writer<'_>) -> bool {
    match &part.kind {
        PartKind::ProviderBlock { provider, data } => {
            *provider == out.options.provider && !is_content_part(data)
        }
        _ => false,
    }
}

/// The id of the item that a text was.
fn message_id<'a>(part: &'a Part, out: &Writer<'_>) -> Option<&'a str> {
    let id = part
        .provider_text("id")
        .filter(|_| matches!(part.kind, PartKind::Text(_)));
    id.filter(|id| part.is_of(out.options) && is_item_id(id, "msg") && !part.item_reused)
}

/// The id and the content of reasoning that can go back.
fn own_reasoning<'a>(part: &'a Part, out: &Writer<'_>) -> Option<(&'a str, &'a str)> {
    let id = part
        .provider_text("id")
        .filter(|id| is_item_id(id, "rs") && !part.item_reused)?;
    let encrypted = part.provider_text("encrypted_content")?;
    part.is_of(out.options).then_some((id, encrypted))
}

fn is_own_reasoning(part: &Part, out: &Writer<'_>) -> bool {
    matches!(part.kind, PartKind::Thinking(_)) && own_reasoning(part, out).is_some()
}

fn item(part: &Part, keeps_ids: bool, out: &mut Writer<'_>) -> Option<Item> {
    match &part.kind {
        PartKind::Text(bytes) => {
            let text = out.text(bytes)?;
            let Some(id) = message_id(part, out).filter(|_| keeps_ids) else {
                return Some(easy_message(&text));
            };
            Some(Item::new(true, |item| {
                item.field("type", "message")
                    .field("role", "assistant")
                    .field("id", id)
                    .field("status", "completed")
                    .list("content", |list| {
                        list.object(|part| {
                            part.field("type", "output_text")
                                .text("text", &text)
                                .raw("annotations", "[]");
                        });
                    });
            }))
        }
        PartKind::Thinking(_) => reasoning(part, out),
        PartKind::ProviderBlock { .. } => {
            let data = out.own_block(part)?;
            if is_content_part(data) {
                // A part of a message, which has no message here.
                out.dropped(part);
                return None;
            }
            Some(own_item(data))
        }
        PartKind::Image { .. } | PartKind::File { .. } => {
            Some(easy_message(&out.media_words(part)))
        }
        PartKind::RedactedThinking(_) => {
            out.dropped(part);
            None
        }
    }
}

fn own_item(data: &Map) -> Item {
    let mut json = Json::default();
    json.value(&AsObject(data));
    Item {
        json: json.0,
        follows: true,
        is_reasoning: false,
    }
}

fn is_content_part(data: &Map) -> bool {
    let kind = data.get_named("type").and_then(Value::as_name);
    matches!(
        kind,
        // Every item but a message has a type.
        None | Some("output_text" | "refusal" | "input_text" | "input_image" | "input_file")
    )
}

fn reasoning(part: &Part, out: &mut Writer<'_>) -> Option<Item> {
    if let Some((id, encrypted)) = own_reasoning(part, out) {
        let PartKind::Thinking(bytes) = &part.kind else {
            return None;
        };
        let text = letters::utf8(bytes);
        let mut item = Item::new(false, |item| {
            item.field("type", "reasoning")
                .field("id", id)
                .list("summary", |list| {
                    if !is_blank(&text) {
                        list.object(|summary| {
                            summary.field("type", "summary_text").text("text", &text);
                        });
                    }
                })
                .field("encrypted_content", encrypted);
        });
        item.is_reasoning = true;
        return Some(item);
    }
    match out.thinking_as_text(part) {
        Thought::Text(text) => Some(easy_message(&text)),
        _ => None,
    }
}

fn is_item_id(id: &str, prefix: &str) -> bool {
    id.starts_with(prefix)
        && id.len() <= 64
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

fn media(part: &Part, out: &mut Writer<'_>) {
    let Some(media) = Media::of(&part.kind) else {
        out.dropped(part);
        return;
    };
    let is_sent = match (media.is_image, media.source) {
        (true, Location::Inline(_)) => media.is_common_image(),
        (true, Location::Web(_)) => true,
        (false, Location::Inline(_) | Location::Web(_)) => {
            media.guessed_type() == Some("application/pdf")
        }
        (_, Location::Store(_)) => false,
    };
    if !is_sent {
        let words = out.media_words(part);
        input_text(&words, out);
        return;
    }
    let data = media.data_url();
    let url = match media.source {
        Location::Web(url) => Some(url),
        _ => None,
    };
    out.json.object(|written| {
        if media.is_image {
            let url = data.as_deref().or(url).unwrap_or_default();
            written
                .field("type", "input_image")
                .field("detail", "auto")
                .text("image_url", url);
            return;
        }
        written.field("type", "input_file");
        if let Some(url) = url {
            written.field("file_url", url);
        } else {
            written
                .field("filename", media.filename.unwrap_or("file.pdf"))
                .text("file_data", &data.unwrap_or_default());
        }
    });
}
