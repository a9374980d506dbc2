//! Writes calls of every kind and their results, as items.

use std::borrow::Cow;

use super::facts::ItemForm;
use super::item_ids::ItemIds;
use super::PROVIDER;
use crate::log::call::ToolCall;
use crate::log::decision::Decision;
use crate::log::kind::CallKind;
use crate::log::media::{Location, Media};
use crate::log::message::{Outcome, Output};
use crate::log::part::{Class, Part};
use crate::provider::accepts::sent_name;
use crate::provider::dialect::chat::write::hint;
use crate::provider::foreign::{at, name_at};
use crate::provider::writer::{own_element, Parts, Writer};
use crate::value::builder::JsonObject;
use crate::value::json::{AsJson, AsObject};
use crate::value::letters;
use crate::value::letters::is_blank;
use crate::value::{wording, Map, Value};
use crate::view::change::ChangeKind;

/// Writes the fields of a call's item.
pub(super) fn write_call(call: &ToolCall, ids: &ItemIds<'_>, out: &mut Writer<'_>) {
    let form = ItemForm::of(call.kind);
    let id = out.id(call);
    let own = call
        .provider_text(PROVIDER, "id")
        // A request for approval has one id: that of its item.
        .filter(|_| call.kind != CallKind::McpApproval)
        .filter(|own| ids.take(own, form.prefix) && !call.aliases.item_reused);
    let item_id = own.or(call.aliases.item.as_deref());
    let is_named = matches!(
        call.kind,
        CallKind::Function | CallKind::Custom | CallKind::McpApproval
    );
    let name = is_named.then(|| out.name(call));
    let arguments = match call.kind {
        CallKind::Custom => out.input(call),
        _ => out.arguments(call),
    };
    out.json.raw(",");
    out.json.bare_object(|item| {
        item.field("type", form.call);
        match call.kind {
            // The answer names the item's id.
            CallKind::McpApproval => item.field("id", item_id.unwrap_or(&id)),
            _ => item.field("call_id", &*id),
        };
        item.given("name", name);
        match call.kind {
            // The actions on a screen stand in the item itself.
            CallKind::Computer => write_actions(call, item),
            _ if is_named => item.text(form.arguments, &arguments),
            _ => item.raw(form.arguments, &arguments),
        };
        let own = item_id.filter(|_| call.kind != CallKind::McpApproval);
        item.given("id", own);
        write_kept(call, form, item);
    });
}

fn write_actions<'i, 'j>(call: &ToolCall, item: &'i mut JsonObject<'j>) -> &'i mut JsonObject<'j> {
    let Value::Map(actions) = &call.arguments.value else {
        return item;
    };
    let whole = ["action", "actions"].into_iter();
    let mut given = whole.filter_map(|key| Some((key, actions.get_named(key)?)));
    let (key, value) = given.next().unwrap_or(("action", &call.arguments.value));
    item.field(key, &AsJson(value))
}

fn write_kept(call: &ToolCall, form: &ItemForm, item: &mut JsonObject<'_>) {
    let metadata = call.provider_metadata.as_ref();
    let metadata = metadata.filter(|_| call.came_from(PROVIDER));
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

/// Writes the items with the results of calls.
pub(crate) struct Outputs<'a, 'w, 'o> {
    pub out: &'w mut Writer<'o>,
    // Parts of results that follow all the items, since these have no place for them.
    pub texts: Vec<String>,
    pub media: Vec<&'a Part>,
}

