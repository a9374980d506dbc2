//! OpenAI Responses.

use super::calls::{self, Behind};
use super::parts::{input_text, PARTS};
use super::{Room, PROVIDER};
use crate::log::exchange::Exchange;
use crate::log::hints::Ttl;
use crate::log::ids::is_item;
use crate::log::message::{Message, Role};
use crate::log::part::{Content, Part, PartKind};
use crate::provider::dialect::breakpoints::breakpoint;
use crate::provider::dialect::chat::write::text_message;
use crate::provider::format::Writes;
use crate::provider::options::SystemRole;
use crate::provider::order::{in_order, Said};
use crate::provider::writer::{texts, Block, Thought, Writer};
use crate::value::builder::{Json, JsonObject};
use crate::value::json::{AsJson, AsObject};
use crate::value::letters::{self, is_blank};
use crate::value::{Map, Value};
use crate::view::change::ChangeKind;

impl Writes for Room {
    fn list(&self) -> &'static str {
        "input"
    }

    fn system_key(&self) -> Option<&'static str> {
        Some("instructions")
    }

    fn prompts(&self) -> &'static [&'static str] {
        &["instructions"]
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
                    PARTS.all(&**parts, out);
                });
            }
            Content::None => {}
        }
    }

    fn results(&self, message: &Message, exchange: &Exchange, out: &mut Writer<'_>) {
        let mut behind = Behind::default();
        for (slot, call) in message.calls.iter().enumerate() {
            let Some(outcome) = exchange.slot(slot) else {
                continue;
            };
            let decision = exchange.decision(slot);
            calls::write_output(call, outcome, decision, &mut behind, out);
        }
        out.blocks(false, |out| {
            for text in &behind.texts {
                input_text(text, out);
            }
            PARTS.all(behind.media, out);
        });
    }

    fn cache_mark(&self, ttl: Ttl) -> &'static str {
        breakpoint(ttl)
    }
}

/// One output item of the model.
struct Item {
    json: Vec<u8>,
    /// Whether reasoning may come before it.
    follows: bool,
    is_reasoning: bool,
}

