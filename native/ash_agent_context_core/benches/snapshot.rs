//! Reading and writing a snapshot of 1,000 messages of 2 KB, beside serde_json's own values.
//!
//! `cargo bench --package ash_agent_context_core --bench snapshot`

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a program for measuring"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use ash_agent_context_core::{time, Context, Map, Stamp, Value};

const RUNS: usize = 60;

fn main() {
    for (name, context) in [
        ("plain text", without_calls(1_000, PLAIN)),
        ("lines of text", without_calls(1_000, LINES)),
        ("plain text with calls", with_calls(500, PLAIN)),
        ("lines of text with calls", with_calls(500, LINES)),
    ] {
        let text = context.to_snapshot();
        assert!(Context::from_snapshot(&text).unwrap() == context);
        println!(
            "{name}: {} messages, {} bytes",
            context.count_messages(),
            text.len()
        );
        let mut ours = Vec::new();
        let mut theirs = Vec::new();
        let mut write = Vec::new();
        let mut write_theirs = Vec::new();
        let tree: serde_json::Value = serde_json::from_slice(&text).unwrap();
        for _ in 0..RUNS {
            ours.push(timed(|| Context::from_snapshot(&text).unwrap()));
            theirs.push(timed(|| {
                serde_json::from_slice::<serde_json::Value>(&text).unwrap()
            }));
            write.push(timed(|| context.to_snapshot()));
            write_theirs.push(timed(|| serde_json::to_vec(&tree).unwrap()));
        }
        let (ours, theirs) = (median(ours), median(theirs));
        let (write, write_theirs) = (median(write), median(write_theirs));
        println!(
            "  read: {ours:?}, serde_json {theirs:?}, ratio {:.2}",
            ours.as_secs_f64() / theirs.as_secs_f64()
        );
        println!(
            "  write: {write:?}, serde_json {write_theirs:?}, ratio {:.2}",
            write.as_secs_f64() / write_theirs.as_secs_f64()
        );
    }
}

/// What is made is dropped outside the time.
fn timed<T>(work: impl FnOnce() -> T) -> Duration {
    let started = Instant::now();
    let made = black_box(work());
    let took = started.elapsed();
    drop(made);
    took
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn stamp() -> Stamp {
    Stamp::at(time::from_micros(1_767_225_600_000_000).unwrap())
}

const PLAIN: &str = "All work and no play makes a dull agent. ";
const LINES: &str = "All work and no play makes a \"dull\" agent.\n";

fn text(number: usize, line: &str) -> Value {
    let text = format!("message {number} {}", line.repeat(50));
    Value::text(&text[..2048])
}

fn map(entries: &[(&str, Value)]) -> Value {
    let entries = entries
        .iter()
        .map(|(key, value)| (Value::atom(key), value.clone()));
    Value::Map(Map::new(entries.collect()))
}

fn without_calls(messages: usize, line: &str) -> Context {
    let first = Context::new("bench", text(1, line), Value::Nil, stamp()).unwrap();
    (2..=messages).fold(first, |context, number| {
        match number % 2 {
            0 => context.add_assistant_message(text(number, line), Value::Nil, stamp()),
            _ => context.add_user_message(text(number, line), stamp()),
        }
        .unwrap()
    })
}

fn with_calls(answers: usize, line: &str) -> Context {
    let first = Context::new("bench", text(0, line), Value::Nil, stamp()).unwrap();
    (1..=answers).fold(first, |context, number| {
        let id = Value::text(&format!("call_{number}"));
        let call = map(&[
            ("id", id.clone()),
            ("name", Value::atom("search")),
            (
                "arguments",
                map(&[("query", Value::text(&format!("number {number}")))]),
            ),
        ]);
        let result = Value::Tuple(Box::new([Value::atom("ok"), text(number, line)]));
        let results = Value::List(Box::new([Value::Tuple(Box::new([id, result]))]));
        context
            .add_assistant_message(text(number, line), Value::List(Box::new([call])), stamp())
            .unwrap()
            .add_tool_results(results, stamp())
            .unwrap()
    })
}
