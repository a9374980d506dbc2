//! Answers that models of OpenAI hold to a schema: `response_format`, as openai 3.54.0 writes it.

use crate::answer::subset::Subset;
use crate::provider::format::Constrains;
use crate::provider::strict::{is_strict_gpt, response_format, STRICT};
use crate::value::Value;

impl Constrains for super::Room {
    fn subset(&self) -> Option<&'static Subset> {
        Some(&STRICT)
    }

    fn constrains(&self, model: &str, _beside_tools: bool) -> bool {
        is_strict_gpt(model)
    }

    fn constraint(&self, name: &str, schema: Value) -> Value {
        response_format(name, schema)
    }
}
