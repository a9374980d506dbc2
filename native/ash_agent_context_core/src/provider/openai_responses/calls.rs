//! Writes calls of every kind and their results, as items.

use std::borrow::Cow;

use super::facts::ItemForm;
use super::item_ids::ItemIds;
use super::parts::{is_sent, parts_output};
use super::PROVIDER;
use crate::log::call::ToolCall;
use crate::log::decision::Decision;
use crate::log::kind::CallKind;
use crate::log::media::{Location, Media};
use crate::log::message::{Outcome, Output};
use crate::log::part::Part;
use crate::provider::foreign::{at, name_at};
use crate::provider::writer::Writer;
use crate::value::builder::JsonObject;
use crate::value::json::AsJson;
use crate::value::letters;
use crate::value::letters::is_blank;
use crate::value::{wording, Map, Value};
use crate::view::change::ChangeKind;

/// Writes the fields of a call's item.
pub(super) fn write_call(call: &ToolCall, ids: &ItemIds<'_>, out: &mut Writer<'_>) -> Vec<u8> {
    let form = ItemForm::of(call.kind);
    let id = out.id(call);
    let own = call
        .provider_text(PROVIDER, "id")
        // A request for approval has one id: that of its item.
        .filter(|_| call.kind != CallKind::McpApproval)
        .filter(|own| ids.take(own, form.prefix) && !call.aliases.item_reused);
    let item_id = match own {
        Some(own) => Some(own),
        None => call.aliases.item.as_deref(),
    };
    let is_named = matches!(
        call.kind,
        CallKind::Function | CallKind::Custom | CallKind::McpApproval
    );
    let name = if is_named {
        out.name(call)
    } else {
        Cow::Borrowed("")
    };
    let arguments = match call.kind {
        CallKind::Custom => out.input(call),
        _ => out.arguments(call),
    };
    let mut json = crate::value::builder::Json::default();
    json.bare_object(|item| {
        item.field("type", form.call);
        if call.kind == CallKind::McpApproval {
            // The answer names the item's id.
            item.field("id", item_id.unwrap_or(&id));
        } else {
            item.field("call_id", &*id);
        }
        if is_named {
            item.field("name", &*name);
        }
        match call.kind {
            CallKind::Function | CallKind::Custom | CallKind::McpApproval => {
                item.text(form.arguments, &arguments);
            }
            // The actions on a screen stand in the item itself.
            CallKind::Computer => write_actions(call, item),
            _ => {
                item.raw(form.arguments, &arguments);
            }
        }
        if let Some(own) = item_id.filter(|_| call.kind != CallKind::McpApproval) {
            item.field("id", own);
        }
        write_kept(call, form, item);
    });
    json.0
}

fn write_actions(call: &ToolCall, item: &mut JsonObject<'_>) {
    let actions = match &call.arguments.value {
        Value::Map(map) => map,
        _ => return,
    };
    let whole = ["action", "actions"];
    let given = whole
        .iter()
        .find_map(|key| Some((*key, actions.get_named(key)?)));
    match given {
        Some((key, value)) => item.field(key, &AsJson(value)),
        None => item.field("action", &AsJson(&call.arguments.value)),
    };
}

fn write_kept(call: &ToolCall, form: &ItemForm, item: &mut JsonObject<'_>) {
    let metadata = call
        .provider_metadata
        .as_ref()
        .filter(|_| call.came_from(PROVIDER));
    for key in form.kept {
        let given = metadata.and_then(|map| map.get_named(key));
        match (given.filter(|value| !matches!(value, Value::Nil)), *key) {
            (Some(value), _) => item.field(key, &AsJson(value)),
            // Calls of functions need no status.
            (None, "status") if call.kind.is_function() => continue,
            (None, "status") => item.field(key, "completed"),
            (None, "pending_safety_checks") => item.raw(key, "[]"),
            (None, "server_label") => item.field(key, "mcp"),
            (None, _) => continue,
        };
    }
    if call.kind == CallKind::ToolSearch {
        item.field("execution", "client");
    }
}

