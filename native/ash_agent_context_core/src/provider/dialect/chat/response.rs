//! What OpenAI Chat Completions and the servers that speak it send: one completion, or chunks of one.
//!
//! The vendor merges by `index` alone. Others leave the index out, begin with another one, use one
//! twice, repeat ids and names in each chunk, or send the whole arguments again.

use crate::fault::Fault;
use crate::log::kind::CallKind;
use crate::log::part::PartKind;
use crate::log::reply::Finish;
use crate::provider::block::arguments;
use crate::provider::dialect::chat::read::EXTRA;
use crate::provider::draft::{Draft, Key};
use crate::provider::figures::Figures;
use crate::provider::foreign;
use crate::provider::format::{Reports, Responds};
use crate::provider::node::{self, Kind, Node};
use crate::value::Value;

const CONTENT: Key = Key::Only("content");
const REASONING: Key = Key::Only("reasoning");
const REFUSAL: Key = Key::Only("refusal");
const LATEST: Key = Key::Only("call");

/// A room whose responses are chat completions, and whose reports on tokens theirs.
pub(crate) trait Completions: Sync {}

impl<Room: Completions> Responds for Room {
    fn has_text_arguments(&self) -> bool {
        true
    }

    fn says_done(&self) -> bool {
        true
    }

    fn ends_with_body(&self) -> bool {
        true
    }

    fn read_response(
        &self,
        draft: &mut Draft,
        _event: Option<&str>,
        node: &Node<'_>,
    ) -> Result<(), Fault> {
        read(draft, node)
    }
}

impl<Room: Completions> Reports for Room {
    fn figures(&self) -> &'static Figures {
        &FIGURES
    }
}

/// OpenAI's keys, and what DeepSeek calls the hits of its cache.
const FIGURES: Figures = Figures {
    around: &["usage"],
    whole_input: &["prompt_tokens"],
    output: &["completion_tokens"],
    total: &["total_tokens"],
    cached: &["cached_tokens", "prompt_cache_hit_tokens"],
    written: &["cache_write_tokens"],
    reasoning: &["reasoning_tokens"],
    input_details: &["prompt_tokens_details"],
    output_details: &["completion_tokens_details"],
    ..Figures::NONE
};

/// Reads a chunk, or a whole completion.
fn read(draft: &mut Draft, node: &Node<'_>) -> Result<(), Fault> {
    if let Some(fault) = Fault::of(node) {
        return Err(fault);
    }
    let Some(choices) = node::get(node, "choices").map(node::as_list) else {
        return match node::get(node, "usage") {
            Some(usage) => {
                draft.count_tokens(usage);
                Ok(())
            }
            // Some gateways send events of their own.
            None if draft.count() > 0 || node::get(node, "id").is_some() => Ok(()),
            None => Err(Fault::neither(
                node,
                "neither a completion nor a chunk of one",
            )),
        };
    };
    draft.start(node::text(node, "id"), node::text(node, "model"));
    // Further candidates are nobody's answer.
    let first = |choice: &&Node<'_>| node::number(choice, "index").unwrap_or(0) == 0;
    if let Some(choice) = choices.iter().find(first) {
        read_choice(draft, choice)?;
    }
    let usage = node::get(node, "usage").or_else(|| node::dig(node, &["x_groq", "usage"]));
    if let Some(usage) = usage {
        draft.count_tokens(usage);
    }
    if choices
        .iter()
        .any(|choice| node::get(choice, "message").is_some())
    {
        return draft.end();
    }
    Ok(())
}

fn read_choice(draft: &mut Draft, choice: &Node<'_>) -> Result<(), Fault> {
    if let Some(fault) = Fault::of(choice) {
        return Err(fault);
    }
    let whole = node::get(choice, "message");
    if let Some(message) = whole.or_else(|| node::get(choice, "delta")) {
        reasoning(draft, message)?;
        content(draft, message)?;
        if let Some(refusal) = node::filled(message, "refusal") {
            draft.refuse();
            draft.text(REFUSAL, refusal);
        }
        let calls = node::list(message, "tool_calls");
        for call in calls {
            read_call(draft, call, whole.is_some())?;
        }
        let legacy =
            node::get(message, "function_call").filter(|call| node::is_filled_object(call));
        if let (Some(function), true) = (legacy, calls.is_empty()) {
            let key = match draft.knows(&LATEST) {
                true => LATEST,
                false => begin(draft, None, None, CallKind::Function),
            };
            read_function(draft, &key, function)?;
        }
    }
    let Some(word) = node::filled(choice, "finish_reason") else {
        return Ok(());
    };
    let reason = match word {
        "tool_calls" | "function_call" => Finish::ToolCalls,
        "length" | "model_length" | "max_tokens" => Finish::Length,
        "content_filter" => Finish::ContentFilter,
        "error" | "insufficient_system_resource" => Finish::Error,
        _ => Finish::Stop,
    };
    draft.finish_all(reason, word)
}

fn reasoning(draft: &mut Draft, message: &Node<'_>) -> Result<(), Fault> {
    let names = ["reasoning_content", "reasoning"];
    if let Some(text) = names.iter().find_map(|name| node::filled(message, name)) {
        draft.thinking(REASONING, text);
    }
    for detail in node::list(message, "reasoning_details") {
        let field = match node::text(detail, "type") {
            Some("reasoning.summary") => "summary",
            Some("reasoning.encrypted") => "data",
            _ => "text",
        };
        let text = node::text(detail, field).unwrap_or_default();
        draft.detail(node::to_map(detail)?, field, text);
    }
    Ok(())
}

