//! Answers that Mistral's models hold to a schema: `response_format`, as mistralai 3.7.0 writes it.

use crate::answer::subset::Subset;
use crate::provider::format::Constrains;
use crate::provider::strict::{object, text, STRICT};
use crate::value::Value;

impl Constrains for super::Room {
    fn subset(&self) -> Option<&'static Subset> {
        Some(&STRICT)
    }

    fn constrains(&self, _model: &str, beside_tools: bool) -> bool {
        !beside_tools
    }

    fn constraint(&self, name: &str, schema: Value) -> Value {
        let schema = object([
            ("name", text(name)),
            ("strict", Value::Bool(true)),
            ("schema", schema),
        ]);
        let format = object([("type", text("json_schema")), ("json_schema", schema)]);
        object([("response_format", format)])
    }
}
