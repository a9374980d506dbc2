//! Reads the responses of Bedrock Converse: one answer, or the events of ConverseStream.
//!
//! No event begins a text or reasoning. Every event has random padding, `p`.

use super::read::{assistant_part, is_served};
use super::Room;
use std::sync::Arc;

use crate::fault::Fault;
use crate::log::part::{Part, PartKind};
use crate::log::reply::Finish;
use crate::prices::bill::Count;
use crate::provider::block::{arguments, Opaque};
use crate::provider::draft::{Draft, Key};
use crate::provider::figures::{Billed, FigureKind::*, Figures};
use crate::provider::format::Responds;
use crate::provider::framing::Framing;
use crate::provider::node::{self, Node};
use crate::value::letters::utf8;
use crate::value::{Map, Value};

impl Responds for Room {
    fn figures(&self) -> &'static Figures {
        &Figures {
            keys: &[
                (Around, &["usage"]),
                (Input, &["inputTokens"]),
                (CacheRead, &["cacheReadInputTokens"]),
                (CacheWritten, &["cacheWriteInputTokens"]),
                (Output, &["outputTokens"]),
                (Total, &["totalTokens"]),
            ],
            billed: &BILLED,
            ..Figures::NONE
        }
    }

    fn framing(&self) -> Framing {
        Framing::EventStream
    }

    fn read_response(&self, draft: &mut Draft, node: &Node<'_>) -> Result<(), Fault> {
        if let Some(message) = node::dig(node, &["output", "message"]) {
            for (block, index) in node::list(message, "content").iter().zip(0..) {
                read_block(draft, Key::Index(index), block)?;
            }
            count(draft, node);
            stop(draft, node)?;
            return draft.end();
        }
        // Gateways send an event in an object under its name.
        if let Node::Object(entries) = node {
            if let [(name, inner @ Node::Object(_))] = &**entries {
                return self.read_event(draft, name, inner);
            }
        }
        Err(Fault::neither(
            node,
            "neither an answer of Converse nor an event of one",
        ))
    }

    fn read_event(&self, draft: &mut Draft, name: &str, event: &Node<'_>) -> Result<(), Fault> {
        let key = Key::Index(node::number(event, "contentBlockIndex").unwrap_or(0));
        match name {
            "contentBlockDelta" => {
                node::get(event, "delta").map_or(Ok(()), |delta| read_delta(draft, &key, delta))
            }
            "contentBlockStart" => {
                node::get(event, "start").map_or(Ok(()), |start| read_start(draft, key, start))
            }
            "contentBlockStop" => draft.close(&key),
            "messageStop" => stop(draft, event),
            "metadata" => {
                count(draft, event);
                Ok(())
            }
            name if name.to_ascii_lowercase().ends_with("exception") => {
                Err(Fault::provider(Some(name), node::text(event, "message")))
            }
            _ => Ok(()),
        }
    }
}

/// Reads the tokens, and the other metrics that are reported.
fn count(draft: &mut Draft, node: &Node<'_>) {
    draft.count_tokens(node::get(node, "usage"));
    let tier = node::dig(node, &["serviceTier", "type"]);
    draft.put_tier(tier.and_then(Node::as_str));
    draft.keep(node, &["trace", "serviceTier"]);
}

fn read_start(draft: &mut Draft, key: Key, start: &Node<'_>) -> Result<(), Fault> {
    if let Some(tool) = node::get(start, "toolUse") {
        if is_served(node::text(tool, "type")) {
            let data = node::to_map(tool)?.put(Value::text("input"), Value::Map(Map::default()));
            open(draft, key, data, Some("input"), "toolUse");
            return Ok(());
        }
        draft.open_call(key, node::text(tool, "toolUseId"), node::text(tool, "name"));
    } else if let Some(result) = node::get(start, "toolResult") {
        let none = Value::List(Box::default());
        let data = node::to_map(result)?.put(Value::text("content"), none);
        open(draft, key, data, None, "toolResult");
    } else if let Some(image) = node::get(start, "image") {
        open(draft, key, node::to_map(image)?, None, "image");
    }
    Ok(())
}

