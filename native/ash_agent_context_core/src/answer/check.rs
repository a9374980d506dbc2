//! The bounds of single values: lengths, numbers, patterns and formats. Each issue is in words that a model can act on.

use std::cmp::Ordering;

use num_bigint::BigInt;

use crate::answer::issue::Findings;
use crate::answer::node::{canonical, Kinds, Lengths, SchemaNode};
use crate::error::Path;
use crate::value::{json, Value};

/// Checks a value of the right kind against the rules of a node, but for the values inside it.
pub(crate) fn check(node: &SchemaNode, value: &Value, path: &Path, report: &mut Findings) {
    match value {
        Value::Binary(_) => check_text(node, value.as_str().unwrap_or_default(), path, report),
        Value::Int(_) | Value::BigInt(_) | Value::Float(_) => {
            check_number(node, value, path, report);
        }
        Value::List(items) => {
            node.list.check(items.len(), "elements", path, report);
            if node.is_unique && has_equals(items) {
                report.issue(path, "expected elements that differ, and two are equal");
            }
        }
        Value::Map(map) => node.object.check(map.len(), "fields", path, report),
        _ => {}
    }
}

fn check_text(node: &SchemaNode, text: &str, path: &Path, report: &mut Findings) {
    if node.text.least.is_some() || node.text.most.is_some() {
        let length = text.chars().count();
        node.text.check(length, "characters", path, report);
    }
    if let Some((words, pattern)) = &node.pattern {
        if !pattern.is_match(text) {
            report.issue(path, format!("expected a text that matches {words}"));
        }
    }
    if let Some(format) = node.format {
        if !format.fits(text) {
            report.issue(path, format!("expected {}", format.words()));
        }
    }
}

impl Lengths {
    fn check(self, length: usize, noun: &str, path: &Path, report: &mut Findings) {
        let (words, bound) = match (self.least, self.most) {
            (Some(least), _) if length < least => ("at least", least),
            (_, Some(most)) if length > most => ("at most", most),
            _ => return,
        };
        report.issue(
            path,
            format!("expected {words} {bound} {noun}, got {length}"),
        );
    }
}

/// A bound, the order in which values must stand to it, and words for that.
type Bound<'n> = (&'n Option<Value>, fn(Ordering) -> bool, &'static str);

/// 2 to the power of 53: from here on a float may stand for a whole number although another one was written.
pub(crate) const INEXACT: f64 = 9_007_199_254_740_992.0;

fn check_number(node: &SchemaNode, value: &Value, path: &Path, report: &mut Findings) {
    let is_integer = |kinds: Kinds| !kinds.has(Kinds::FRACTION);
    if let (Value::Float(float), true) = (value, node.kinds.is_some_and(is_integer)) {
        if float.abs() >= INEXACT {
            report.issue(
                path,
                "expected an integer with all of its digits, without a point or an exponent",
            );
        }
    }
    let bounds: [Bound<'_>; 4] = [
        (&node.minimum, Ordering::is_ge, "at least"),
        (&node.maximum, Ordering::is_le, "at most"),
        (&node.above, Ordering::is_gt, "more than"),
        (&node.below, Ordering::is_lt, "less than"),
    ];
    for (bound, holds, words) in bounds {
        let Some(bound) = bound else { continue };
        if !holds(compare(value, bound)) {
            report.issue(path, format!("expected {words} {}", json::write(bound)));
        }
    }
    if let Some(step) = &node.multiple_of {
        if !is_multiple(value, step) {
            let words = format!("expected a multiple of {}", json::write(step));
            report.issue(path, words);
        }
    }
}

/// Compares two numbers, exactly where both are integers.
fn compare(a: &Value, b: &Value) -> Ordering {
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => float(a).total_cmp(&float(b)),
    }
}

fn is_multiple(value: &Value, step: &Value) -> bool {
    match (integer(value), integer(step)) {
        (Some(value), Some(step)) if step != BigInt::ZERO => value % step == BigInt::ZERO,
        _ => {
            // 0.3 is a multiple of 0.1, although neither is a binary fraction.
            let parts = float(value) / float(step);
            parts.is_finite() && (parts - parts.round()).abs() < 1e-9 * parts.abs().max(1.0)
        }
    }
}

fn integer(value: &Value) -> Option<BigInt> {
    match value {
        Value::Int(integer) => Some(BigInt::from(*integer)),
        Value::BigInt(big) => Some(BigInt::clone(big)),
        Value::Float(_) => match canonical(value) {
            Value::Int(integer) => Some(BigInt::from(integer)),
            _ => None,
        },
        _ => None,
    }
}

fn float(value: &Value) -> f64 {
    match value {
        Value::Float(float) => *float,
        // Texts of numbers are read as the float that is nearest.
        other => json::write(other).parse().unwrap_or(f64::NAN),
    }
}

fn has_equals(items: &[Value]) -> bool {
    let mut sorted: Vec<Value> = items.iter().map(canonical).collect();
    sorted.sort();
    sorted
        .windows(2)
        .any(|pair| matches!(pair, [a, b] if a == b))
}
