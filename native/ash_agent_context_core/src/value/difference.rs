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
