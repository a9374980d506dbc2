//! Answers that Ollama holds to a schema: `format`, which takes a schema as it is. Beside tools, it keeps the model from calling them.

use crate::answer::subset::{Subset, WHOLE};
use crate::provider::format::Constrains;
use crate::provider::strict::object;
use crate::value::Value;

impl Constrains for super::Room {
    fn subset(&self) -> Option<&'static Subset> {
        Some(&WHOLE)
    }

    fn constrains(&self, _model: &str, beside_tools: bool) -> bool {
        !beside_tools
    }

    fn constraint(&self, _name: &str, schema: Value) -> Value {
        object([("format", schema)])
    }
}
