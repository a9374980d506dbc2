//! Answers that Anthropic's models hold to a schema: `output_config.format`, as anthropic 2.12.0 writes it.

use crate::answer::subset::Subset;
use crate::provider::format::Constrains;
use crate::provider::strict::{claude_version, object, text, CLAUDE};
use crate::value::Value;

impl Constrains for super::Room {
    fn subset(&self) -> Option<&'static Subset> {
        Some(&CLAUDE)
    }

    fn constrains(&self, model: &str, _beside_tools: bool) -> bool {
        claude_version(model).is_some_and(|version| version >= (4, 5))
    }

    fn constraint(&self, _name: &str, schema: Value) -> Value {
        let format = object([("type", text("json_schema")), ("schema", schema)]);
        object([("output_config", object([("format", format)]))])
    }
}
