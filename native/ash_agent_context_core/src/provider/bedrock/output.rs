//! Answers that models of Bedrock hold to a schema: `outputConfig.textFormat`, as botocore 1.44.5 has it, with the schema as text.

use crate::answer::subset::Subset;
use crate::provider::format::Constrains;
use crate::provider::strict::{claude_version, object, text, CLAUDE};
use crate::value::{json, Value};

impl Constrains for super::Room {
    fn subset(&self) -> Option<&'static Subset> {
        Some(&CLAUDE)
    }

    fn constrains(&self, model: &str, beside_tools: bool) -> bool {
        !beside_tools && claude_version(model).is_some_and(|version| version >= (4, 5))
    }

    fn constraint(&self, name: &str, schema: Value) -> Value {
        let schema = object([
            ("name", text(name)),
            ("schema", text(&json::write(&schema))),
        ]);
        let structure = object([("jsonSchema", schema)]);
        let format = object([("type", text("json_schema")), ("structure", structure)]);
        object([("outputConfig", object([("textFormat", format)]))])
    }
}
