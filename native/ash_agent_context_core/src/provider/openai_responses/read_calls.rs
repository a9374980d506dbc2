//! Reads calls of every kind, their results with media, and the calls that only the API keeps.

use std::collections::{HashMap, HashSet};

use super::facts::ItemForm;
use super::PROVIDER;
use crate::error::Error;
use crate::log::call::{Arguments, Name, ToolCall};
use crate::log::kind::CallKind;
use crate::log::message::{Output, Status};
use crate::log::part::{PartKind, Source};
use crate::provider::dialect::blocks::output;
use crate::provider::dialect::facts::object;
use crate::provider::foreign::{
    assumed_call, at, call as new_call, check_levels, filled_name_at, image, image_or_file,
    inline_file, json_like, json_part, metadata, name_at, part, stored, text_block, url_image,
};
use crate::provider::listener::ReadResult;
use crate::value::fields::Fields;
use crate::value::{Map, Value, MAX_DEPTH};

/// Reads a call. Returns nothing if the item does not fit its type, so that it goes back as it came.
///
/// # Errors
/// A call of a function must fit.
pub(super) fn call(form: &ItemForm, item: &Value) -> Result<Option<ToolCall>, Error> {
    if form.kind.is_function() {
        return function(form, item).map(Some);
    }
    let id = match form.kind {
        CallKind::McpApproval => name_at(item, "id"),
        _ => name_at(item, "call_id"),
    };
    let name = form.kind.tool().or_else(|| name_at(item, "name"));
    let arguments = arguments(form, item)?;
    let id = id.filter(|id| !id.is_empty());
    let (Some(id), Some(name), Some(arguments)) = (id, name, arguments) else {
        return Ok(None);
    };
    let metadata = read_kept(form, item, name_at(item, "id"))?;
    let call = new_call(
        Some(id.into()),
        Name::Text(name.into()),
        arguments,
        metadata,
    );
    Ok(Some(call.of_kind(form.kind)))
}

fn function(form: &ItemForm, item: &Value) -> Result<ToolCall, Error> {
    let mut object = Fields::read(item.clone(), "")?;
    let own = object.text("id")?;
    let id = object.need_text("call_id")?;
    let name = object.need_name("name")?;
    let arguments = object.arguments("arguments")?;
    let metadata = read_kept(form, item, own.as_deref())?;
    Ok(new_call(Some(id), name, arguments, metadata))
}

fn arguments(form: &ItemForm, item: &Value) -> Result<Option<Arguments>, Error> {
    let value = match form.kind {
        CallKind::Computer => match (at(item, "action"), at(item, "actions")) {
            (Some(action @ Value::Map(_)), _) => action.clone(),
            (_, Some(actions)) => object([("actions", actions.clone())]),
            _ => return Ok(None),
        },
        _ => at(item, form.arguments).cloned().unwrap_or(Value::Nil),
    };
    check_levels(&value, MAX_DEPTH)?;
    Ok(Arguments::of(form.kind, value))
}

/// Returns the fields that the API wants back: the item's id and those of its form.
fn read_kept(form: &ItemForm, item: &Value, own: Option<&str>) -> Result<Option<Map>, Error> {
    let own = own.filter(|_| form.kind != CallKind::McpApproval);
    let mut metadata = metadata(PROVIDER, &[("id", own)]);
    let mut has_any = own.is_some();
    for key in form.kept {
        let is_usual = *key == "status" && name_at(item, key) == Some("completed");
        if let Some(value) = at(item, key).filter(|_| !is_usual) {
            let value = json_like(value.clone(), MAX_DEPTH - 1)?;
            metadata = metadata.put(Value::atom(key), value);
            has_any = true;
        }
    }
    Ok(has_any.then_some(metadata))
}

/// Reads a result. Returns nothing if the item does not fit its type.
///
/// # Errors
/// An output of a function must fit.
pub(super) fn answer(form: &ItemForm, item: &Value) -> Result<Option<ReadResult>, Error> {
    let answered = match form.kind {
        CallKind::Function | CallKind::Custom => return text_output(item).map(Some),
        CallKind::LocalShell | CallKind::Shell => at(item, "output").cloned().map(ok),
        CallKind::ToolSearch => at(item, "tools").cloned().map(ok),
        CallKind::ApplyPatch => {
            let status = match name_at(item, "status") {
                Some("failed") => Status::Error,
                _ => Status::Ok,
            };
            let words = at(item, "output").cloned().unwrap_or(Value::Nil);
            Some((status, Output::Value(words)))
        }
        CallKind::McpApproval => approval(item),
        _ => screenshot(item)?,
    };
    let (Some(id), Some((status, output))) = (answered_id(form, item), answered) else {
        return Ok(None);
    };
    if let Output::Value(value) = &output {
        check_levels(value, MAX_DEPTH)?;
    }
    Ok(Some(ReadResult::new(Some(id.into()), None, status, output)))
}

