//! Reads the responses of OpenAI Responses: one response, or events that make one.
//!
//! An item is complete and final when its `output_item.done` comes: its ids, texts and encrypted reasoning may differ from those
//! in earlier events. The closing event repeats all items, or none.

use super::calls;
use super::facts::ItemForm;
use super::{read_calls, texts, Room, PROVIDER};
use crate::fault::Fault;
use crate::log::call::ToolCall;
use crate::log::kind::CallKind;
use crate::log::reply::Finish;
use crate::provider::block::Opaque;
use crate::provider::draft::{Draft, Key};
use crate::provider::figures::{FigureKind::*, Figures};
use crate::provider::foreign::{self, at, name_at};
use crate::provider::format::Responds;
use crate::provider::node::{self, Node};
use crate::value::letters::utf8;
use crate::value::Value;

/// Marks an answer whose items the API keeps.
const STORED: Key = Key::Only("stored");

/// The field with how far an item came.
const STATUS: &str = "status";

/// The offset for indexes of the closing event's list where the stream has another item there.
const BEHIND: u64 = 1 << 32;

impl Responds for Room {
    fn figures(&self) -> &'static Figures {
        &Figures {
            keys: &[
                (Around, &["usage"]),
                (Input, &["input_tokens"]),
                (Output, &["output_tokens"]),
                (Total, &["total_tokens"]),
                (InputDetails, &["input_tokens_details"]),
                (Cached, &["cached_tokens"]),
                (Written, &["cache_write_tokens"]),
                (OutputDetails, &["output_tokens_details"]),
                (Reasoning, &["reasoning_tokens"]),
            ],
            ..Figures::NONE
        }
    }

    fn read_response(&self, draft: &mut Draft, node: &Node<'_>) -> Result<(), Fault> {
        let Some(kind) = node::text(node, "type") else {
            Fault::check(node)?;
            if node::get(node, "output").is_some() || node::text(node, "object") == Some("response")
            {
                return read_whole(draft, node, None);
            }
            return Err(match node::get(node, "choices") {
                Some(_) => Fault::unreadable(
                    "a chat completion: the server speaks :openai_chat, not :openai_responses",
                ),
                None => Fault::neither(node, "neither a response nor an event of one"),
            });
        };
        let index = node::number(node, "output_index").unwrap_or(0);
        let key = Key::Index(index);
        let piece = |name| node::number(node, name).unwrap_or(0);
        let said = || node::text(node, "delta").unwrap_or_default();
        let (item, response) = (|| node::get(node, "item"), || node::get(node, "response"));
        match kind {
            "response.output_text.delta" => speak(draft, index, piece("content_index"), said()),
            "response.refusal.delta" => {
                draft.refuse();
                speak(draft, index, piece("content_index"), said());
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                draft.arguments(&key, said());
            }
            "response.reasoning_summary_text.delta" => {
                draft.next_piece(&key, piece("summary_index"));
                draft.thinking(key, said());
            }
            "response.reasoning_text.delta" => {
                draft.next_piece(&key, piece("content_index"));
                draft.thinking(key, said());
            }
            "response.output_item.added" => {
                if let Some(item) = item() {
                    begin_item(draft, key, item);
                }
            }
            "response.output_item.done" => {
                return item().map_or(Ok(()), |item| read_item(draft, index, item));
            }
            "response.completed" | "response.incomplete" => {
                let closed = kind.strip_prefix("response.");
                return response().map_or(Ok(()), |response| read_whole(draft, response, closed));
            }
            "response.created" | "response.in_progress" | "response.queued" => {
                if let Some(response) = response() {
                    start(draft, response);
                }
            }
            "response.failed" => {
                let failed = || Fault::provider(Some("failed"), None);
                draft.count_tokens(response().and_then(|failed| node::get(failed, "usage")));
                return Err(Fault::of(response().unwrap_or(node)).unwrap_or_else(failed));
            }
            "error" => return Err(Fault::of(node).unwrap_or_else(|| Fault::read(node))),
            _ => {}
        }
        Ok(())
    }
}

/// Adds to a message's text. Some gateways number the parts of all messages together.
fn speak(draft: &mut Draft, item: u64, part: u64, text: &str) {
    let key = Key::Piece(item, part);
    let first = Key::Piece(item, 0);
    // Most texts are the first of their item, and have its key.
    let begins = part > 0 && !draft.knows(&key) && !draft.knows(&first);
    draft.text(key.clone(), text);
    if begins {
        draft.name_also(&key, first);
    }
}

fn start(draft: &mut Draft, response: &Node<'_>) {
    draft.start(node::text(response, "id"), node::text(response, "model"));
    if node::is_true(response, "store") {
        draft.mark(STORED);
    }
}

