//! Reads the responses of Anthropic Messages: one message, or events that make one.

use super::{Room, CALLED};
use std::sync::Arc;

use crate::fault::Fault;
use crate::log::part::PartKind;
use crate::log::provider::Provider;
use crate::log::reply::Finish;
use crate::prices::bill::{Count, Term};
use crate::provider::block::{arguments, Opaque};
use crate::provider::draft::{Draft, Key};
use crate::provider::figures::{Billed, FigureKind::*, Figures};
use crate::provider::foreign::{declined_call, metadata, part};
use crate::provider::format::Responds;
use crate::provider::node::{self, Node};

impl Responds for Room {
    fn figures(&self) -> &'static Figures {
        &Figures {
            keys: &[
                (Around, &["usage"]),
                (Input, &["input_tokens"]),
                (CacheRead, &["cache_read_input_tokens"]),
                (CacheWritten, &["cache_creation_input_tokens"]),
                (Output, &["output_tokens"]),
                (OutputDetails, &["output_tokens_details"]),
                (Reasoning, &["thinking_tokens"]),
            ],
            billed: &BILLED,
            terms: &[
                ("service_tier", Term::Tier),
                ("speed", Term::Speed),
                ("inference_geo", Term::Geo),
            ],
            parts: &["iterations"],
        }
    }

    fn read_response(&self, draft: &mut Draft, node: &Node<'_>) -> Result<(), Fault> {
        let index = Key::Index(node::number(node, "index").unwrap_or(0));
        match node::text(node, "type") {
            Some("content_block_delta") => delta(draft, &index, node),
            Some("content_block_start") => node::get(node, "content_block")
                .map_or(Ok(()), |inner| start_block(draft, index, inner)),
            Some("content_block_stop") => draft.close(&index),
            Some("message_start") => {
                node::get(node, "message").map_or(Ok(()), |inner| start(draft, inner))
            }
            Some("message_delta") => {
                draft.count_more_tokens(node::get(node, "usage"));
                draft.keep(node, &DETAILS);
                draft.keep_object(node, DIAGNOSTICS);
                node::get(node, "delta").map_or(Ok(()), |delta| stop_reason(draft, delta))
            }
            Some("message_stop") => draft.end(),
            Some("message") => {
                start(draft, node)?;
                draft.end()
            }
            _ => match Fault::of(node) {
                Some(fault) => Err(fault),
                // Events such as `ping`, and new ones.
                None if node::text(node, "type").is_some() => Ok(()),
                None => Err(Fault::neither(
                    node,
                    "neither a message nor an event of one",
                )),
            },
        }
    }
}

/// Reads the message as it begins, or all of it. A gateway that repeated the request begins another one.
fn start(draft: &mut Draft, message: &Node<'_>) -> Result<(), Fault> {
    if draft.count() > 0 {
        draft.begin_again();
    }
    draft.start(node::text(message, "id"), node::text(message, "model"));
    draft.count_more_tokens(node::get(message, "usage"));
    for (block, index) in node::list(message, "content").iter().zip(0..) {
        // Its own keys, since later events number from 0 again.
        let key = Key::Whole(index);
        start_block(draft, key.clone(), block)?;
        draft.close(&key)?;
    }
    stop_reason(draft, message)
}

