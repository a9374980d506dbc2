//! The facts about Bedrock.

use crate::log::hints::Ttl;
use crate::log::place::Place;
use crate::provider::dialect::facts::{
    claude_checks_thinking, claude_version, is_new_claude, object, CLAUDE, CLAUDE_LEAST,
};
use crate::provider::facts::{half_under, is_any, is_plain_name, Cache, Facts, Rule};
use crate::value::letters::is_dotted;
use crate::value::{json, Map, Value};

pub(crate) const FACTS: Facts = Facts {
    telemetry: "aws.bedrock",
    list: "messages",
    prompts: &["system"],
    container: None,
    parameters: Some("inferenceConfig"),
    most_output: &["maxTokens"],
    output_form: &[&["outputConfig"]],
    message_fields: &[],
    stand_in: ",{\"role\":\"user\",\"content\":[{\"text\":\"Continue.\"}]}",
    rules: &[
        Rule::UserFirst,
        Rule::UserBeforeCalls,
        Rule::Alternates,
        Rule::MergesNeighbours,
        Rule::RemakesMerged,
        Rule::ListsOnly,
        Rule::ResultsStandTogether,
        Rule::ThoughtsLead,
        Rule::CallsAnywhere,
        // As was reported of Anthropic's models (vellum-assistant#18387).
        Rule::FailuresAreText,
        Rule::EndsWithBody,
        // Anthropic's guide to refusals in streams, which names Bedrock's endpoints, too.
        Rule::LeavesOutRefused,
    ],
    takes_id: |id, _| (1..=64).contains(&id.chars().count()) && id.bytes().all(is_dotted),
    takes_name: is_plain_name,
    takes_block: |place, data| match place {
        Place::Result => false,
        Place::System => is_any(data, &["text", "guardContent", "cachePoint"]),
        Place::User => !is_any(data, &["toolUse", "toolResult", "reasoningContent"]),
        Place::Assistant => is_own(data, "toolUse") && is_own(data, "toolResult"),
    },
    refused_key: None,
    document_name: Some(document_name),
    item_prefix: |_| None,
    half: |data| half_under(data, "toolUseId", ["toolUse", "toolResult"]),
    nameless_halves: None,
    fallback: None,
    // Its page does not say that runs count as one, and its minimum differs for one model, as of 2026-10.
    cache: Cache::Marked {
        minutes: 5,
        longest: 60,
        look_back: 20,
        counts_runs: false,
        // A cache point is a block of its own, and nothing stands between results.
        results: None,
        least: &[&[("opus-4-7", 4096)], CLAUDE_LEAST],
        // A mark is an error for others. An inference profile may hide its model.
        knows: |model| {
            let version = claude_version(model);
            version.is_some_and(|version| version >= (3, 7))
                || model.contains("claude-3-5-haiku")
                || is_new_claude(model)
        },
    },
    cache_mark: |ttl| match ttl {
        Ttl::FiveMinutes => ",{\"cachePoint\":{\"type\":\"default\",\"ttl\":\"5m\"}}",
        Ttl::Hour => ",{\"cachePoint\":{\"type\":\"default\",\"ttl\":\"1h\"}}",
        _ => ",{\"cachePoint\":{\"type\":\"default\"}}",
    },
    diagnose: |_, _| None,
    checks_thinking: Some(claude_checks_thinking),
    subset: &CLAUDE,
    constrains: |model, beside_tools| {
        !beside_tools && claude_version(model).is_some_and(|version| version >= (4, 5))
    },
    // As botocore 1.44.5 has it, with the schema as text.
    constraint: |name, schema| {
        let schema = Value::text(&json::write(&schema));
        let schema = object([("name", Value::text(name)), ("schema", schema)]);
        let structure = object([("jsonSchema", schema)]);
        let format = object([
            ("type", Value::text("json_schema")),
            ("structure", structure),
        ]);
        object([("outputConfig", object([("textFormat", format)]))])
    },
};

/// Returns whether a block is a use or a result of Bedrock's own: these have a type.
fn is_own(data: &Map, key: &str) -> bool {
    match data.get_named(key) {
        Some(Value::Map(half)) => {
            let kind = half.get_named("type").and_then(Value::as_name);
            kind.is_some_and(|kind| kind != "tool_use")
        }
        _ => true,
    }
}

/// The letters that the name of a document may have.
pub(super) const LONGEST_NAME: usize = 200;

/// Returns a name of letters, digits, single spaces, hyphens, parentheses and brackets, which is all that the service takes.
pub(super) fn document_name(filename: Option<&str>) -> String {
    let filename = filename.unwrap_or_default();
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-()[]".contains(letter);
    // Of a name in another script the end alone would be left.
    let (stem, _) = filename.rsplit_once('.').unwrap_or((filename, ""));
    let is_told = stem.chars().any(|letter| letter.is_ascii_alphanumeric());
    let spaced: String = filename
        .chars()
        .map(|letter| if allowed(letter) { letter } else { ' ' })
        .collect();
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let name: String = words.join(" ").chars().take(LONGEST_NAME).collect();
    match is_told {
        true => name.trim_end().to_owned(),
        false => "document".to_owned(),
    }
}
