//! Answers that Mistral's models hold to a schema: `response_format`, as mistralai 3.7.0 writes it.

use crate::answer::subset::Subset;
use crate::provider::format::Constrains;
use crate::provider::strict::{response_format, STRICT};
use crate::value::Value;

impl Constrains for super::Room {
    fn subset(&self) -> Option<&'static Subset> {
        Some(&STRICT)
    }

    fn constrains(&self, _model: &str, beside_tools: bool) -> bool {
        !beside_tools
    }

    fn constraint(&self, name: &str, schema: Value) -> Value {
        response_format(name, schema)
    }
}
