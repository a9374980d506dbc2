//! Reads the responses of OpenAI Chat Completions and of the servers that speak it: one completion, or chunks of one.
//!
//! The vendor merges by `index` alone. Others leave the index out, begin with another one, use one
//! twice, repeat ids and names in each chunk, or send the whole arguments again.

use crate::fault::Fault;
use crate::log::kind::CallKind;
use crate::log::part::AUDIO_ID;
use crate::log::reply::Finish;
use crate::prices::bill::Count;
use crate::provider::block::arguments;
use crate::provider::dialect::chat::read::{
    self, reference, Completions, EXTRA, IS_REFUSAL, REFERENCES,
};
use crate::provider::draft::{Draft, Key};
use crate::provider::figures::{Billed, FigureKind::*, Figures};
use crate::provider::foreign::{self, provider_block};
use crate::provider::format::Responds;
use crate::provider::node::{self, Node};
use crate::value::Value;

const CONTENT: Key = Key::Only("content");
const REASONING: Key = Key::Only("reasoning");
const REFUSAL: Key = Key::Only("refusal");
const AUDIO: Key = Key::Only("audio");
const LATEST: Key = Key::Only("call");
/// Marks an answer with lists of parts. Its texts stand where they came, also those that are no list.
const LIST: Key = Key::Only("list");

impl<Room: Completions> Responds for Room {
    fn figures(&self) -> &'static Figures {
        &FIGURES
    }

    fn read_response(&self, draft: &mut Draft, node: &Node<'_>) -> Result<(), Fault> {
        read_document(draft, node)
    }
}

/// OpenAI's keys, and the names that DeepSeek and Mistral have for cache hits.
const FIGURES: Figures = Figures {
    keys: &[
        (Around, &["usage"]),
        (WholeInput, &["prompt_tokens"]),
        (Output, &["completion_tokens"]),
        (Total, &["total_tokens"]),
        (
            Cached,
            &[
                "cached_tokens",
                "num_cached_tokens",
                "prompt_cache_hit_tokens",
            ],
        ),
        (Written, &["cache_write_tokens"]),
        (Reasoning, &["reasoning_tokens"]),
        (InputDetails, REQUEST),
        (OutputDetails, ANSWER),
    ],
    billed: &[
        billed(REQUEST, &["audio_tokens"], Count::InputAudio),
        billed(REQUEST, &["image_tokens"], Count::InputImage),
        billed(REQUEST, &["video_tokens"], Count::InputVideo),
        billed(ANSWER, &["audio_tokens"], Count::OutputAudio),
        billed(ANSWER, &["image_tokens"], Count::OutputImage),
    ],
    ..Figures::NONE
};

/// The object with the details of the request's tokens.
const REQUEST: Names = &["prompt_tokens_details"];
const ANSWER: Names = &["completion_tokens_details"];

type Names = &'static [&'static str];

const fn billed(under: Names, number: Names, count: Count) -> Billed {
    Billed {
        under,
        of: None,
        number,
        count,
    }
}

/// Remarks of some servers on the whole answer: its sources, and further reading.
const REMARKS: [&str; 4] = ["citations", "search_results", "images", "related_questions"];