/// Parts of results that follow all the items with results, since these items have no place for them.
#[derive(Default)]
pub(crate) struct Behind<'a> {
    pub texts: Vec<String>,
    pub media: Vec<&'a Part>,
}

/// Writes the item with a call's result.
pub(crate) fn write_output<'a>(
    call: &ToolCall,
    outcome: &'a Outcome,
    decision: Option<&Decision>,
    behind: &mut Behind<'a>,
    out: &mut Writer<'_>,
) {
    let form = ItemForm::of(call.kind);
    let id = out.id(call);
    let mut fields = crate::value::builder::Json::default();
    fields.bare_object(|item| {
        item.field("type", form.output);
        match call.kind {
            CallKind::Function | CallKind::Custom => {
                let output = match &outcome.output {
                    Output::Parts(given) => parts_output(given, out),
                    Output::Value(_) => String::new(),
                };
                item.field("call_id", &*id);
                if output.is_empty() {
                    item.text("output", &out.word_result(outcome));
                } else {
                    item.raw("output", &output);
                }
            }
            CallKind::Shell => {
                item.field("call_id", &*id);
                shell_output(call, outcome, behind, item, out);
            }
            CallKind::LocalShell => {
                let (text, media) = out.split_result(outcome, is_sent);
                behind.media.extend(media);
                item.field("id", &*id).text("output", &text);
            }
            CallKind::ApplyPatch => {
                let status = if outcome.is_error() {
                    "failed"
                } else {
                    "completed"
                };
                let (text, media) = out.split_result_unworded(outcome, is_sent);
                behind.media.extend(media);
                item.field("call_id", &*id).field("status", status);
                if text != wording::NO_OUTPUT {
                    item.text("output", &text);
                }
            }
            CallKind::Computer => {
                item.field("call_id", &*id);
                screenshot(outcome, behind, item, out);
                acknowledge(call, outcome, decision, item);
            }
            CallKind::McpApproval => {
                let request = call.aliases.item.as_deref().unwrap_or(&id);
                item.field("approval_request_id", request);
                approval(outcome, behind, item, out);
            }
            CallKind::ToolSearch => {
                item.field("call_id", &*id).field("execution", "client");
                found_tools(outcome, behind, item, out);
            }
        }
        let caller = call.provider_map(PROVIDER, "caller");
        if let Some(caller) = caller.filter(|_| form.kept.contains(&"caller")) {
            item.field("caller", &crate::value::json::AsObject(caller));
        }
    });
    out.json.raw(",");
    out.json.0.extend_from_slice(&fields.0);
}

/// Writes the output of commands: as the API has it, as one command's, or any other result as its text.
fn shell_output<'a>(
    call: &ToolCall,
    outcome: &'a Outcome,
    behind: &mut Behind<'a>,
    item: &mut JsonObject<'_>,
    out: &mut Writer<'_>,
) {
    let chunks: Vec<&Map> = match &outcome.output {
        Output::Value(Value::List(items)) if !outcome.is_error() => {
            items.iter().filter_map(chunk).collect()
        }
        Output::Value(value) if !outcome.is_error() => chunk(value).into_iter().collect(),
        _ => Vec::new(),
    };
    let is_whole = match &outcome.output {
        Output::Value(Value::List(items)) => items.len() == chunks.len(),
        _ => true,
    };
    let (text, media) = match chunks.is_empty() || !is_whole {
        true => out.split_result_unworded(outcome, is_sent),
        false => (Cow::Borrowed(""), Vec::new()),
    };
    behind.media.extend(media);
    item.list("output", |list| {
        if chunks.is_empty() || !is_whole {
            let exit = i64::from(outcome.is_error());
            let (stdout, stderr) = match outcome.is_error() {
                true => ("", &*text),
                false => (&*text, ""),
            };
            list.object(|chunk| {
                chunk.text("stdout", stdout).text("stderr", stderr);
                chunk.object("outcome", |outcome| {
                    outcome.field("type", "exit").field("exit_code", &exit);
                });
            });
            return;
        }
        for given in chunks {
            list.object(|chunk| write_chunk(given, chunk));
        }
    });
    if let Value::Map(action) = &call.arguments.value {
        if let Some(most @ Value::Int(_)) = action.get_named("max_output_length") {
            item.field("max_output_length", &AsJson(most));
        }
    }
}

