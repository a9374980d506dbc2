//! Calls that only the API keeps: a request that continues a response has their outputs alone.

use std::collections::{HashMap, HashSet};

use super::facts::ItemForm;
use super::{read_calls, PROVIDER};
use crate::log::call::{Arguments, Name, ToolCall};
use crate::provider::foreign::{call, metadata_with, name_at};
use crate::value::Value;

/// The name for a tool of which only an output is known.
const UNKNOWN: &str = "unknown";

/// Returns the calls of each run of outputs whose calls are not in the list, by position. Their arguments are not known.
pub(super) fn calls(items: &[Value]) -> HashMap<usize, Vec<ToolCall>> {
    let mut known: HashSet<&str> = HashSet::new();
    let mut assumed: HashMap<usize, Vec<ToolCall>> = HashMap::new();
    let mut run = None;
    for (position, item) in items.iter().enumerate() {
        let kind = name_at(item, "type").unwrap_or_default();
        let Some(form) = ItemForm::of_output(kind) else {
            run = None;
            let id = name_at(item, "call_id").or_else(|| name_at(item, "id"));
            known.extend(id);
            continue;
        };
        let id = read_calls::answered_id(form, item);
        if let Some(id) = id.filter(|id| !id.is_empty() && known.insert(id)) {
            let first = *run.get_or_insert(position);
            let calls = assumed.entry(first).or_default();
            calls.push(assume_call(form, id, name_at(item, "name")));
        }
    }
    assumed
}

fn assume_call(form: &ItemForm, id: &str, name: Option<&str>) -> ToolCall {
    let name = form.kind.tool().or(name).unwrap_or(UNKNOWN);
    let metadata = metadata_with(PROVIDER, [("assumed", Value::Bool(true))]);
    let arguments = Arguments::of(form.kind, Value::Nil).unwrap_or_default();
    let name = Name::Text(name.into());
    call(Some(id.into()), name, arguments, Some(metadata)).of_kind(form.kind)
}
