//! Facts that several providers share: those of the chat dialect, of Claude wherever it runs, and of OpenAI's models and caches.

use crate::answer::node::Kinds;
use crate::answer::subset::{Size, Subset, FORMATS};
use crate::log::hints::Ttl;
use crate::log::place::Place;
use crate::provider::facts::{is_any, is_plain_name, Cache, Facts, Rule};
use crate::value::{Map, Value};

/// The chat dialect as OpenAI has it. Messages of no known provider are read as this, too.
pub(crate) const CHAT: Facts = Facts {
    telemetry: "openai",
    list: "messages",
    prompts: &[],
    container: None,
    parameters: None,
    most_output: &["max_tokens", "max_completion_tokens"],
    output_form: &[&["response_format"]],
    message_fields: &[],
    stand_in: STAND_IN_TEXT,
    rules: &[
        Rule::TextArguments,
        Rule::Prefixes,
        Rule::SaysDone,
        Rule::EndsWithBody,
    ],
    takes_id: |id, is_own| {
        // Older models and Azure take 40 characters; an id that came from OpenAI may have the 64 that newer ones take.
        let most = if is_own { 64 } else { 40 };
        (1..=most).contains(&id.chars().count())
    },
    takes_name: is_plain_name,
    takes_block: |place, data| match place {
        Place::Result => false,
        Place::Assistant => !is_any(data, &OF_USERS),
        Place::User => !is_any(data, &["refusal"]),
        Place::System => true,
    },
    refused_key: None,
    document_name: None,
    item_prefix: |_| None,
    half: |_| None,
    nameless_halves: None,
    fallback: None,
    cache: OPENAI_CACHE,
    cache_mark: openai_breakpoint,
    diagnose: |_, _| None,
    checks_thinking: None,
    subset: &STRICT,
    constrains: |model, _| is_strict_gpt(model),
    constraint: response_format,
};

/// Parts that only messages of the user can have.
pub(crate) const OF_USERS: [&str; 3] = ["image_url", "input_audio", "file"];

/// The user message that fills a gap, with a text for content.
pub(crate) const STAND_IN_TEXT: &str = ",{\"role\":\"user\",\"content\":\"Continue.\"}";

/// OpenAI caches requests from `least` tokens on, in blocks of `block`.
pub(crate) const OPENAI_CACHE: Cache = Cache::Rounded {
    least: 1024,
    block: 128,
};

/// The tokens of the shortest request that a Claude caches, where it is not 1,024. From Anthropic's page on prompt caching, as of
/// 2026-10; of Sonnet 4.6 one measurement says 2,048.
pub(crate) const CLAUDE_LEAST: &[(&str, u64)] = &[
    ("opus-5", 512),
    ("fable", 512),
    ("mythos", 512),
    ("opus-4-5", 4096),
    ("opus-4-6", 4096),
    ("opus-4-7", 2048),
    ("haiku-4-5", 4096),
    ("haiku-3", 2048),
    ("3-haiku", 2048),
    ("3-5-haiku", 2048),
];

/// The cache of Claude's models at Anthropic. The look-back by runs is from the same page.
pub(crate) const CLAUDE_CACHE: Cache = Cache::Marked {
    minutes: 5,
    longest: 60,
    look_back: 20,
    counts_runs: true,
    results: Some("{\"type\":\"tool_result\""),
    least: &[CLAUDE_LEAST],
    knows: |model| {
        claude_version(model).is_some_and(|version| version >= (3, 0)) || is_new_claude(model)
    },
};

pub(crate) fn openai_breakpoint(ttl: Ttl) -> &'static str {
    match ttl {
        Ttl::HalfHour => ",\"prompt_cache_breakpoint\":{\"mode\":\"explicit\",\"ttl\":\"30m\"}",
        Ttl::HalfDay => ",\"prompt_cache_breakpoint\":{\"mode\":\"explicit\",\"ttl\":\"12h\"}",
        _ => ",\"prompt_cache_breakpoint\":{\"mode\":\"explicit\"}",
    }
}

/// The part of JSON Schema that OpenAI takes with `strict`, by its guide on structured outputs. Mistral has the same rules.
pub(crate) const STRICT: Subset = Subset {
    bounds:
        "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf pattern minItems maxItems",
    formats: "date date-time duration time uuid email ipv4 ipv6",
    shapes: "const",
    is_closed: true,
    needs_all: true,
    may_recur: true,
    choices: Kinds::PLAIN,
    most: &[
        (Size::Levels, 10),
        (Size::Fields, 5_000),
        (Size::Choices, 1_000),
        (Size::Letters, 120_000),
        (Size::Crowded, 15_000),
    ],
};