impl Item {
    fn new(follows: bool, fill: impl FnOnce(&mut JsonObject<'_>)) -> Self {
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
    if let Content::Text(bytes) = &message.content {
        items.extend(out.text(bytes).map(|text| easy_message(&text)));
    }
    // Some servers with this API want results directly after their calls, so those of other providers come last.
    // DeepSeek refuses its own in their order: it takes what stands between two calls for the end of a message.
    let is_own = message.calls.iter().any(|call| call.came_from(PROVIDER));
    let is_deepseek = out
        .options
        .model
        .is_some_and(|model| model.contains("deepseek"));
    let said = match is_own && !is_deepseek {
        true => in_order(&message.content, &message.calls),
        false => out.calls_last(message),
    };
    let keeps_ids = keeps_ids(&said, out);
    for one in said {
        match one {
            Said::Part(part) => items.extend(item(part, keeps_ids, out)),
            Said::Call(call) => items.push(Item {
                json: calls::write_call(call, keeps_ids, out),
                follows: true,
                is_reasoning: false,
            }),
        }
    }
    let mut items = items.into_iter().peekable();
    while let Some(item) = items.next() {
        // Reasoning comes directly before the item that it led to, or not at all.
        if item.is_reasoning && !items.peek().is_some_and(|next| next.follows) {
            out.changed(ChangeKind::DroppedThinking, || "reasoning".to_owned(), None);
            continue;
        }
        out.json.raw(",");
        out.json.0.extend_from_slice(&item.json);
    }
}

fn easy_message(text: &str) -> Item {
    spoken(text, None)
}

/// A text without the id of an item.
fn spoken(text: &str, phase: Option<&str>) -> Item {
    Item::new(false, |item| {
        item.field("role", "assistant").text("content", text);
        if let Some(phase) = phase {
            item.field("phase", phase);
        }
    })
}

/// Whether items go with the ids that they came with. An item of a message whose reasoning is not sent
/// would be refused with its id ("... was provided without its required 'reasoning' item").
fn keeps_ids(said: &[Said<'_>], out: &Writer<'_>) -> bool {
    said.iter().enumerate().all(|(index, one)| {
        let Said::Part(part) = one else { return true };
        if !matches!(part.kind, PartKind::Thinking(_)) {
            return true;
        }
        let behind = said.iter().skip(index + 1).find(|one| match one {
            Said::Call(_) => true,
            Said::Part(part) => out.says(part) || is_own_reasoning(part, out),
        });
        let follows = match behind {
            Some(Said::Part(behind)) => {
                message_id(behind, out).is_some() || is_own_block(behind, out)
            }
            Some(Said::Call(_)) => true,
            None => false,
        };
        is_own_reasoning(part, out) && follows
    })
}

fn is_own_block(part: &Part, out: &Writer<'_>) -> bool {
    match &part.kind {
        PartKind::ProviderBlock { provider, data } => {
            *provider == out.options.provider && !is_content_part(data) && !is_result(part)
        }
        _ => false,
    }
}

/// The id of the item that a text was.
fn message_id<'a>(part: &'a Part, out: &Writer<'_>) -> Option<&'a str> {
    let id = part
        .provider_text("id")
        .filter(|_| matches!(part.kind, PartKind::Text(_)));
    id.filter(|id| part.is_of(out.options) && is_item(id, "msg") && !part.withheld)
}

/// The id and the content of reasoning that can go back.
fn own_reasoning<'a>(part: &'a Part, out: &Writer<'_>) -> Option<(&'a str, &'a str)> {
    let id = part
        .provider_text("id")
        .filter(|id| is_item(id, "rs") && !part.withheld)?;
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
            let phase = part
                .provider_text("phase")
                .filter(|_| part.is_of(out.options));
            let Some(id) = message_id(part, out).filter(|_| keeps_ids) else {
                return Some(spoken(&text, phase));
            };
            Some(Item::new(true, |item| {
                item.field("type", "message")
                    .field("role", "assistant")
                    .field("id", id)
                    .field("status", "completed");
                if let Some(phase) = phase {
                    item.field("phase", phase);
                }
                item.list("content", |list| {
                    list.object(|written| {
                        written.field("type", "output_text").text("text", &text);
                        match part.provider_list(out.options, "annotations") {
                            Some(annotations) => written.field("annotations", &AsJson(annotations)),
                            None => written.raw("annotations", "[]"),
                        };
                    });
                });
            }))
        }
        PartKind::Thinking(_) => reasoning(part, out),
        PartKind::ProviderBlock { .. } => {
            let data = match out.block(part) {
                Block::Own(data) => data,
                Block::Words(words) => return Some(easy_message(&words)),
                Block::Nothing => return None,
            };
            if is_content_part(data) {
                // A part of a message, which has no message here.
                out.dropped(part);
                return None;
            }
            Some(own_item(data, !is_result(part)))
        }
        PartKind::Image { .. }
        | PartKind::Audio { .. }
        | PartKind::Video { .. }
        | PartKind::File { .. } => Some(easy_message(&out.media_words(part))),
        PartKind::RedactedThinking(_) => {
            out.dropped(part);
            None
        }
    }
}

/// Whether it is what a tool of the provider gave, and not what the model made.
fn is_result(part: &Part) -> bool {
    part.half().is_some_and(|half| half.is_result)
}

fn own_item(data: &Map, follows: bool) -> Item {
    let mut json = Json::default();
    json.value(&AsObject(data));
    Item {
        json: json.0,
        follows,
        is_reasoning: false,
    }
}

fn is_content_part(data: &Map) -> bool {
    match data.get_named("type").and_then(Value::as_name) {
        // Every item but those of a role has a type.
        None => data.get_named("role").is_none(),
        Some(kind) => matches!(
            kind,
            "output_text" | "refusal" | "input_text" | "input_image" | "input_file"
        ),
    }
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