impl<'a> Outputs<'a, '_, '_> {
    /// Returns the text of a result, with an error in words if `is_worded`, and keeps its media.
    fn split(&mut self, outcome: &'a Outcome, is_worded: bool) -> Cow<'a, str> {
        let (text, media) = self.out.split_result(outcome, is_worded, is_sent);
        self.media.extend(media);
        text
    }

    /// Writes the item with a call's result.
    pub fn write(&mut self, call: &ToolCall, outcome: &'a Outcome, decision: Option<&Decision>) {
        let form = ItemForm::of(call.kind);
        let id = self.out.id(call);
        let mut fields = crate::value::builder::Json::default();
        fields.bare_object(|item| {
            let request = call.aliases.item.as_deref();
            let request = request.filter(|_| call.kind == CallKind::McpApproval);
            item.field("type", form.output)
                .field(form.answers, request.unwrap_or(&id));
            match call.kind {
                CallKind::Function | CallKind::Custom => {
                    let output = self.out.apart(|out| {
                        let has_parts = !outcome.output.parts().is_empty();
                        out.wrap("[", "]", |out| PARTS.result(outcome, has_parts, out));
                    });
                    if output.is_empty() {
                        item.text("output", &self.out.word_result(outcome));
                    } else {
                        item.raw("output", &output);
                    }
                }
                CallKind::Shell => self.shell_output(call, outcome, item),
                CallKind::LocalShell => {
                    item.text("output", &self.split(outcome, true));
                }
                CallKind::ApplyPatch => {
                    let status = match outcome.is_error() {
                        true => "failed",
                        false => "completed",
                    };
                    let text = self.split(outcome, false);
                    item.field("status", status);
                    if text != wording::NO_OUTPUT {
                        item.text("output", &text);
                    }
                }
                CallKind::Computer => {
                    self.screenshot(outcome, item);
                    acknowledge(call, outcome, decision, item);
                }
                CallKind::McpApproval => self.approval(outcome, item),
                CallKind::ToolSearch => {
                    item.field("execution", "client");
                    self.found_tools(outcome, item);
                }
            }
            let caller = call.provider_map(PROVIDER, "caller");
            let caller = caller.filter(|_| form.kept.contains(&"caller"));
            item.given("caller", caller.map(AsObject));
            // It may stand far from its call.
            if call.is_async() && call.kind.is_function() {
                item.field("name", &*sent_name(PROVIDER, call.name.as_str()));
                item.given("namespace", call.provider_text(PROVIDER, "namespace"));
            }
        });
        self.out.json.raw(",");
        self.out.json.0.extend_from_slice(&fields.0);
    }

    /// Writes the output of commands: as the API has it, as one command's, or any other result as its text.
    fn shell_output(&mut self, call: &ToolCall, outcome: &'a Outcome, item: &mut JsonObject<'_>) {
        let chunks: Option<Vec<&Map>> = match &outcome.output {
            _ if outcome.is_error() || outcome.edited.is_some() => None,
            Output::Value(Value::List(items)) => items.iter().map(chunk).collect(),
            Output::Value(value) => chunk(value).map(|one| vec![one]),
            Output::Parts(_) => None,
        };
        if let Some(chunks) = chunks.filter(|chunks| !chunks.is_empty()) {
            item.objects("output", chunks, |chunk, given| write_chunk(given, chunk));
        } else {
            let text = self.split(outcome, false);
            let (stdout, stderr, exit) = match outcome.is_error() {
                true => ("", &*text, 1),
                false => (&*text, "", 0),
            };
            item.objects("output", [exit], |chunk, exit| {
                chunk.text("stdout", stdout).text("stderr", stderr);
                write_end(chunk, &Value::Int(exit));
            });
        }
        let most = at(&call.arguments.value, "max_output_length");
        let most = most.filter(|most| matches!(most, Value::Int(_)));
        item.given("max_output_length", most.map(AsJson));
    }

    /// Writes the first picture as the screenshot. The other parts follow.
    fn screenshot(&mut self, outcome: &'a Outcome, item: &mut JsonObject<'_>) {
        let parts = outcome.output.parts();
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
            let text = self.out.word_result(outcome);
            self.out.report_change(ChangeKind::MovedPart, "text", None);
            self.texts.push(text.into_owned());
        }
        let shot = shot.map(|(part, _)| part);
        for part in parts {
            if !shot.is_some_and(|shot| std::ptr::eq(shot, part)) {
                self.out
                    .report_change(ChangeKind::MovedPart, part.kind.name(), None);
                self.media.push(part);
            }
        }
    }

    /// Writes whether the provider's tool may run: only an explicit yes approves it.
    fn approval(&mut self, outcome: &'a Outcome, item: &mut JsonObject<'_>) {
        let said = match &outcome.output {
            Output::Value(value) if !outcome.is_error() => read_approval(value),
            _ => None,
        };
        let approve = matches!(said, Some((true, _)));
        item.field("approve", &approve);
        let reason = match said {
            Some((_, reason)) => reason.map(|reason| Cow::Owned(wording::reason(reason))),
            None => Some(self.split(outcome, false)),
        };
        let says = |reason: &Cow<'_, str>| !is_blank(reason) && reason != wording::NO_OUTPUT;
        item.given("reason", reason.filter(says));
    }

    /// Writes the tools that a search found: a list of their definitions, or a map with it.
    fn found_tools(&mut self, outcome: &'a Outcome, item: &mut JsonObject<'_>) {
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
                let text = self.split(outcome, true);
                if text != wording::NO_OUTPUT {
                    self.out.report_change(ChangeKind::MovedPart, "text", None);
                    self.texts.push(text.into_owned());
                }
            }
        }
    }
}

/// Returns a map with the output of one command.
/// Returns whether the output of commands has the API's form: a list of what each wrote, and how it ended.
pub(super) fn is_shell_output(item: &Value) -> bool {
    let is_chunk = |one: &Value| {
        let has = |key| matches!(at(one, key), Some(Value::Binary(_)));
        has("stdout") && has("stderr") && at(one, "outcome").is_some()
    };
    matches!(at(item, "output"), Some(Value::List(chunks)) if chunks.iter().all(is_chunk))
}

