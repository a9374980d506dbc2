//! The facts about Anthropic.

use crate::log::hints::Ttl;
use crate::log::place::Place;
use crate::provider::dialect::facts::{
    claude_checks_thinking, claude_version, object, CLAUDE, CLAUDE_CACHE, STAND_IN_TEXT,
};
use crate::provider::facts::{
    is_any, is_plain_name, kind_of, named, Diagnosis, Facts, Fallback, OwnHalf, Rule,
};
use crate::value::letters::is_plain;
use crate::value::{Map, Value};

pub(crate) const FACTS: Facts = Facts {
    telemetry: "anthropic",
    list: "messages",
    prompts: &["system"],
    container: Some("container"),
    parameters: None,
    most_output: &["max_tokens"],
    output_form: &[&["output_format"], &["output_config"]],
    message_fields: &["thinking", "tool_choice"],
    stand_in: STAND_IN_TEXT,
    rules: &[
        Rule::UserFirst,
        Rule::UserBeforeCalls,
        Rule::MergesNeighbours,
        Rule::ThoughtsLead,
        Rule::CallsAnywhere,
        // As was reported of Anthropic's models (vellum-assistant#18387).
        Rule::FailuresAreText,
        Rule::ClosesUses,
        // Anthropic's guide to refusals in streams, which names Bedrock's endpoints, too.
        Rule::LeavesOutRefused,
    ],
    takes_id: |id, _| !id.is_empty() && id.bytes().all(is_plain),
    takes_name: is_plain_name,
    takes_block,
    refused_key: None,
    document_name: None,
    item_prefix: |_| None,
    half,
    nameless_halves: None,
    // From the guide to refusals that anthropic 2.14.0 names (`beta_fallback_block_param.py`).
    fallback: Some(Fallback {
        between: "fallback",
        call: "tool_use",
        dropped: "connector_text",
    }),
    cache: CLAUDE_CACHE,
    cache_mark: |ttl| match ttl {
        Ttl::FiveMinutes => ",\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"5m\"}",
        Ttl::Hour => ",\"cache_control\":{\"type\":\"ephemeral\",\"ttl\":\"1h\"}",
        _ => ",\"cache_control\":{\"type\":\"ephemeral\"}",
    },
    diagnose,
    checks_thinking: Some(claude_checks_thinking),
    subset: &CLAUDE,
    constrains: |model, _| claude_version(model).is_some_and(|version| version >= (4, 5)),
    // As anthropic 2.12.0 writes it.
    constraint: |_, schema| {
        let format = object([("type", Value::text("json_schema")), ("schema", schema)]);
        object([("output_config", object([("format", format)]))])
    },
};

fn takes_block(place: Place, data: &Map) -> bool {
    let kind = kind_of(data);
    let is_served = kind.ends_with("_tool_use") || kind.ends_with("_tool_result");
    let calls = ["tool_use", "tool_result"];
    let media = ["text", "image", "document"];
    match place {
        // Such as the tools that a search of the application's own has found.
        Place::Result => {
            let found = ["search_result", "tool_reference", "browser_state"];
            is_any(data, &media) || is_any(data, &found)
        }
        Place::System => is_any(data, &["text"]),
        Place::User => {
            let thoughts = ["thinking", "redacted_thinking"];
            !is_served && !is_any(data, &calls) && !is_any(data, &thoughts)
        }
        Place::Assistant => {
            !is_any(data, &calls) && !is_any(data, &["image", "document", "search_result"])
        }
    }
}

fn half(data: &Map) -> Option<OwnHalf<'_>> {
    let kind = named(data, "type")?;
    if kind.ends_with("_tool_use") {
        return Some(OwnHalf::new(named(data, "id")?, false));
    }
    let is_result = kind.ends_with("_tool_result");
    is_result.then(|| Some(OwnHalf::new(named(data, "tool_use_id")?, true)))?
}

/// Returns nothing where it found no difference, and a miss without a reason while it does not know yet.
fn diagnose(details: Option<&Map>, is_asked: bool) -> Option<Diagnosis> {
    let miss = |reason: &str, tokens| Diagnosis {
        reason: reason.into(),
        tokens,
    };
    match details.and_then(|details| details.get_named("diagnostics")) {
        Some(Value::Map(given)) => Some(match given.get_named("cache_miss_reason") {
            Some(Value::Map(reason)) => {
                let word = reason.get_named("type").and_then(Value::as_str);
                let tokens = reason
                    .get_named("cache_missed_input_tokens")
                    .and_then(Value::as_count);
                miss(word.unwrap_or_default(), tokens)
            }
            _ => miss("pending", None),
        }),
        _ => is_asked.then(|| miss("cache_hit", None)),
    }
}
