//! Finds where two values differ, as paths: an error may name these where nobody is to see the values.

use std::collections::BTreeSet;

use crate::error::{index, Path};
use crate::value::Value;

/// Returns the paths at which two values differ, in their order, at most so many.
///
/// # Complexity
/// O(n log n) in the values. It recurses with their levels.
pub(crate) fn find_differences(one: &Value, other: &Value, most: usize) -> Vec<Path> {
    let mut found = Vec::new();
    compare(Some(one), Some(other), &mut Path::new(), &mut |path| {
        if found.len() < most {
            found.push(path.clone());
        }
        found.len() < most
    });
    found
}

/// Finds the differences at a path, where one of two values may be absent. Returns false once there are enough.
fn compare(
    one: Option<&Value>,
    other: Option<&Value>,
    path: &mut Path,
    found: &mut impl FnMut(&Path) -> bool,
) -> bool {
    let mut at = |step, one, other| {
        path.push(step);
        let goes_on = compare(one, other, path, found);
        path.pop();
        goes_on
    };
    match (one, other) {
        (Some(Value::Map(one)), Some(Value::Map(other))) => {
            let keys: BTreeSet<_> = one.iter().chain(other.iter()).map(|(key, _)| key).collect();
            let mut keys = keys.into_iter();
            keys.all(|key| at(key.clone(), one.get(key), other.get(key)))
        }
        (Some(Value::List(one)), Some(Value::List(other)))
        | (Some(Value::Tuple(one)), Some(Value::Tuple(other))) => {
            let mut places = 0..one.len().max(other.len());
            places.all(|place| at(index(place), one.get(place), other.get(place)))
        }
        _ => one == other || found(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Map;

    fn text(text: &str) -> Value {
        Value::text(text)
    }

    fn map(entries: &[(&str, Value)]) -> Value {
        let entries = entries
            .iter()
            .map(|(key, value)| (text(key), value.clone()));
        Value::Map(Map::new(entries.collect()))
    }

    #[test]
    fn finds_places_that_have_other_values_more_or_less() {
        let one = map(&[
            ("cc", Value::List([text("a"), text("b")].into())),
            ("same", map(&[("x", Value::Int(1))])),
            ("to", text("ann")),
            ("why", Value::Nil),
        ]);
        let other = map(&[
            ("also", Value::Nil),
            ("cc", Value::List([text("a"), text("c"), text("d")].into())),
            ("same", map(&[("x", Value::Int(1))])),
            ("to", map(&[])),
        ]);
        let paths = [
            vec![text("also")],
            vec![text("cc"), Value::Int(1)],
            vec![text("cc"), Value::Int(2)],
            vec![text("to")],
            vec![text("why")],
        ];
        assert_eq!(find_differences(&one, &other, 9), paths);
        assert_eq!(find_differences(&one, &other, 2), paths[..2]);
        assert_eq!(find_differences(&text("a"), &one, 9), [Vec::new()]);
        assert!(find_differences(&one, &one, 9).is_empty());
    }

    #[test]
    fn walks_deep_values_on_a_small_stack() {
        let deep = |end: i64| {
            (0..crate::MAX_DEPTH).fold(Value::Int(end), |inner, _| Value::List([inner].into()))
        };
        let paths = find_differences(&deep(1), &deep(2), 9);
        assert_eq!(paths, [vec![Value::Int(0); crate::MAX_DEPTH]]);
    }
}