fn chunk(value: &Value) -> Option<&Map> {
    let map = value.as_map()?;
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
    let of = given.get_named("outcome").and_then(Value::as_map);
    let kind = of.and_then(|of| of.get_named("type")?.as_name());
    let codes = [of.filter(|_| kind.is_some()), Some(given)].into_iter();
    let mut codes = codes.filter_map(|of| of?.get_named("exit_code"));
    let code = codes.find(|code| matches!(code, Value::Int(_)));
    match kind {
        Some("timeout") => {
            chunk.strings("outcome", &[("type", "timeout")]);
        }
        _ => write_end(chunk, code.unwrap_or(&Value::Int(0))),
    }
}

fn write_end(chunk: &mut JsonObject<'_>, code: &Value) {
    chunk.object("outcome", |outcome| {
        outcome
            .field("type", "exit")
            .field("exit_code", &AsJson(code));
    });
}

/// A picture of one pixel: a result of an action on a screen needs a picture in any case.
const NOTHING_SEEN: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNgAAAAAgAB5Sfe/AAAAABJRU5ErkJggg==";

/// Writes the safety checks that are acknowledged: those that the screenshot names, else all of a call that was approved.
fn acknowledge(
    call: &ToolCall,
    outcome: &Outcome,
    decision: Option<&Decision>,
    item: &mut JsonObject<'_>,
) {
    const ACKNOWLEDGED: &str = "acknowledged_safety_checks";
    let mut parts = outcome.output.parts().iter();
    let told = parts.find_map(|part| part.noted(ACKNOWLEDGED));
    let approved = decision.is_some_and(|decision| decision.approved);
    let metadata = call.provider_metadata.as_ref();
    let pending = metadata.and_then(|of| of.get_named("pending_safety_checks"));
    let pending = pending.filter(|_| approved && call.came_from(PROVIDER));
    let checks = told.or(pending);
    let checks = checks.filter(|of| of.as_list().is_some_and(|list| !list.is_empty()));
    item.given(ACKNOWLEDGED, checks.map(AsJson));
}

/// Reads `true`, `:approved`, `false`, or a map with `approve` and perhaps a reason.
fn read_approval(value: &Value) -> Option<(bool, Option<&Value>)> {
    match value {
        Value::Bool(approve) => Some((*approve, None)),
        Value::Map(map) => match map.get_named("approve")? {
            Value::Bool(approve) => Some((*approve, at(value, "reason"))),
            _ => None,
        },
        other => (other.as_name() == Some("approved")).then_some((true, None)),
    }
}

fn tools(value: &Value) -> Option<&Value> {
    let list = match value {
        Value::Map(map) => map.get_named("tools")?,
        list => list,
    };
    let is_tool = |tool: &Value| {
        let kind = tool.as_map().and_then(|tool| tool.get_named("type"));
        kind.and_then(Value::as_name).is_some()
    };
    list.as_list()?.iter().all(is_tool).then_some(list)
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

pub(super) const PARTS: Parts = Parts {
    text: input_text,
    hint,
    own: own_element,
    takes: is_sent,
    media,
};

pub(super) fn input_text(text: &str, out: &mut Writer<'_>) {
    out.json.strings(&[("type", "input_text"), ("text", text)]);
}

/// Returns whether a medium can stand in a user message or in a result. Others become words.
pub(super) fn is_sent(media: &Media<'_>) -> bool {
    match (media.class, media.source) {
        (Class::Image | Class::File, Location::Stored(owner, _)) => owner == PROVIDER,
        (Class::Image, Location::Inline(_)) => media.is_common_image(),
        (Class::Image, Location::Web(_)) => true,
        (Class::File, Location::Inline(_) | Location::Web(_)) => media.is_pdf(),
        _ => false,
    }
}

fn media(part: &Part, media: &Media<'_>, out: &mut Writer<'_>) {
    let url = media.url();
    out.json.object(|written| {
        if media.is_image() {
            written
                .field("type", "input_image")
                .field("detail", part.detail().unwrap_or("auto"));
        } else {
            written.field("type", "input_file");
        }
        let filename = media.filename.unwrap_or("file.pdf");
        match (media.is_image(), media.source) {
            (_, Location::Stored(_, id)) => written.field("file_id", id),
            (true, _) => written.text("image_url", &url),
            (false, Location::Web(url)) => written.field("file_url", url),
            (false, _) => written.field("filename", filename).text("file_data", &url),
        };
        let detail = part.detail().filter(|detail| *detail != "original");
        written.given("detail", detail.filter(|_| !media.is_image()));
    });
}
