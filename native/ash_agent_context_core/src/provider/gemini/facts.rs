//! The facts about Gemini.

use crate::answer::node::Kinds;
use crate::answer::subset::Subset;
use crate::log::place::Place;
use crate::provider::dialect::facts::object;
use crate::provider::facts::{half_under, is_any, Cache, Facts, Rule};
use crate::value::letters::is_dotted;
use crate::value::Value;

pub(crate) const FACTS: Facts = Facts {
    telemetry: "gcp.gemini",
    list: "contents",
    prompts: &["systemInstruction", "system_instruction"],
    container: None,
    parameters: Some("generationConfig"),
    most_output: &["maxOutputTokens"],
    output_form: &[
        &["generationConfig", "responseJsonSchema"],
        &["generationConfig", "responseSchema"],
        &["generationConfig", "responseMimeType"],
    ],
    message_fields: &[],
    stand_in: ",{\"role\":\"user\",\"parts\":[{\"text\":\"Continue.\"}]}",
    rules: &[
        Rule::UserFirst,
        Rule::UserBeforeCalls,
        Rule::UserLast,
        Rule::MergesNeighbours,
        Rule::ListsOnly,
        Rule::ResultsStandAlone,
        Rule::ResultsStandTogether,
        Rule::WrapsResults,
        Rule::CallsAnywhere,
        Rule::EndsWithBody,
    ],
    takes_id: |_, _| true,
    takes_name: |name| {
        let first = name.bytes().next();
        first.is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
            && name.len() <= 128
            && name.bytes().all(is_dotted)
    },
    takes_block: |place, data| match place {
        Place::Result => false,
        Place::System => is_any(data, &["text"]),
        _ if is_any(data, &["functionCall", "functionResponse"]) => false,
        Place::User => {
            let served = ["toolCall", "toolResponse", "executableCode"];
            !is_any(data, &served) && !is_any(data, &["codeExecutionResult", "thought"])
        }
        Place::Assistant => true,
    },
    // It would be the name of a part (vercel/ai#14369, tried by its maintainers).
    refused_key: Some("$ref"),
    document_name: None,
    item_prefix: |_| None,
    half: |data| {
        half_under(data, "id", ["toolCall", "toolResponse"])
            .or_else(|| half_under(data, "id", ["executableCode", "codeExecutionResult"]))
    },
    nameless_halves: Some(["executableCode", "codeExecutionResult"]),
    fallback: None,
    cache: Cache::Unknown,
    cache_mark: |_| "",
    diagnose: |_, _| None,
    checks_thinking: None,
    subset: &Subset {
        bounds: "minimum maximum minItems maxItems",
        formats: "date date-time time",
        shapes: "oneOf prefixItems",
        is_closed: false,
        needs_all: false,
        may_recur: true,
        // Its reference has `enum` "for strings and numbers".
        choices: Kinds::STRING.with(Kinds::NUMBER),
        most: &[],
    },
    // Beside functions, models before Gemini 3 refuse it.
    constrains: |model, beside_tools| {
        let name = model.rsplit('/').next();
        let version = name.and_then(|name| name.strip_prefix("gemini-"));
        let version = version.and_then(|rest| rest.chars().next()?.to_digit(10));
        version.is_some_and(|version| version >= if beside_tools { 3 } else { 2 })
    },
    // As google-genai 3.4.0 writes it.
    constraint: |_, schema| {
        let config = object([
            ("responseMimeType", Value::text("application/json")),
            ("responseJsonSchema", schema),
        ]);
        object([("generationConfig", config)])
    },
};
