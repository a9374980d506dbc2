//! Finds where two values differ, as paths: what may be told of arguments whose values nobody is to see.

use crate::value::{Map, Value};

/// One step into two values at once.
#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a Value),
    Index(usize),
}

impl Step<'_> {
    fn to_value(self) -> Value {
        match self {
            Self::Key(key) => key.clone(),
            Self::Index(index) => Value::Int(i64::try_from(index).unwrap_or(i64::MAX)),
        }
    }
}

/// Two values at the same place, or one where the other has nothing.
struct Pair<'a> {
    /// Its last step, by its position among all steps; the two whole values have none.
    step: Option<usize>,
    one: Option<&'a Value>,
    other: Option<&'a Value>,
}

/// The places where two values differ, in their order, at most so many.
///
/// # Complexity
/// O(the values)
pub(crate) fn find_differences(one: &Value, other: &Value, most: usize) -> Vec<Vec<Value>> {
    // Each step with the one before it, so that only paths that differ are written.
    let mut steps: Vec<(Option<usize>, Step<'_>)> = Vec::new();
    let mut found = Vec::new();
    let mut open = vec![Pair {
        step: None,
        one: Some(one),
        other: Some(other),
    }];
    while let Some(pair) = open.pop() {
        if found.len() == most {
            break;
        }
        match inner(&pair) {
            Some(inner) => {
                let first = open.len();
                for (step, one, other) in inner {
                    steps.push((pair.step, step));
                    let step = steps.len().checked_sub(1);
                    open.push(Pair { step, one, other });
                }
                if let Some(pushed) = open.get_mut(first..) {
                    pushed.reverse();
                }
            }
            None if pair.one == pair.other => {}
            None => found.push(path_of(pair.step, &steps)),
        }
    }
    found
}

type Inner<'a> = Vec<(Step<'a>, Option<&'a Value>, Option<&'a Value>)>;

/// Opens two values of one kind, place by place; `None` for values that are compared as wholes.
fn inner<'a>(pair: &Pair<'a>) -> Option<Inner<'a>> {
    match (pair.one?, pair.other?) {
        (Value::Map(one), Value::Map(other)) => Some(entries(one, other)),
        (Value::List(one), Value::List(other)) | (Value::Tuple(one), Value::Tuple(other)) => {
            let longest = one.len().max(other.len());
            let at = |index| (Step::Index(index), one.get(index), other.get(index));
            Some((0..longest).map(at).collect())
        }
        _ => None,
    }
}

/// The values of all keys of two maps, in the order of the keys.
fn entries<'a>(one: &'a Map, other: &'a Map) -> Inner<'a> {
    let (mut one, mut other) = (one.iter().peekable(), other.iter().peekable());
    let mut entries = Vec::new();
    loop {
        let take = match (one.peek(), other.peek()) {
            (Some((a, _)), Some((b, _))) => (a <= b, b <= a),
            (Some(_), None) => (true, false),
            (None, Some(_)) => (false, true),
            (None, None) => return entries,
        };
        let ours = if take.0 { one.next() } else { None };
        let theirs = if take.1 { other.next() } else { None };
        if let Some((key, _)) = ours.or(theirs) {
            let value = |entry: Option<&'a (Value, Value)>| entry.map(|(_, value)| value);
            entries.push((Step::Key(key), value(ours), value(theirs)));
        }
    }
}

fn path_of(step: Option<usize>, steps: &[(Option<usize>, Step<'_>)]) -> Vec<Value> {
    let mut path = Vec::new();
    let mut next = step;
    while let Some((before, step)) = next.and_then(|at| steps.get(at)) {
        path.push(step.to_value());
        next = *before;
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            (0..2_i64).prop_map(Value::Int),
            Just(Value::Float(1.0)),
            Just(text("a")),
            Just(Value::atom("a")),
        ];
        leaf.prop_recursive(4, 24, 3, |inner| {
            let list = prop::collection::vec(inner.clone(), 0..3);
            let entries = prop::collection::vec((inner.clone(), inner), 0..3);
            prop_oneof![
                list.clone().prop_map(|items| Value::List(items.into())),
                list.prop_map(|items| Value::Tuple(items.into())),
                entries.prop_map(|entries| Value::Map(Map::new(entries))),
            ]
        })
    }

    proptest! {
        #[test]
        fn nothing_differs_in_equal_values_only(one in value(), other in value()) {
            let found = find_differences(&one, &other, usize::MAX);
            prop_assert_eq!(found.is_empty(), one == other);
        }
    }
}