/// Reads a whole response, or the closing event, which names the status as `closed`.
fn read_whole(draft: &mut Draft, response: &Node<'_>, closed: Option<&str>) -> Result<(), Fault> {
    start(draft, response);
    let is_open = |status: &&str| matches!(*status, "in_progress" | "queued");
    let status = node::filled_text(response, "status");
    let status = status.filter(|status| closed.is_none() || !is_open(status));
    let status = status.or(closed).unwrap_or("completed");
    if is_open(&status) {
        // Its items are not final.
        return Err(Fault::Queued);
    }
    // The stream's indexes may have gaps that this list lacks, and ids may differ between the two.
    let is_done = |item| closed.is_some() && identity(item).is_some_and(|key| draft.knows(&key));
    let more = node::list(response, "output").iter().zip(0..);
    let more: Vec<(&Node<'_>, u64)> = more.filter(|(item, _)| !is_done(item)).collect();
    for (item, index) in more {
        let is_anothers = draft.knows(&Key::Whole(index)) && !draft.knows(&place(index, item));
        let behind = if is_anothers { BEHIND } else { 0 };
        read_item(draft, behind + index, item)?;
    }
    draft.count_tokens(node::get(response, "usage"));
    draft.put_tier(node::text(response, "service_tier"));
    draft.keep(response, &["prompt_cache_diagnostics"]);
    Fault::check(response)?;
    let word = node::dig(response, &["incomplete_details", "reason"]).and_then(Node::as_str);
    let (reason, word) = match (status, word) {
        ("incomplete", Some("content_filter")) => (Finish::ContentFilter, "content_filter"),
        ("incomplete", word) => (Finish::Length, word.unwrap_or("incomplete")),
        ("failed" | "cancelled", _) => (Finish::Error, status),
        _ => (Finish::Stop, status),
    };
    draft.finish(reason, word);
    draft.end()
}

/// Returns the key by which an item is known, as in OpenAI's SDK.
fn identity(item: &Node<'_>) -> Option<Key> {
    let kind = node::text(item, "type")?;
    let id = node::filled_text(item, "call_id").or_else(|| node::filled_text(item, "id"))?;
    Some(Key::Id(format!("{kind} {id}").into()))
}

/// Returns the key for the item at this place.
fn place(index: u64, item: &Node<'_>) -> Key {
    let kind = node::text(item, "type").unwrap_or_default();
    Key::Id(format!("{index}: {kind}").into())
}

/// Opens a call of a function or a custom tool, whose arguments come piece by piece. An item that comes as a whole gets its place
/// now, since items after it may be complete earlier.
fn begin_item(draft: &mut Draft, key: Key, item: &Node<'_>) {
    let kind = node::text(item, "type").filter(|_| !draft.knows(&key));
    let Some(form) = kind.and_then(ItemForm::of_call) else {
        match kind {
            None | Some("message") => {}
            Some("reasoning") => {
                draft.open_words(&key, true);
                draft.show_empty(&key);
            }
            Some(_) => draft.open_opaque(key, Opaque::default()),
        }
        return;
    };
    if matches!(form.kind, CallKind::Function | CallKind::Custom) {
        let (id, name) = (node::text(item, "call_id"), node::text(item, "name"));
        draft.open_call_of(form.kind, key.clone(), id, name);
        draft.arguments(&key, node::text(item, form.arguments).unwrap_or_default());
        // If the call breaks off, it goes back with them.
        for name in form.kept.iter().filter(|name| **name != STATUS) {
            if let Some(Ok(value)) = node::get(item, name).map(node::to_value) {
                draft.note(&key, name, value);
            }
        }
    }
}

/// Reads a call for the application, of any kind.
fn read_call(item: &Node<'_>) -> Result<Option<ToolCall>, Fault> {
    let Some(form) = node::text(item, "type").and_then(ItemForm::of_call) else {
        return Ok(None);
    };
    let item = node::to_value(item)?;
    if calls::is_served(&item) {
        return Ok(None);
    }
    // A call that fits none of the API's forms is kept as it came.
    Ok(read_calls::call(form, &item).unwrap_or(None))
}

/// Reads a complete item, once.
fn read_item(draft: &mut Draft, index: u64, item: &Node<'_>) -> Result<(), Fault> {
    let seen = Key::Whole(index);
    if draft.knows(&seen) {
        return Ok(());
    }
    draft.mark(place(index, item));
    if let Some(identity) = identity(item) {
        draft.mark(identity);
    }
    let key = Key::Index(index);
    match node::text(item, "type") {
        Some("message") => read_message(draft, index, item)?,
        Some("reasoning") => read_reasoning(draft, &key, item)?,
        Some(_) => {
            if let Some(call) = read_call(item)? {
                begin_item(draft, key.clone(), item);
                // The arguments of an item that broke off may look complete.
                let broke_off = node::text(item, "status") == Some("incomplete");
                if !broke_off || !draft.knows(&key) {
                    draft.put_call(&key, call)?;
                }
            } else {
                let part = foreign::own_block(PROVIDER, node::to_map(item)?);
                draft.put_part(key, part);
            }
        }
        None => {}
    }
    draft.mark(seen);
    Ok(())
}

fn read_message(draft: &mut Draft, index: u64, item: &Node<'_>) -> Result<(), Fault> {
    let item = node::to_value(item)?;
    let Some(Value::List(content)) = at(&item, "content") else {
        return Ok(());
    };
    let of_message = texts::message_notes(&item);
    for (part, position) in content.iter().zip(0..) {
        let key = Key::Piece(index, position);
        let Some(words) = texts::words_key(part) else {
            if let Ok(part) = foreign::provider_block(PROVIDER, part.clone()) {
                draft.put_part(key, part);
            }
            continue;
        };
        if words == texts::REFUSAL {
            draft.refuse();
        }
        let text = name_at(part, words).unwrap_or_default();
        if !text.is_empty() || texts::may_be_empty(&of_message) {
            let notes = texts::text_notes(part, &of_message).unwrap_or_default();
            draft.open_words(&key, false);
            draft.put_text(key.clone(), text, false);
            draft.note_all(&key, notes);
            draft.show_empty(&key);
            draft.close(&key)?;
        }
    }
    Ok(())
}

fn read_reasoning(draft: &mut Draft, key: &Key, item: &Node<'_>) -> Result<(), Fault> {
    let item = node::to_value(item)?;
    let (words, notes) = texts::reasoning(&item, draft.knows(&STORED)).unwrap_or_default();
    draft.open_words(key, true);
    draft.put_text(key.clone(), &utf8(&words), true);
    draft.note_all(key, notes);
    draft.close(key)
}
