//! What is true of several providers: of the chat dialect, of Claude wherever it runs, and of OpenAI's models and caches.

use crate::answer::subset::{Subset, FORMATS};
use crate::log::hints::Ttl;
use crate::log::place::Place;
use crate::provider::facts::{is_any, is_plain_name, Cache, Facts, SystemPlace};
use crate::value::{Map, Value};

/// The chat dialect as OpenAI has it. It is also how messages of nobody in particular are read.
pub(crate) const CHAT: Facts = Facts {
    telemetry: "openai",
    list: "messages",
    system: None,
    prompts: &[],
    container: None,
    parameters: None,
    most_output: &["max_tokens", "max_completion_tokens"],
    output_form: &[&["response_format"]],
    message_fields: &[],
    stand_in: STAND_IN_TEXT,
    takes_id: |id, is_own| {
        // Older models and Azure take 40 characters; an id that came from OpenAI may have the 64 that newer ones take.
        let most = if is_own { 64 } else { 40 };
        (1..=most).contains(&id.chars().count())
    },
    short_ids: false,
    takes_name: is_plain_name,
    takes_block: |place, data| match place {
        Place::Result => false,
        Place::Assistant => !is_any(data, &OF_USERS),
        Place::User => !is_any(data, &["refusal"]),
        Place::System => true,
    },
    user_first: false,
    user_before_calls: false,
    user_last: false,
    alternates: false,
    is_prefix,
    merges_neighbours: false,
    remakes_merged: false,
    lists_only: false,
    system_place: SystemPlace::Anywhere,
    results_stand_alone: false,
    results_stand_together: false,
    wraps_results: false,
    calls_anywhere: false,
    closes_uses: false,
    has_items: false,
    item_prefix: |_| None,
    half: |_| None,
    nameless_halves: None,
    fallback: None,
    cache: OPENAI_CACHE,
    cache_mark: openai_breakpoint,
    diagnose: |_, _| None,
    subset: &STRICT,
    constrains: |model, _| is_strict_gpt(model),
    constraint: response_format,
};

/// Parts that only users have.
pub(crate) const OF_USERS: [&str; 3] = ["image_url", "input_audio", "file"];

/// The user message that stands where there is none, with a text for content.
pub(crate) const STAND_IN_TEXT: &str = ",{\"role\":\"user\",\"content\":\"Continue.\"}";

/// OpenAI caches requests of so many tokens, in blocks of so many.
pub(crate) const OPENAI_CACHE: Cache = Cache::Rounded {
    least: 1024,
    block: 128,
};

/// Anthropic's, which is also Bedrock's.
pub(crate) const CLAUDE_CACHE: Cache = Cache::Marked {
    minutes: 5,
    longest: 60,
    look_back: 20,
    least: &[
        ("opus-5", 512),
        ("opus-4-5", 4096),
        ("opus-4-6", 4096),
        ("opus-4-7", 4096),
        ("haiku-4-5", 4096),
        ("mythos", 4096),
        ("haiku-3", 2048),
        ("3-haiku", 2048),
        ("3-5-haiku", 2048),
    ],
};

pub(crate) fn openai_breakpoint(ttl: Ttl) -> &'static str {
    match ttl {
        Ttl::HalfHour => ",\"prompt_cache_breakpoint\":{\"mode\":\"explicit\",\"ttl\":\"30m\"}",
        Ttl::HalfDay => ",\"prompt_cache_breakpoint\":{\"mode\":\"explicit\",\"ttl\":\"12h\"}",
        _ => ",\"prompt_cache_breakpoint\":{\"mode\":\"explicit\"}",
    }
}

/// Returns whether an imported message asks for its own continuation: DeepSeek and Mistral call that a prefix, Moonshot
/// and Alibaba partial. Within a text, the quotation marks would be escaped.
pub(crate) fn is_prefix(elements: &str) -> bool {
    elements.contains("\"prefix\":true") || elements.contains("\"partial\":true")
}

/// The subset that OpenAI accepts with `strict`, after its guide on structured outputs; Mistral has the same rules.
pub(crate) const STRICT: Subset = Subset {
    bounds: &[
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "pattern",
        "minItems",
        "maxItems",
    ],
    formats: &[
        "date",
        "date-time",
        "duration",
        "time",
        "uuid",
        "email",
        "ipv4",
        "ipv6",
    ],
    shapes: &["const"],
    is_closed: true,
    needs_all: true,
    may_recur: true,
};

/// The subset for Anthropic's models, after its SDK's `transform_schema`. Bedrock also has models of others, and this is the strictest
/// of their subsets.
pub(crate) const CLAUDE: Subset = Subset {
    bounds: &[],
    formats: &FORMATS,
    shapes: &["allOf", "const"],
    is_closed: true,
    needs_all: false,
    may_recur: false,
};

/// The field of OpenAI's chat format that holds an answer to a schema.
pub(crate) fn response_format(name: &str, schema: Value) -> Value {
    let schema = object([
        ("name", text(name)),
        ("strict", Value::Bool(true)),
        ("schema", schema),
    ]);
    let format = object([("type", text("json_schema")), ("json_schema", schema)]);
    object([("response_format", format)])
}

/// An object of these fields.
pub(crate) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let entry = |(key, value)| (Value::text(key), value);
    Value::Map(Map::new(fields.into_iter().map(entry).collect()))
}

/// A text.
pub(crate) fn text(text: &str) -> Value {
    Value::text(text)
}

/// The version of a Claude in a model's name, wherever it runs: `claude-sonnet-4-5-20250929`, `eu.anthropic.claude-opus-4-1-v1:0`.
pub(crate) fn claude_version(model: &str) -> Option<(u32, u32)> {
    let (_, name) = model.split_once("claude-")?;
    let mut numbers = name
        .split(['-', '.', '@', ':'])
        .skip_while(|word| word.parse::<u32>().is_err())
        .map_while(|word| word.parse::<u32>().ok());
    let major = numbers.next()?;
    // A date is not a version.
    let minor = numbers.next().filter(|minor| *minor < 100).unwrap_or(0);
    Some((major, minor))
}

/// Returns whether a model of OpenAI knows `strict`: those before GPT-4o do not.
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
