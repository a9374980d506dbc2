//! Operations on views with what became of each, written for the tests of the package, which replay them through its functions.

use crate::fixture;
use crate::view_model;
use crate::view_ops;

use std::fmt::Write as _;

use ash_agent_context_core::{Error, Prompt};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::{json, Value};
use view_model::{Flag, Outcome, Pair};
use view_ops::{op, Op, METHODS};

const CONVERSATIONS: usize = 16;
const OPERATIONS: usize = 60;

/// The same with numbers that the functions of the package take.
fn tame(op: &Op) -> Op {
    let number = |number: u64| number.clamp(1, 12);
    match *op {
        Op::KeepLast(count) => Op::KeepLast(number(count)),
        Op::Range(first, last) => Op::Range(number(first), number(last)),
        Op::Hide(first, last) => Op::Hide(number(first), number(last)),
        Op::Drop(first, last) => Op::Drop(number(first), number(last)),
        Op::Summarize(first, last, length) => Op::Summarize(number(first), number(last), length),
        Op::Expand(first, last) => Op::Expand(number(first), number(last)),
        Op::Clear(keep) => Op::Clear(keep.min(3)),
        Op::Fit(budget, keep, step, how) => {
            Op::Fit(budget, keep.map(|one| one.min(12)), number(step), how)
        }
        ref other => other.clone(),
    }
}

fn name(op: &Op) -> Value {
    match op {
        Op::User(length) => json!(["user", length]),
        Op::Assistant(length) => json!(["assistant", length]),
        Op::Tool(calls, length) => json!(["tool", calls, length]),
        Op::Answer(length) => json!(["answer", length]),
        Op::Interrupt => json!(["interrupt"]),
        Op::Usage(tokens) => json!(["usage", tokens]),
        Op::KeepLast(count) => json!(["keep_last", count]),
        Op::RemoveOld(seconds) => json!(["remove_old", seconds]),
        Op::Range(first, last) => json!(["range", first, last]),
        Op::Hide(first, last) => json!(["hide", first, last]),
        Op::Fit(budget, keep, step, how) => json!(["fit", budget, keep, step, how]),
        Op::Drop(first, last) => json!(["drop", first, last]),
        Op::Summarize(first, last, length) => json!(["summarize", first, last, length]),
        Op::Expand(first, last) => json!(["expand", first, last]),
        Op::Clear(keep) => json!(["clear", keep]),
        Op::Most(most) => json!(["most", most]),
        Op::Mask(on) => json!(["mask", on]),
        Op::Block(on) => json!(["block", on]),
        Op::Rewind(to) => json!(["rewind", to]),
        Op::Count(how) => json!(["count", how]),
        Op::Store => json!(["store"]),
    }
}

fn reason(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Skipped | Outcome::Done => Value::Null,
        Outcome::Refused(Error::PendingToolCalls { .. }) => json!(["pending_tool_calls"]),
        Outcome::Refused(Error::NoAssistantMessage) => json!(["no_assistant_message"]),
        Outcome::Refused(Error::UnknownIteration { number, .. }) => {
            json!(["unknown_iteration", number])
        }
        Outcome::Refused(Error::CannotFit { least }) => json!(["cannot_fit", least]),
        Outcome::Refused(Error::NotCompactable { range, .. }) => {
            json!(["not_compactable", range.0, range.1])
        }
        Outcome::Refused(Error::SummaryTooLong { tokens, replaced }) => {
            json!(["summary_too_long", tokens, replaced])
        }
        Outcome::Refused(error) => panic!("{error:?}"),
    }
}

/// What is to be seen of the conversation: digests of its snapshot and of the text that is shown, and the view's ranges.
fn state(pair: &Pair) -> Value {
    let context = &pair.context;
    let is = |wanted: fn(&Flag) -> bool| -> Vec<u64> {
        let flags = (1..).zip(&pair.flags);
        let found = flags.filter(|(_, flag)| wanted(flag));
        found.map(|(number, _)| number).collect()
    };
    json!({
        "snapshot": crc32fast::hash(&context.to_snapshot()),
        "prompt": crc32fast::hash(context.to_prompt(Prompt::Full).as_bytes()),
        "messages": context.count_messages(),
        "tokens": METHODS.map(|method| context.count_tokens(method)),
        "hidden": is(|flag| *flag == Flag::Hidden),
        "summarised": is(|flag| matches!(flag, Flag::Summary(..))),
    })
}

/// A line for each operation, and an empty one after each conversation. A line begins with the second at which it happens.
fn replay() -> String {
    let mut runner = TestRunner::deterministic();
    let strategy = proptest::collection::vec(op(), OPERATIONS);
    let mut lines = String::new();
    for _ in 0..CONVERSATIONS {
        let mut pair = Pair::new();
        for op in strategy.new_tree(&mut runner).unwrap().current() {
            let op = tame(&op);
            let outcome = pair.apply(&op);
            pair.compare();
            if outcome != Outcome::Skipped {
                let line = json!([pair.now, name(&op), reason(&outcome), state(&pair)]);
                writeln!(lines, "{line}").unwrap();
            }
        }
        lines.push('\n');
    }
    lines
}

#[test]
fn the_operations_that_the_package_replays_are_those_of_the_model() {
    let written = replay();
    fixture::compare("view_operations.jsonl", &written);
    for refused in [
        "pending_tool_calls",
        "cannot_fit",
        "not_compactable",
        "summary_too_long",
    ] {
        assert!(
            written.contains(refused),
            "no operation is refused with {refused}"
        );
    }
}
