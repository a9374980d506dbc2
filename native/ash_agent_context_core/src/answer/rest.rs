//! Keywords of JSON Schema that this crate does not check itself, left to the crate `jsonschema`, which is built in with a
//! feature. Both check all values, so that nothing depends on which of them knows a keyword.

use std::thread;

use jsonschema::{Draft, ValidationError, Validator};

use crate::answer::issue::{Findings, MOST_ISSUES};
use crate::error::{index, Error, Path};
use crate::value::{json, Value};

/// The size of its stack: that crate recurses with the levels of a schema, and with those of a value.
const STACK: usize = 16 << 20;

/// A whole schema, compiled by that crate.
#[derive(Debug)]
pub(crate) struct Rest(Validator);

impl Rest {
    pub fn new(schema: &Value) -> Result<Self, Error> {
        let schema = to_json(schema).ok_or_else(|| wrong(Path::new()))?;
        let build = || {
            let options = jsonschema::options().with_draft(Draft::Draft202012);
            let built = options.build(&schema);
            built.map_err(|error| wrong(place(&error.instance_path().to_string())))
        };
        on_own_stack(build)
            .unwrap_or_else(|| Err(wrong(Path::new())))
            .map(Self)
    }

    /// Checks a value that fits all other rules.
    pub fn check(&self, value: &Value, report: &mut Findings) {
        let find = || {
            let value = to_json(value)?;
            let errors = self.0.iter_errors(&value).take(MOST_ISSUES);
            Some(errors.map(|error| explain(&error)).collect::<Vec<_>>())
        };
        let Some(found) = on_own_stack(find).flatten() else {
            return report.issue(&Path::new(), "could not be checked");
        };
        for (path, words) in found {
            report.issue(&path, words);
        }
    }
}

fn wrong(path: Path) -> Error {
    Error::invalid(path, "JSON Schema as its draft 2020-12 has it")
}

/// Returns the path and the expectation: the place in the schema, which a model has, and nothing of the value.
fn explain(error: &ValidationError<'_>) -> (Path, String) {
    let words = format!("expected what the schema says at {}", error.schema_path());
    (place(&error.instance_path().to_string()), words)
}

fn place(pointer: &str) -> Path {
    let step = |step: &str| match step.parse() {
        Ok(at) => index(at),
        Err(_) => Value::text(&step.replace("~1", "/").replace("~0", "~")),
    };
    pointer.split('/').skip(1).map(step).collect()
}

fn to_json(value: &Value) -> Option<serde_json::Value> {
    serde_json::from_str(&json::write(value)).ok()
}

/// Runs a function on a stack of its own; `None` if the machine has none to give, or the function panics.
fn on_own_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(STACK);
        thread.spawn_scoped(scope, work).ok()?.join().ok()
    })
}