/// A text, or a list of texts and thoughts in their order, as Mistral has it.
fn content(draft: &mut Draft, message: &Node<'_>) -> Result<(), Fault> {
    match node::get(message, "content").map(Node::kind) {
        Some(Kind::Text(text)) => match draft.last_text(false) {
            Some(last) if draft.knows(&Key::Only("list")) => draft.text(last, text),
            _ => draft.text(CONTENT, text),
        },
        Some(Kind::List(items)) => {
            for item in items {
                read_item(draft, item)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn read_item(draft: &mut Draft, item: &Node<'_>) -> Result<(), Fault> {
    if !matches!(item, Node::Object(_)) {
        return Err(Fault::unreadable("a content element that is not an object"));
    }
    let (text, thinks) = match node::text(item, "type") {
        Some("text") => (
            node::text(item, "text").unwrap_or_default().to_owned(),
            false,
        ),
        Some("thinking") => match node::get(item, "thinking").map(Node::kind) {
            Some(Kind::Text(text)) => (text.to_owned(), true),
            Some(Kind::List(pieces)) => {
                let pieces = pieces.iter().filter_map(|piece| node::text(piece, "text"));
                (pieces.collect(), true)
            }
            _ => return Ok(()),
        },
        Some("refusal") => {
            draft.refuse();
            let text = node::text(item, "refusal").unwrap_or_default();
            (text.to_owned(), false)
        }
        _ => {
            let part = PartKind::ProviderBlock {
                provider: draft.provider,
                data: node::to_map(item)?,
            };
            let part = foreign::part(part, None);
            draft.put_part(draft.next_key(), part);
            return Ok(());
        }
    };
    if text.is_empty() {
        return Ok(());
    }
    let key = match draft.last_text(thinks) {
        Some(last) => last,
        None => draft.next_key(),
    };
    draft.text_or_thinking(key.clone(), &text, thinks);
    draft.name_also(&key, Key::Only("list"));
    if let Some(signature) = node::filled(item, "signature") {
        draft.note(&key, "signature", Value::text(signature));
    }
    Ok(())
}

/// A call, or a piece of one: that of its id if it has one, else that of its index, else the latest.
fn read_call(draft: &mut Draft, call: &Node<'_>, is_whole: bool) -> Result<(), Fault> {
    let id = node::filled(call, "id");
    let index = node::number(call, "index");
    let function = node::get(call, "function").filter(|function| node::is_filled_object(function));
    let custom = node::get(call, "custom").filter(|custom| node::is_filled_object(custom));
    let custom = custom.filter(|_| function.is_none());
    let called = function.or(custom);
    let name = called.and_then(|called| node::filled(called, "name"));
    let kind = match custom {
        Some(_) => CallKind::Custom,
        None => CallKind::Function,
    };
    let json = function.and_then(|function| node::text(function, "arguments"));
    let known = if is_whole {
        None
    } else {
        find(draft, id, index, name)
    };
    let key = match known {
        Some(key) if id.is_some() || name.is_none() || !draft.restarts(&key, json) => key,
        _ => begin(draft, id, index, kind),
    };
    if let Some(id) = id {
        draft.identify_call(&key, id);
        draft.name_also(&key, Key::Id(id.into()));
    }
    if let Some(extra) = node::get(call, EXTRA) {
        draft.note(&key, EXTRA, node::to_value(extra)?);
    }
    if let Some(called) = called {
        read_function(draft, &key, called)?;
    }
    Ok(())
}

fn find(
    draft: &mut Draft,
    id: Option<&str>,
    index: Option<u64>,
    name: Option<&str>,
) -> Option<Key> {
    let known = |draft: &Draft, key: Key| draft.knows(&key).then_some(key);
    if let Some(id) = id {
        let by_id = known(draft, Key::Id(id.into()));
        // A call with a name and another id is another one, even where it has the same index.
        let mut by_index = || {
            let key = known(draft, Key::Call(index?))?;
            let is_its = name.is_none() || draft.id_of_call(&key).is_none_or(str::is_empty);
            is_its.then_some(key)
        };
        return by_id.or_else(&mut by_index);
    }
    if let Some(index) = index {
        let latest = || known(draft, LATEST).filter(|_| name.is_none());
        return known(draft, Key::Call(index)).or_else(latest);
    }
    known(draft, LATEST).filter(|_| name.is_none())
}

fn begin(draft: &mut Draft, id: Option<&str>, index: Option<u64>, kind: CallKind) -> Key {
    let key = draft.next_key();
    draft.open_call_of(kind, key.clone(), id, None);
    draft.name_also(&key, LATEST);
    if let Some(index) = index {
        draft.name_also(&key, Key::Call(index));
    }
    key
}

fn read_function(draft: &mut Draft, key: &Key, function: &Node<'_>) -> Result<(), Fault> {
    if let Some(name) = node::filled(function, "name") {
        draft.name_call(key, name);
    }
    // The input of a custom tool is text.
    let given = node::get(function, "arguments").or_else(|| node::get(function, "input"));
    if let Some(json) = given.and_then(node::as_text) {
        draft.arguments(key, json);
    } else if let Some(seed) = arguments(given)? {
        draft.seed_arguments(key, seed);
    }
    Ok(())
}