fn start_block(draft: &mut Draft, key: Key, block: &Node<'_>) -> Result<(), Fault> {
    let Some(kind) = node::filled_text(block, "type") else {
        return Err(Fault::unreadable("a content block without a type"));
    };
    let is_whole = matches!(key, Key::Whole(_));
    match kind {
        "text" => {
            let text = words(block, "text", is_whole)?;
            draft.open_words(&key, false);
            for citation in node::list(block, "citations") {
                draft.note_more(&key, "citations", node::to_value(citation)?);
            }
            draft.text(key, text);
        }
        "thinking" => {
            let text = words(block, "thinking", is_whole)?;
            draft.open_words(&key, true);
            draft.thinking(key.clone(), text);
            draft.sign(&key, node::text(block, "signature"));
        }
        "redacted_thinking" => {
            let data = node::text(block, "data").unwrap_or_default();
            let kind = PartKind::RedactedThinking(data.into());
            draft.put_part(key, part(kind, Some(metadata(Provider::Anthropic, &[]))));
        }
        "tool_use" => {
            if node::filled_text(block, "name").is_none() {
                return Err(Fault::unreadable("a tool_use block without a name"));
            }
            let id = node::text(block, "id");
            draft.open_call(key.clone(), id, node::text(block, "name"));
            for name in CALLED {
                if let Some(value) = node::get(block, name) {
                    draft.note(&key, name, node::to_value(value)?);
                }
            }
            // An empty object is a placeholder when the arguments are to come.
            let input = node::get(block, "input");
            if let (Some(read), true) =
                (arguments(input)?, input.is_some_and(node::is_filled_object))
            {
                draft.seed_arguments(&key, read);
            }
        }
        kind => {
            if kind == "fallback" {
                draft.decline_calls(declined_call)?;
                let to = node::dig(block, &["to", "model"]).and_then(Node::as_str);
                draft.start(None, to);
            }
            let has_input = matches!(node::get(block, "input"), Some(Node::Object(_)));
            let opaque = Opaque {
                data: Arc::new(node::to_map(block)?),
                input: has_input.then_some("input"),
                around: None,
            };
            draft.open_opaque(key, opaque);
        }
    }
    Ok(())
}

/// Returns the words of a block or of more of it. Servers leave out empty ones where more are to come.
fn words<'n>(node: &'n Node<'_>, name: &'static str, needed: bool) -> Result<&'n str, Fault> {
    let words = match node::get(node, name) {
        None => (!needed).then_some(""),
        Some(words) => words.as_str(),
    };
    words.ok_or_else(|| Fault::unreadable(format!("{name} that is not text")))
}

fn delta(draft: &mut Draft, key: &Key, event: &Node<'_>) -> Result<(), Fault> {
    let Some(delta) = node::get(event, "delta") else {
        return Ok(());
    };
    let words = |name| words(delta, name, false);
    match words("type")? {
        "text_delta" => draft.text(key.clone(), words("text")?),
        "thinking_delta" => draft.thinking(key.clone(), words("thinking")?),
        "input_json_delta" => draft.arguments(key, words("partial_json")?),
        "signature_delta" => draft.sign(key, node::text(delta, "signature")),
        "citations_delta" => {
            if let Some(citation) = node::get(delta, "citation") {
                draft.note_more(key, "citations", node::to_value(citation)?);
            }
        }
        "compaction_delta" => {
            for name in ["content", "encrypted_content"] {
                if let Some(value) = node::get(delta, name) {
                    draft.note(key, name, node::to_value(value)?);
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// The fields about an answer, some of which stand beside the last event's delta.
const DETAILS: [&str; 4] = [
    "container",
    "context_management",
    "stop_details",
    "stop_sequence",
];

/// The diagnosis of the prompt cache, if the request asked for one. Its reason is null while the provider is still looking.
const DIAGNOSTICS: &str = "diagnostics";

fn stop_reason(draft: &mut Draft, node: &Node<'_>) -> Result<(), Fault> {
    draft.keep(node, &DETAILS);
    draft.keep_object(node, DIAGNOSTICS);
    let Some(word) = node::filled_text(node, "stop_reason") else {
        return Ok(());
    };
    draft.finish(reason(word), word);
    Ok(())
}

/// Follows `BetaStopReason` of the vendor's SDK, whose own loop runs no tools after a word that it does not know. Relays pass on
/// words of chat servers.
fn reason(word: &str) -> Finish {
    match word {
        "end_turn" | "stop_sequence" | "stop" => Finish::Stop,
        "tool_use" | "tool_calls" => Finish::ToolCalls,
        "max_tokens" | "model_context_window_exceeded" | "length" => Finish::Length,
        "refusal" => Finish::Refusal,
        "content_filter" => Finish::ContentFilter,
        "pause_turn" | "compaction" => Finish::Pause,
        _ => Finish::Error,
    }
}

const BILLED: [Billed; 2] = [
    Billed {
        under: &["cache_creation"],
        of: None,
        number: &["ephemeral_1h_input_tokens"],
        count: Count::WrittenHour,
    },
    Billed {
        under: &["server_tool_use"],
        of: None,
        number: &["web_search_requests"],
        count: Count::Searches,
    },
];