fn read_document(draft: &mut Draft, node: &Node<'_>) -> Result<(), Fault> {
    if let Some(fault) = Fault::of(node) {
        draft.count_tokens(node::get(node, "usage"));
        return Err(fault);
    }
    let Some(choices) = node::get(node, "choices").map(node::as_list) else {
        return match node::get(node, "usage") {
            Some(usage) => {
                draft.count_tokens(Some(usage));
                Ok(())
            }
            // Some gateways send events of their own, which are ignored.
            None if draft.count() > 0 || node::get(node, "id").is_some() => Ok(()),
            None => Err(Fault::neither(
                node,
                "neither a completion nor a chunk of one",
            )),
        };
    };
    // Some servers change the id on the way; that of the first chunk counts.
    let id = node::text(node, "id").filter(|_| draft.head.id.is_none());
    draft.start(id, node::text(node, "model"));
    // MiniMax repeats the message after its pieces.
    let has_whole = choices.iter().any(|choice| is_whole(draft, choice));
    let is_whole = has_whole && draft.count() == 0;
    // Further candidates are ignored.
    let first = |choice: &&Node<'_>| node::number(choice, "index").unwrap_or(0) == 0;
    let choice = choices.iter().find(first);
    if let Some(choice) = choice {
        if let (true, false, Some(message)) = (has_whole, is_whole, node::get(choice, "message")) {
            read_rest(draft, message)?;
        }
        read_choice(draft, choice, is_whole)?;
    }
    if let Node::Object(entries) = node {
        for (key, _) in entries.iter() {
            if let Some(name) = REMARKS.iter().find(|name| *name == key) {
                draft.keep(node, &[name]);
            } else if key == "service_tier" {
                draft.put_tier(node::text(node, key));
            }
        }
    }
    let usage = node::get(node, "usage").or_else(|| node::dig(node, &["x_groq", "usage"]));
    // Moonshot's streams.
    let usage = usage.or_else(|| node::get(choice?, "usage"));
    draft.count_tokens(usage);
    match is_whole {
        true => draft.end_without_reason(),
        false => Ok(()),
    }
}

/// Returns whether a choice has a whole message. Perplexity sends both: chunks that repeat everything so far beside the new text,
/// and whole completions with an empty delta.
fn is_whole(draft: &Draft, choice: &Node<'_>) -> bool {
    if let Some(Node::Object(delta)) = node::get(choice, "delta") {
        let mut said = delta.iter().filter(|(key, _)| key != "role");
        let is_all = draft.count() == 0
            && node::filled_text(choice, "finish_reason").is_some()
            && said.all(|(_, value)| !node::says(value));
        if !is_all {
            return false;
        }
    }
    node::get(choice, "message").is_some()
}

/// Reads what the pieces before a whole message lacked.
fn read_rest(draft: &mut Draft, message: &Node<'_>) -> Result<(), Fault> {
    if !draft.knows(&CONTENT) && !draft.knows(&LIST) {
        content(draft, message)?;
    }
    if draft.calls == 0 {
        for call in node::list(message, "tool_calls") {
            read_call(draft, call, true)?;
        }
    }
    Ok(())
}

