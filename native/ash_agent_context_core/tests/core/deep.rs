//! Values of the greatest depth, on the small stack of a scheduler thread.

use ash_agent_context_core::{json, Context, Map, Stamp, Value, MAX_DEPTH};

use crate::stack;
use stack::on_small_stack;

fn wrap(kind: usize, inner: Value) -> Value {
    match kind % 3 {
        0 => Value::List(Box::new([inner])),
        1 => Value::Tuple(Box::new([Value::atom("error"), inner])),
        _ => Value::Map(Map::new(vec![(Value::text("key"), inner)])),
    }
}

fn deep(kind: usize) -> Value {
    (0..MAX_DEPTH).fold(Value::Int(1), |inner, level| {
        wrap(if kind == 3 { level } else { kind }, inner)
    })
}

#[test]
fn deep_values_do_not_overflow_a_small_stack() {
    on_small_stack(|| {
        for kind in 0..4 {
            let value = deep(kind);
            assert_eq!(value, value.clone());
            assert!(value.size().terms > MAX_DEPTH);
            assert!(json::write(&value).len() > MAX_DEPTH);
            let at = ash_agent_context_core::time::from_micros(0).unwrap();
            let call = Map::new(vec![
                (Value::text("id"), Value::text("a")),
                (Value::text("name"), Value::text("tool")),
            ]);
            let calls = || Value::List(Box::new([Value::Map(call.clone())]));
            let result = |status| {
                let result = Value::Tuple(Box::new([Value::atom(status), deep(kind)]));
                Value::List(Box::new([Value::Tuple(Box::new([
                    Value::text("a"),
                    result,
                ]))]))
            };
            for status in ["ok", "error"] {
                let context = Context::new("id", Value::text("hi"), Value::Nil, Stamp::at(at))
                    .unwrap()
                    .add_assistant_message(Value::Nil, calls(), Stamp::at(at))
                    .unwrap()
                    .add_tool_results(result(status), Stamp::at(at))
                    .unwrap();
                let (_, outcome) = context.iteration(1).unwrap().calls().next().unwrap();
                assert!(!outcome.unwrap().text().unwrap().is_empty());
            }
        }
    });
}

#[test]
fn deep_json_is_refused_on_a_small_stack() {
    on_small_stack(|| {
        for text in ["[".repeat(50_000_000), "{\"a\":".repeat(1_000_000)] {
            json::read(text.as_bytes(), MAX_DEPTH).unwrap_err();
        }
        let at_limit = format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        assert!(json::read(at_limit.as_bytes(), MAX_DEPTH).is_ok());
        let beyond = format!("[{at_limit}]");
        json::read(beyond.as_bytes(), MAX_DEPTH).unwrap_err();
    });
}
