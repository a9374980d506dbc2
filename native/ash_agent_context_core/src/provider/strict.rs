//! Shared by providers that constrain answers to a schema: their subsets, and the names of models that support this.

use crate::answer::subset::{Subset, FORMATS};
use crate::value::{Map, Value};

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
