//! Answers that Gemini's models hold to a schema: `generationConfig.responseJsonSchema`, as google-genai 3.4.0 writes it. Beside
//! functions, models before Gemini 3 refuse it.

use crate::answer::subset::Subset;
use crate::provider::format::Constrains;
use crate::provider::strict::{object, text};
use crate::value::Value;

const SUBSET: Subset = Subset {
    bounds: &["minimum", "maximum", "minItems", "maxItems"],
    formats: &["date", "date-time", "time"],
    shapes: &["oneOf", "prefixItems"],
    is_closed: false,
    needs_all: false,
    may_recur: true,
};

impl Constrains for super::Room {
    fn subset(&self) -> Option<&'static Subset> {
        Some(&SUBSET)
    }

    fn constrains(&self, model: &str, beside_tools: bool) -> bool {
        let version = model
            .rsplit('/')
            .next()
            .and_then(|name| name.strip_prefix("gemini-"));
        let version = version.and_then(|rest| rest.chars().next()?.to_digit(10));
        version.is_some_and(|version| version >= if beside_tools { 3 } else { 2 })
    }

    fn constraint(&self, _name: &str, schema: Value) -> Value {
        let config = object([
            ("responseMimeType", text("application/json")),
            ("responseJsonSchema", schema),
        ]);
        object([("generationConfig", config)])
    }
}