/// Returns the id of the call that an item is the result of.
pub(super) fn answered_id<'v>(form: &ItemForm, item: &'v Value) -> Option<&'v str> {
    let id = name_at(item, "call_id").filter(|_| form.kind != CallKind::McpApproval);
    id.or_else(|| name_at(item, form.answers))
}

fn ok(value: Value) -> (Status, Output) {
    (Status::Ok, Output::Value(value))
}

fn approval(item: &Value) -> Option<(Status, Output)> {
    let Some(Value::Bool(approve)) = at(item, "approve") else {
        return None;
    };
    let reason = at(item, "reason").cloned();
    Some(match (approve, reason) {
        (approve, None) => ok(Value::Bool(*approve)),
        (false, Some(reason)) => (Status::Error, Output::Value(reason)),
        (true, Some(reason)) => ok(object([("approve", Value::Bool(true)), ("reason", reason)])),
    })
}

fn screenshot(item: &Value) -> Result<Option<(Status, Output)>, Error> {
    let output = at(item, "output");
    let source = |key| output.and_then(|output| name_at(output, key));
    let kind = match (source("image_url"), source("file_id")) {
        (Some(url), _) if !url.trim().is_empty() => url_image(url.into()),
        (_, Some(id)) if !id.trim().is_empty() => image(None, stored(PROVIDER, id)),
        _ => return Ok(None),
    };
    const ACKNOWLEDGED: &str = "acknowledged_safety_checks";
    let checks = match at(item, ACKNOWLEDGED) {
        Some(checks @ Value::List(_)) => Some(json_like(checks.clone(), MAX_DEPTH - 2)?),
        _ => None,
    };
    let metadata =
        checks.map(|checks| metadata(PROVIDER, &[]).put(Value::atom(ACKNOWLEDGED), checks));
    let shot = Box::new([part(kind, metadata)]);
    Ok(Some((Status::Ok, Output::Parts(shot))))
}

/// Reads the output of a function or a custom tool, which names its call, or its tool instead.
fn text_output(item: &Value) -> Result<ReadResult, Error> {
    let name: Option<Box<str>> = name_at(item, "name").map(Into::into);
    let mut item = Fields::read(item.clone(), "")?;
    let id = match &name {
        Some(_) => item.text("call_id")?,
        None => Some(item.need_text("call_id")?),
    };
    let content = item.content("output", |value| {
        match (name_at(&value, "type"), media(&value)) {
            (Some("input_text"), _) => text_block(value, "text"),
            (_, Some(kind)) => Ok(part(kind, None)),
            _ => json_part(&value),
        }
    })?;
    let output = output(content, Status::Ok);
    Ok(ReadResult::new(id, name, Status::Ok, output))
}

/// Reads an image or a file, wherever its bytes are.
pub(super) fn media(value: &Value) -> Option<PartKind> {
    let is_image = match name_at(value, "type")? {
        "input_image" => true,
        "input_file" => false,
        _ => return None,
    };
    let filename = name_at(value, "filename").map(Into::into);
    let source = match (filled_name_at(value, "file_id"), is_image) {
        (Some(id), _) => stored(PROVIDER, id),
        (None, true) => return Some(url_image(filled_name_at(value, "image_url")?.into())),
        (None, false) => match name_at(value, "file_data") {
            Some(data) => return inline_file(data, filename),
            None => Source::Url(filled_name_at(value, "file_url")?.into()),
        },
    };
    Some(image_or_file(is_image, None, source, filename))
}

/// Returns the calls of each run of outputs whose calls are not in the list, by position. Their arguments are not known.
pub(super) fn assume_calls(items: &[Value]) -> HashMap<usize, Vec<ToolCall>> {
    let mut known: HashSet<&str> = HashSet::new();
    let mut assumed: HashMap<usize, Vec<ToolCall>> = HashMap::new();
    let mut run = None;
    for (position, item) in items.iter().enumerate() {
        let kind = name_at(item, "type").unwrap_or_default();
        let Some(form) = ItemForm::of_output(kind) else {
            run = None;
            let id = name_at(item, "call_id").or_else(|| name_at(item, "id"));
            known.extend(id);
            continue;
        };
        let id = answered_id(form, item);
        if let Some(id) = id.filter(|id| !id.is_empty() && known.insert(id)) {
            let first = *run.get_or_insert(position);
            let calls = assumed.entry(first).or_default();
            calls.push(assume_call(form, id, name_at(item, "name")));
        }
    }
    assumed
}

fn assume_call(form: &ItemForm, id: &str, name: Option<&str>) -> ToolCall {
    let name = form.kind.tool().or(name);
    let arguments = Arguments::of(form.kind, Value::Nil).unwrap_or_default();
    let call = assumed_call(PROVIDER, id, name).of_kind(form.kind);
    ToolCall { arguments, ..call }
}