/// Returns a map with the output of one command.
fn chunk(value: &Value) -> Option<&Map> {
    let Value::Map(map) = value else { return None };
    let has = |key| matches!(map.get_named(key), Some(Value::Binary(_)));
    (has("stdout") || has("stderr")).then_some(map)
}

fn write_chunk(given: &Map, chunk: &mut JsonObject<'_>) {
    for key in ["stdout", "stderr"] {
        let text = match given.get_named(key) {
            Some(Value::Binary(bytes)) => letters::utf8(bytes),
            _ => Cow::Borrowed(""),
        };
        chunk.text(key, &text);
    }
    let kind = given
        .get_named("outcome")
        .and_then(|outcome| match outcome {
            Value::Map(map) => Some((
                map.get_named("type")?.as_name()?,
                map.get_named("exit_code"),
            )),
            _ => None,
        });
    chunk.object("outcome", |outcome| {
        match (kind, given.get_named("exit_code")) {
            (Some(("timeout", _)), _) => {
                outcome.field("type", "timeout");
            }
            (Some((_, Some(code @ Value::Int(_)))), _) | (_, Some(code @ Value::Int(_))) => {
                outcome
                    .field("type", "exit")
                    .field("exit_code", &AsJson(code));
            }
            _ => {
                outcome.field("type", "exit").field("exit_code", &0);
            }
        }
    });
}

/// A picture of one pixel: a result of an action on a screen needs a picture in any case.
const NOTHING_SEEN: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNgAAAAAgAB5Sfe/AAAAABJRU5ErkJggg==";

/// Writes the first picture as the screenshot. The other parts follow.
fn screenshot<'a>(
    outcome: &'a Outcome,
    behind: &mut Behind<'a>,
    item: &mut JsonObject<'_>,
    out: &mut Writer<'_>,
) {
    let parts = match &outcome.output {
        Output::Parts(parts) => &**parts,
        Output::Value(_) => &[],
    };
    let shot = parts.iter().find_map(|part| {
        let media = Media::of(&part.kind).filter(|media| media.is_image())?;
        let is_taken = match media.source {
            Location::Inline(_) => media.is_common_image(),
            Location::Web(_) => true,
            Location::Stored(owner, _) => owner == PROVIDER,
            Location::Store(_) | Location::Refused(_) => false,
        };
        is_taken.then_some((part, media))
    });
    item.object("output", |output| {
        output.field("type", "computer_screenshot");
        match &shot {
            Some((_, media)) => match media.id_for(PROVIDER) {
                Some(id) => output.field("file_id", id),
                None => output.text("image_url", &media.url()),
            },
            None => output.field("image_url", NOTHING_SEEN),
        };
    });
    if parts.is_empty() {
        let text = out.word_result(outcome);
        out.report_change(ChangeKind::MovedPart, "text", None);
        behind.texts.push(text.into_owned());
        return;
    }
    let is_shot = |part: &&Part| {
        shot.as_ref()
            .is_some_and(|(shot, _)| std::ptr::eq(*shot, *part))
    };
    for part in parts.iter().filter(|part| !is_shot(part)) {
        out.report_change(ChangeKind::MovedPart, part.kind.name(), None);
        behind.media.push(part);
    }
}

/// Writes the safety checks that are acknowledged: those that the screenshot names, else all of a call that was approved.
fn acknowledge(
    call: &ToolCall,
    outcome: &Outcome,
    decision: Option<&Decision>,
    item: &mut JsonObject<'_>,
) {
    const ACKNOWLEDGED: &str = "acknowledged_safety_checks";
    let told = match &outcome.output {
        Output::Parts(parts) => parts.iter().find_map(|part| {
            let metadata = part.provider_metadata.as_ref()?;
            metadata.get_named(ACKNOWLEDGED)
        }),
        Output::Value(_) => None,
    };
    let approved = decision.is_some_and(|decision| decision.approved);
    let pending = call
        .provider_metadata
        .as_ref()
        .and_then(|metadata| metadata.get_named("pending_safety_checks"))
        .filter(|_| approved && call.came_from(PROVIDER));
    if let Some(checks @ Value::List(items)) = told.or(pending) {
        if !items.is_empty() {
            item.field(ACKNOWLEDGED, &AsJson(checks));
        }
    }
}

