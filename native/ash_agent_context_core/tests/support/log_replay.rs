//! Operations on conversations with what became of each, written for the tests of the package, which replay them through its functions.

use std::fmt::Write as _;

use ash_agent_context_core::{Context, Prompt, Value};
use base64::prelude::{Engine as _, BASE64_STANDARD};
use num_bigint::{BigInt, Sign};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::json;

use crate::checks::at;
use crate::checks::operations::{self, Event, Op};
use crate::fixture;
use crate::model::op;

const CONVERSATIONS: usize = 16;
const OPERATIONS: usize = 60;

/// Writes a term as the external term format of Erlang does, so that the package reads it without the code it is to test.
fn write_term(value: &Value, out: &mut Vec<u8>) {
    let count = |out: &mut Vec<u8>, count: usize| out.extend((count as u32).to_be_bytes());
    let mut atom = |name: &str| {
        out.push(118);
        out.extend((name.len() as u16).to_be_bytes());
        out.extend(name.as_bytes());
    };
    match value {
        Value::Nil => atom("nil"),
        Value::Bool(value) => atom(if *value { "true" } else { "false" }),
        Value::Atom(name) => atom(name),
        Value::Int(int) => write_integer(&BigInt::from(*int), out),
        Value::BigInt(int) => write_integer(int, out),
        Value::Float(float) => {
            out.push(70);
            out.extend(float.to_be_bytes());
        }
        Value::Binary(bytes) => {
            out.push(109);
            count(out, bytes.len());
            out.extend(&**bytes);
        }
        Value::List(items) => {
            if !items.is_empty() {
                out.push(108);
                count(out, items.len());
            }
            items.iter().for_each(|item| write_term(item, out));
            out.push(106);
        }
        Value::Tuple(items) => {
            out.push(104);
            out.push(items.len() as u8);
            items.iter().for_each(|item| write_term(item, out));
        }
        Value::Map(map) => {
            out.push(116);
            count(out, map.len());
            for (key, value) in map.iter() {
                write_term(key, out);
                write_term(value, out);
            }
        }
    }
}

fn write_integer(integer: &BigInt, out: &mut Vec<u8>) {
    if let Ok(small) = i32::try_from(integer) {
        out.push(98);
        out.extend(small.to_be_bytes());
        return;
    }
    let (sign, digits) = integer.to_bytes_le();
    out.extend([110, digits.len() as u8, u8::from(sign == Sign::Minus)]);
    out.extend(digits);
}

fn encode_terms(terms: Vec<Value>) -> String {
    let mut out = vec![131];
    write_term(&Value::List(terms.into_boxed_slice()), &mut out);
    BASE64_STANDARD.encode(out)
}

/// What is to be seen of the conversation: digests of its snapshot and of the text that is shown, and counts.
fn state(context: &Context) -> serde_json::Value {
    json!([
        crc32fast::hash(&context.to_snapshot()),
        crc32fast::hash(context.to_prompt(Prompt::Full).as_bytes()),
        context.count_messages(),
        context.current().count_pending(),
    ])
}

/// A line with the snapshot that a conversation begins with, one for each operation, and an empty one. A line begins with the
/// microsecond at which it happens.
fn replay() -> String {
    let mut runner = TestRunner::deterministic();
    let strategy = proptest::collection::vec(op(), OPERATIONS);
    let mut lines = String::new();
    for _ in 0..CONVERSATIONS {
        let empty = Context::empty("c", at(0));
        let first = BASE64_STANDARD.encode(empty.to_snapshot());
        writeln!(lines, "{}", json!(first)).unwrap();
        let mut ops = strategy.new_tree(&mut runner).unwrap().current();
        ops.retain(|op| matches!(op, Op::Fork(_)) || op.to_call(&empty).is_some());
        operations::run_and_tell(&ops, |event| {
            let line = match event {
                Event::Fork(to) => json!([0, "fork", to]),
                Event::Step {
                    op,
                    before,
                    now,
                    found,
                } => {
                    let (function, terms) = op.to_call(before).unwrap();
                    let refused = found.as_ref().err().map(|error| error.reason().name);
                    let after = found.as_ref().unwrap_or(before);
                    json!([now, function, encode_terms(terms), refused, state(after)])
                }
            };
            writeln!(lines, "{line}").unwrap();
        });
        lines.push('\n');
    }
    lines
}

#[test]
fn the_operations_that_the_package_replays_are_those_of_the_model() {
    let written = replay();
    fixture::compare("log_operations.jsonl", &written);
    for name in [
        "add_user_message",
        "add_assistant_message",
        "add_tool_results",
        "interrupt",
        "approve_tool_call",
        "deny_tool_call",
        "put_system_prompt",
        "rewind",
        "put_metadata",
        "put_iteration_metadata",
        "reload",
        "fork",
        "pending_tool_calls",
        "no_pending_tool_calls",
        "no_tool_results",
        "unknown_tool_call",
        "unknown_iteration",
        "duplicate_tool_result",
        "tool_call_already_answered",
        "invalid_part",
    ] {
        assert!(
            written.contains(&format!("\"{name}\"")),
            "no line has {name}"
        );
    }
}