fn open(draft: &mut Draft, key: Key, data: Map, input: Option<&'static str>, around: &'static str) {
    let opaque = Opaque {
        data: Arc::new(data),
        input,
        around: Some(around),
    };
    draft.open_opaque(key, opaque);
}

fn read_delta(draft: &mut Draft, key: &Key, delta: &Node<'_>) -> Result<(), Fault> {
    if let Some(text) = node::text(delta, "text") {
        draft.text(key.clone(), text);
    } else if let Some(tool) = node::get(delta, "toolUse") {
        draft.arguments(key, node::text(tool, "input").unwrap_or_default());
    } else if let Some(reasoning) = node::get(delta, "reasoningContent") {
        if let Some(text) = node::text(reasoning, "text") {
            draft.thinking(key.clone(), text);
        }
        if let Some(signature) = node::filled_text(reasoning, "signature") {
            draft.open_words(key, true);
            draft.sign(key, Some(signature));
        }
        for name in ["redactedContent", "data"] {
            if let Some(data) = node::filled_text(reasoning, name) {
                draft.add_redacted(key.clone(), data);
            }
        }
    } else if let Some(results) = node::get(delta, "toolResult") {
        for result in node::as_list(results) {
            draft.note_more(key, "content", node::to_value(result)?);
        }
    } else if let Some(citation) = node::get(delta, "citation") {
        draft.open_words(key, false);
        draft.note_more(key, "citations", node::to_value(citation)?);
        draft.show_empty(key);
    } else if let Some(source) = node::dig(delta, &["image", "source"]) {
        draft.note(key, "source", node::to_value(source)?);
    }
    Ok(())
}

fn read_block(draft: &mut Draft, key: Key, block: &Node<'_>) -> Result<(), Fault> {
    let called = node::get(block, "toolUse").filter(|of| !is_served(node::text(of, "type")));
    if let Some(tool) = called {
        let id = node::text(tool, "toolUseId");
        draft.open_call(key.clone(), id, node::text(tool, "name"));
        if let Some(input) = arguments(node::get(tool, "input"))? {
            draft.seed_arguments(&key, input);
        }
    } else if let Ok(part) = assistant_part(node::to_value(block)?) {
        put_part(draft, &key, part);
    }
    draft.close(&key)
}

/// Puts a whole part, in the same way as one that comes piece by piece.
fn put_part(draft: &mut Draft, key: &Key, part: Part) {
    let noted = |name| Some((name, part.noted(name)?.clone()));
    let notes = [noted("citations"), noted("signature")];
    let (PartKind::Text(text) | PartKind::Thinking(text)) = &part.kind else {
        return draft.put_part(key.clone(), part);
    };
    let thinks = part.kind.is_thinking();
    draft.open_words(key, thinks);
    draft.say(key.clone(), &utf8(text), thinks);
    for (name, value) in notes.into_iter().flatten() {
        draft.note(key, name, value);
        draft.show_empty(key);
    }
}

fn stop(draft: &mut Draft, node: &Node<'_>) -> Result<(), Fault> {
    draft.keep(node, &["additionalModelResponseFields"]);
    let Some(word) = node::filled_text(node, "stopReason") else {
        return Ok(());
    };
    // `StopReason` of botocore's model, to which AWS adds failures.
    let reason = match word {
        "end_turn" | "stop_sequence" => Finish::Stop,
        "tool_use" => Finish::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" => Finish::Length,
        "guardrail_intervened" | "content_filtered" => Finish::ContentFilter,
        "refusal" => Finish::Refusal,
        _ => Finish::Error,
    };
    draft.finish(reason, word);
    Ok(())
}

const BILLED: [Billed; 1] = [Billed {
    under: &["cacheDetails"],
    of: Some(("ttl", "1h")),
    number: &["inputTokens"],
    count: Count::WrittenHour,
}];
