//! The facts in which Ollama differs from the chat dialect.

use crate::answer::subset::WHOLE;
use crate::log::place::Place;
use crate::provider::dialect::facts::{object, CHAT};
use crate::provider::facts::{Cache, Facts, Rule};
use crate::value::letters::is_blank;

pub(crate) const FACTS: Facts = Facts {
    telemetry: "ollama",
    parameters: Some("options"),
    most_output: &["num_predict"],
    output_form: &[&["format"]],
    rules: &[Rule::SystemFirst, Rule::EndsWithBody],
    takes_id: |_, _| true,
    takes_name: |name| !is_blank(name),
    takes_block: |place, _| place != Place::Result,
    cache: Cache::Unknown,
    cache_mark: |_| "",
    checks_thinking: None,
    subset: &WHOLE,
    // Beside tools, a schema keeps the model from calling them.
    constrains: |_, beside_tools| !beside_tools,
    constraint: |_, schema| object([("format", schema)]),
    ..CHAT
};
