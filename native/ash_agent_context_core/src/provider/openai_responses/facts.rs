//! The facts about OpenAI Responses.

use crate::log::kind::CallKind;
use crate::log::place::Place;
use crate::provider::dialect::facts::{
    is_strict_gpt, object, openai_breakpoint, OPENAI_CACHE, STAND_IN_TEXT, STRICT,
};
use crate::provider::facts::{is_plain_name, kind_of, named, Diagnosis, Facts, OwnHalf, Rule};
use crate::value::{Map, Value};

pub(crate) const FACTS: Facts = Facts {
    telemetry: "openai",
    list: "input",
    prompts: &["instructions"],
    container: None,
    parameters: None,
    most_output: &["max_output_tokens"],
    output_form: &[&["text"]],
    message_fields: &[],
    stand_in: STAND_IN_TEXT,
    rules: &[
        Rule::ThoughtsLead,
        Rule::CallsAnywhere,
        Rule::HasItems,
        Rule::LateOutputs,
        Rule::TextArguments,
    ],
    takes_id: |id, _| (1..=64).contains(&id.chars().count()),
    takes_name: is_plain_name,
    takes_block: |place, data| {
        let kind = kind_of(data);
        let is_call = kind.starts_with("function_call") || kind.starts_with("custom_tool");
        match place {
            Place::Result => false,
            Place::System => true,
            Place::User => !is_call && kind != "reasoning",
            Place::Assistant => !is_call,
        }
    },
    refused_key: None,
    document_name: None,
    item_prefix: |kind| {
        let form = ItemForm::of(kind);
        form.needs_id.then_some(form.prefix)
    },
    half,
    nameless_halves: Some(["tool_search_call", "tool_search_output"]),
    fallback: None,
    cache: OPENAI_CACHE,
    cache_mark: openai_breakpoint,
    diagnose: |details, _| {
        let Value::Map(given) = details?.get_named("prompt_cache_diagnostics")? else {
            return None;
        };
        let word = |name| given.get_named(name).and_then(Value::as_str);
        Some(Diagnosis {
            reason: word("reason").or(word("type")).unwrap_or_default().into(),
            tokens: given
                .get_named("cache_missed_tokens")
                .and_then(Value::as_count),
        })
    },
    checks_thinking: None,
    subset: &STRICT,
    constrains: |model, _| is_strict_gpt(model),
    // As openai 3.54.0 writes it.
    constraint: |name, schema| {
        let format = object([
            ("type", Value::text("json_schema")),
            ("name", Value::text(name)),
            ("strict", Value::Bool(true)),
            ("schema", schema),
        ]);
        object([("text", object([("format", format)]))])
    },
};

/// Returns the half that an item is. The API has more kinds of items than we know, so any that names a call may be waiting for an
/// output.
fn half(data: &Map) -> Option<OwnHalf<'_>> {
    let kind = named(data, "type")?;
    let form = ItemForm::of_output(kind).filter(|form| form.kind != CallKind::McpApproval);
    Some(OwnHalf {
        id: named(data, "call_id")?,
        is_result: form.is_some() || kind == "program_output",
        waits: matches!(kind, "program" | "shell_call" | "tool_search_call"),
    })
}

/// The items of a kind of call.
pub(crate) struct ItemForm {
    pub kind: CallKind,
    /// The type of the call's item.
    pub call: &'static str,
    /// The type of the item that answers it.
    pub output: &'static str,
    /// The prefix of its items' ids.
    pub prefix: &'static str,
    /// The field that holds the arguments.
    pub arguments: &'static str,
    /// The key of a result for the id of its call.
    pub answers: &'static str,
    /// Its items need an id, even those of other providers' calls.
    pub needs_id: bool,
    /// Fields that the API wants back.
    pub kept: &'static [&'static str],
}

/// From `response_input_item_param.py` of OpenAI's SDK.
pub(crate) const FORMS: [ItemForm; 8] = [
    ItemForm {
        kind: CallKind::Function,
        call: "function_call",
        output: "function_call_output",
        prefix: "fc",
        arguments: "arguments",
        answers: "call_id",
        needs_id: false,
        kept: &["namespace", "caller", "async", "status"],
    },
    ItemForm {
        kind: CallKind::Custom,
        call: "custom_tool_call",
        output: "custom_tool_call_output",
        prefix: "ct",
        arguments: "input",
        answers: "call_id",
        needs_id: false,
        kept: &["namespace", "caller", "async"],
    },
    ItemForm {
        kind: CallKind::Shell,
        call: "shell_call",
        output: "shell_call_output",
        prefix: "sh",
        arguments: "action",
        answers: "call_id",
        needs_id: false,
        kept: &["caller", "environment", "status"],
    },
    ItemForm {
        kind: CallKind::LocalShell,
        call: "local_shell_call",
        output: "local_shell_call_output",
        prefix: "lsh",
        arguments: "action",
        answers: "id",
        needs_id: true,
        kept: &["status"],
    },
    ItemForm {
        kind: CallKind::ApplyPatch,
        call: "apply_patch_call",
        output: "apply_patch_call_output",
        prefix: "apc",
        arguments: "operation",
        answers: "call_id",
        needs_id: false,
        kept: &["caller", "status"],
    },
    ItemForm {
        kind: CallKind::Computer,
        call: "computer_call",
        output: "computer_call_output",
        prefix: "cu",
        arguments: "",
        answers: "call_id",
        needs_id: true,
        kept: &["pending_safety_checks", "status"],
    },
    ItemForm {
        kind: CallKind::McpApproval,
        call: "mcp_approval_request",
        output: "mcp_approval_response",
        prefix: "mcpr",
        arguments: "arguments",
        answers: "approval_request_id",
        needs_id: true,
        kept: &["server_label"],
    },
    ItemForm {
        kind: CallKind::ToolSearch,
        call: "tool_search_call",
        output: "tool_search_output",
        prefix: "tsc",
        arguments: "arguments",
        answers: "call_id",
        needs_id: false,
        kept: &["status"],
    },
];

const FUNCTION: &ItemForm = &FORMS[0];

impl ItemForm {
    /// Returns the form whose calls have this type.
    pub fn of_call(name: &str) -> Option<&'static Self> {
        FORMS.iter().find(|form| form.call == name)
    }

    /// Returns the form whose outputs have this type.
    pub fn of_output(name: &str) -> Option<&'static Self> {
        FORMS.iter().find(|form| form.output == name)
    }

    pub fn of(kind: CallKind) -> &'static Self {
        let form = FORMS.iter().find(|form| form.kind == kind);
        form.unwrap_or(FUNCTION)
    }
}