/// Writes whether the provider's tool may run: only an explicit yes approves it.
fn approval<'a>(
    outcome: &'a Outcome,
    behind: &mut Behind<'a>,
    item: &mut JsonObject<'_>,
    out: &mut Writer<'_>,
) {
    let said = match &outcome.output {
        Output::Value(value) if !outcome.is_error() => read_approval(value),
        _ => None,
    };
    let approve = matches!(said, Some((true, _)));
    item.field("approve", &approve);
    let reason = match said {
        Some((_, reason)) => reason.map(|reason| Cow::Owned(wording::reason(reason))),
        None => {
            let (text, media) = out.split_result_unworded(outcome, is_sent);
            behind.media.extend(media);
            Some(text)
        }
    };
    if let Some(reason) = reason.filter(|reason| !is_blank(reason) && reason != wording::NO_OUTPUT)
    {
        item.text("reason", &reason);
    }
}

/// Reads `true`, `:approved`, `false`, or a map with `approve` and perhaps a reason.
fn read_approval(value: &Value) -> Option<(bool, Option<&Value>)> {
    match value {
        Value::Bool(approve) => Some((*approve, None)),
        Value::Map(map) => match map.get_named("approve")? {
            Value::Bool(approve) => {
                let reason = map.get_named("reason");
                Some((
                    *approve,
                    reason.filter(|reason| !matches!(reason, Value::Nil)),
                ))
            }
            _ => None,
        },
        other => (other.as_name() == Some("approved")).then_some((true, None)),
    }
}

/// Writes the tools that a search found: a list of their definitions, or a map with it.
fn found_tools<'a>(
    outcome: &'a Outcome,
    behind: &mut Behind<'a>,
    item: &mut JsonObject<'_>,
    out: &mut Writer<'_>,
) {
    let tools = match &outcome.output {
        Output::Value(value) if !outcome.is_error() => tools(value),
        _ => None,
    };
    item.field("status", "completed");
    match tools {
        Some(tools) => {
            item.field("tools", &AsJson(tools));
        }
        None => {
            item.raw("tools", "[]");
            let (text, media) = out.split_result(outcome, is_sent);
            if text != wording::NO_OUTPUT {
                out.report_change(ChangeKind::MovedPart, "text", None);
                behind.texts.push(text.into_owned());
            }
            behind.media.extend(media);
        }
    }
}

fn tools(value: &Value) -> Option<&Value> {
    let list = match value {
        Value::Map(map) => map.get_named("tools")?,
        list => list,
    };
    match list {
        Value::List(items) if items.iter().all(is_tool) => Some(list),
        _ => None,
    }
}

fn is_tool(value: &Value) -> bool {
    matches!(value, Value::Map(map) if map.get_named("type").and_then(Value::as_name).is_some())
}

/// Returns whether the API itself answers a call: commands in its own container, its own search for tools, or xAI's search of X
/// and of its videos, which has the type of a custom tool's call.
pub(crate) fn is_served(item: &Value) -> bool {
    match name_at(item, "type") {
        Some("shell_call") => {
            let environment = at(item, "environment").and_then(|of| name_at(of, "type"));
            environment.is_some_and(|of| of.starts_with("container"))
        }
        Some("custom_tool_call") => {
            name_at(item, "call_id").is_some_and(|id| id.starts_with("xs_call_"))
        }
        Some("tool_search_call") => match name_at(item, "execution") {
            Some(execution) => execution != "client",
            None => name_at(item, "call_id").is_none(),
        },
        _ => false,
    }
}