/// The part of JSON Schema that Anthropic's models take, by `transform_schema` of its SDK. Bedrock uses it too: of the models
/// there, Claude is the strictest.
pub(crate) const CLAUDE: Subset = Subset {
    bounds: "",
    formats: FORMATS,
    shapes: "allOf const",
    is_closed: true,
    needs_all: false,
    may_recur: false,
    // Its guide to structured outputs, and errors that were reported ("too many optional parameters (87) ... (limit: 24)").
    choices: Kinds::PLAIN,
    most: &[(Size::Optional, 24), (Size::Unions, 16)],
};

/// Returns the field of OpenAI's chat format that makes the model answer by a schema.
pub(crate) fn response_format(name: &str, schema: Value) -> Value {
    let schema = object([
        ("name", Value::text(name)),
        ("strict", Value::Bool(true)),
        ("schema", schema),
    ]);
    let format = object([
        ("type", Value::text("json_schema")),
        ("json_schema", schema),
    ]);
    object([("response_format", format)])
}

pub(crate) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let entry = |(key, value)| (Value::text(key), value);
    Value::Map(Map::new(fields.into_iter().map(entry).collect()))
}

/// Returns the version of a Claude in a model's name, wherever it runs: `claude-sonnet-4-5-20250929`,
/// `eu.anthropic.claude-opus-4-1-v1:0`.
pub(crate) fn claude_version(model: &str) -> Option<(u32, u32)> {
    let (_, name) = model.split_once("claude-")?;
    let mut numbers = name
        .split(['-', '.', '@', ':'])
        .skip_while(|word| word.parse::<u32>().is_err())
        .map_while(|word| word.parse::<u32>().ok());
    let major = numbers.next()?;
    // A number of three or more digits is a date.
    let minor = numbers.next().filter(|minor| *minor < 100).unwrap_or(0);
    Some((major, minor))
}

/// The first versions of the families of Claude that check thinking, from Anthropic's guide to preserved thinking.
const CHECKING: [(&str, (u32, u32)); 6] = [
    ("opus", (5, 5)),
    ("sonnet", (5, 5)),
    ("haiku", (5, 5)),
    ("fable", (5, 1)),
    ("mythos", (5, 1)),
    ("instant", (5, 1)),
];

/// Returns whether a Claude checks what stands before its thinking. A family that is not known yet is newer than those which do not.
pub(crate) fn claude_checks_thinking(model: &str) -> bool {
    let Some((_, name)) = model.split_once("claude-") else {
        // Names of Bedrock that say nothing of the model.
        let nameless = ["application-inference-profile/", "provisioned-model/"];
        return nameless.iter().any(|kind| model.contains(kind));
    };
    let known = CHECKING.iter().find(|(family, _)| name.contains(family));
    match (known, claude_version(model)) {
        (Some((_, first)), Some(version)) => version >= *first,
        // `claude-2.1`, `claude-v2:1`
        (None, Some(version)) if !name.starts_with(is_family) => version >= (5, 1),
        _ => true,
    }
}

/// Returns whether a name is a Claude's of a family whose name has no version yet, such as `claude-fable-latest`.
pub(crate) fn is_new_claude(model: &str) -> bool {
    let named = model.split_once("claude-");
    named.is_some_and(|(_, name)| claude_version(model).is_none() && name.starts_with(is_family))
}

/// Returns whether a name begins with a letter, and not with the `v` of a version.
fn is_family(letter: char) -> bool {
    letter.is_ascii_alphabetic() && letter != 'v'
}

/// Returns whether a model of OpenAI takes `strict`, as all from GPT-4o on do.
pub(crate) fn is_strict_gpt(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let is_old = [
        "gpt-3.5",
        "gpt-4-",
        "gpt-4o-2024-05-13",
        "o1-mini",
        "o1-preview",
    ]
    .iter()
    .any(|old| name.starts_with(old));
    !is_old && name != "gpt-4" && (name.starts_with("gpt-") || is_o_series(name))
}

fn is_o_series(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next() == Some('o') && letters.next().is_some_and(|digit| digit.is_ascii_digit())
}