fn read_choice(draft: &mut Draft, choice: &Node<'_>, is_whole: bool) -> Result<(), Fault> {
    Fault::check(choice)?;
    let place = if is_whole { "message" } else { "delta" };
    if let Some(message) = node::get(choice, place) {
        reasoning(draft, message)?;
        content(draft, message)?;
        refusal(draft, message);
        beside(draft, message)?;
        let calls = node::list(message, "tool_calls");
        for call in calls {
            read_call(draft, call, is_whole)?;
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
    let Some(word) = node::filled_text(choice, "finish_reason") else {
        return Ok(());
    };
    draft.finish_all(reason(word), word)
}

/// The words of OpenAI and Mistral, of DeepSeek and Z.AI, and of other vendors that relays pass on. Google's endpoint puts the
/// reason of a filter after a colon, as in `function_call_filter: MALFORMED_FUNCTION_CALL`, or sends that reason alone.
fn reason(word: &str) -> Finish {
    let (filter, _) = word.split_once(':').unwrap_or((word, ""));
    match &*filter.trim().to_ascii_lowercase() {
        "tool_calls" | "function_call" => Finish::ToolCalls,
        "length" | "model_length" | "max_tokens" | "model_context_window_exceeded" => {
            Finish::Length
        }
        "content_filter"
        | "content_filtered"
        | "guardrail_intervened"
        | "sensitive"
        | "safety"
        | "recitation"
        | "blocklist"
        | "prohibited_content"
        | "spii"
        | "model_armor" => Finish::ContentFilter,
        "refusal" => Finish::Refusal,
        "error"
        | "insufficient_system_resource"
        | "network_error"
        | "abort"
        | "aborted"
        | "function_call_filter"
        | "malformed_function_call"
        | "unexpected_tool_call"
        | "malformed_tool_use"
        | "malformed_model_output" => Finish::Error,
        _ => Finish::Stop,
    }
}

/// Reads the fields beside the words, in one pass, since most chunks have none of them.
fn beside(draft: &mut Draft, message: &Node<'_>) -> Result<(), Fault> {
    let Node::Object(entries) = message else {
        return Ok(());
    };
    for (key, value) in entries.iter() {
        match key.as_ref() {
            EXTRA => draft.keep(message, &[EXTRA]),
            "annotations" => draft.keep_more(message, "annotations"),
            "executed_tools" => draft.keep_more(message, "executed_tools"),
            "audio" => audio(draft, value)?,
            "images" => images(draft, value)?,
            _ => {}
        }
    }
    Ok(())
}

fn images(draft: &mut Draft, images: &Node<'_>) -> Result<(), Fault> {
    for image in node::as_list(images) {
        let image = node::to_value(image)?;
        let part = read::image(image.clone()).or_else(|_| provider_block(draft.provider, image));
        if let Ok(part) = part {
            draft.put_part(draft.next_key(), part);
        }
    }
    Ok(())
}

/// Reads the text of a refusal.
fn refusal(draft: &mut Draft, said: &Node<'_>) {
    if let Some(refusal) = node::filled_text(said, "refusal") {
        draft.refuse();
        draft.text(REFUSAL, refusal);
        draft.note(&REFUSAL, IS_REFUSAL, Value::Bool(true));
    }
}

/// Reads spoken words: the transcript becomes a text, and the recording stands with it.
fn audio(draft: &mut Draft, audio: &Node<'_>) -> Result<(), Fault> {
    if let Some(id) = node::filled_text(audio, "id") {
        draft.open_words(&AUDIO, false);
        draft.note(&AUDIO, AUDIO_ID, Value::text(id));
        draft.show_empty(&AUDIO);
    }
    if !draft.knows(&AUDIO) {
        return Ok(());
    }
    if let Some(time) = node::get(audio, "expires_at") {
        draft.note(&AUDIO, "audio_expires_at", node::to_value(time)?);
    }
    if let Some(data) = node::filled_text(audio, "data") {
        draft.note_more(&AUDIO, "audio_data", Value::text(data));
    }
    draft.text(AUDIO, node::text(audio, "transcript").unwrap_or_default());
    Ok(())
}

fn reasoning(draft: &mut Draft, message: &Node<'_>) -> Result<(), Fault> {
    let names = ["reasoning_content", "reasoning"];
    if let Some(text) = names
        .iter()
        .find_map(|name| node::filled_text(message, name))
    {
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

/// Reads a text, or a list of texts and thoughts in their order, as Mistral sends it.
fn content(draft: &mut Draft, message: &Node<'_>) -> Result<(), Fault> {
    if let Some(text) = node::text(message, "content") {
        let key = match draft.knows(&LIST) {
            true => draft.last_text(false).unwrap_or(draft.next_key()),
            false => CONTENT,
        };
        draft.text(key, text);
    }
    for item in node::list(message, "content") {
        read_item(draft, item)?;
    }
    Ok(())
}

fn read_item(draft: &mut Draft, item: &Node<'_>) -> Result<(), Fault> {
    if !matches!(item, Node::Object(_)) {
        return Err(Fault::unreadable("a content element that is not an object"));
    }
    draft.mark(LIST);
    let text = match node::text(item, "type") {
        Some("text") => node::text(item, "text").unwrap_or_default(),
        Some("thinking") => return read_thought(draft, item),
        Some("refusal") => {
            refusal(draft, item);
            return Ok(());
        }
        _ => {
            let part = foreign::own_block(draft.provider, node::to_map(item)?);
            draft.put_part(draft.next_key(), part);
            return Ok(());
        }
    };
    let key = draft.last_text(false).unwrap_or(draft.next_key());
    draft.text(key, text);
    Ok(())
}

/// Reads a thought: its pieces of text, and the references between them.
fn read_thought(draft: &mut Draft, item: &Node<'_>) -> Result<(), Fault> {
    let key = draft.last_text(true).unwrap_or(draft.next_key());
    let whole = node::get(item, "thinking");
    draft.thinking(
        key.clone(),
        whole.and_then(Node::as_str).unwrap_or_default(),
    );
    for piece in whole.map_or(&[][..], node::as_list) {
        match node::text(piece, "text") {
            Some(text) => draft.thinking(key.clone(), text),
            None => {
                draft.open_words(&key, true);
                let reference = reference(draft.length(&key), node::to_value(piece)?);
                draft.note_more(&key, REFERENCES, reference);
            }
        }
    }
    draft.sign(&key, node::text(item, "signature"));
    if node::is_true(item, "closed") {
        draft.note(&key, "closed", Value::Bool(true));
    }
    Ok(())
}

/// Reads a call, or a piece of one. It belongs to the call with its id, else to that with its index, else to the latest.
fn read_call(draft: &mut Draft, call: &Node<'_>, is_whole: bool) -> Result<(), Fault> {
    let id = node::filled_text(call, "id");
    let index = node::number(call, "index");
    let function = node::get(call, "function").filter(|function| node::is_filled_object(function));
    let custom = node::get(call, "custom").filter(|custom| node::is_filled_object(custom));
    let custom = custom.filter(|_| function.is_none());
    let called = function.or(custom);
    if let (true, None, Some(_)) = (is_whole, called, node::filled_text(call, "type")) {
        if let Ok(call) = read::read_call(node::to_value(call)?, draft.provider) {
            return draft.put_call(&draft.next_key(), call);
        }
    }
    let name = called.and_then(|called| node::filled_text(called, "name"));
    let kind = match custom {
        Some(_) => CallKind::Custom,
        None => CallKind::Function,
    };
    let json = function.and_then(|function| node::text(function, "arguments"));
    let known = match is_whole {
        true => None,
        false => find(draft, id, index, name).filter(|_| !is_another(draft, id, index, name, json)),
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

fn find(draft: &mut Draft, id: Option<&str>, at: Option<u64>, name: Option<&str>) -> Option<Key> {
    let known = |draft: &Draft, key: Key| draft.knows(&key).then_some(key);
    if let Some(id) = id {
        // Two calls may have one id: then the index tells them apart.
        let at_index = at.and_then(|at| known(draft, Key::Call(at)));
        if let Some(key) = at_index.filter(|key| draft.id_of_call(key) == Some(id)) {
            return Some(key);
        }
        let by_id = known(draft, Key::Id(id.into()));
        // A call with a name and another id is a new one, even if it has the same index.
        return by_id.or_else(|| {
            let key = known(draft, Key::Call(at?))?;
            let is_its = name.is_none() || draft.id_of_call(&key).is_none_or(str::is_empty);
            is_its.then_some(key)
        });
    }
    let by_index = at.and_then(|at| known(draft, Key::Call(at)));
    by_index.or_else(|| known(draft, LATEST).filter(|_| name.is_none()))
}

/// Returns whether a piece with a known id begins another call: it has an index of its own, or another name where there are no
/// indexes, and its arguments begin.
fn is_another(
    draft: &mut Draft,
    id: Option<&str>,
    at: Option<u64>,
    name: Option<&str>,
    json: Option<&str>,
) -> bool {
    let begins = json.is_none_or(|json| json.is_empty() || json.starts_with('{'));
    let (Some(id), Some(name), true) = (id, name, begins) else {
        return false;
    };
    let known = draft
        .name_of_call(&Key::Id(id.into()))
        .map(|known| known != name);
    known.is_some_and(|is_other| at.map_or(is_other, |at| !draft.knows(&Key::Call(at))))
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
    if let Some(name) = node::filled_text(function, "name") {
        draft.name_call(key, name);
    }
    // The input of a custom tool is text.
    let given = node::get(function, "arguments").or_else(|| node::get(function, "input"));
    if let Some(json) = given.and_then(Node::as_str) {
        draft.arguments(key, json);
    } else if let Some(seed) = arguments(given)? {
        draft.seed_arguments(key, seed);
    }
    Ok(())
}
