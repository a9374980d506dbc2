//! Snapshots of the deepest values, on the small stack of a scheduler thread.

use ash_agent_context_core::{json, time, Context, Map, Stamp, Value, MAX_DEPTH, NESTING};

use crate::stack;
use stack::on_small_stack;

type Wrap = fn(Value) -> Value;

const WRAPS: [Wrap; 6] = [
    |inner| Value::List(Box::new([inner])),
    |inner| Value::Tuple(Box::new([inner])),
    |inner| Value::Map(Map::new(vec![(Value::text("a"), inner)])),
    |inner| Value::Map(Map::new(vec![(Value::atom("a"), inner)])),
    |inner| Value::Map(Map::new(vec![(Value::Int(1), inner)])),
    |inner| Value::Map(Map::new(vec![(inner, Value::Int(1))])),
];

fn deep(wrap: Wrap, levels: usize) -> Value {
    (0..levels).fold(Value::Int(1), |inner, _| wrap(inner))
}

fn context() -> Context {
    let at = time::from_micros(0).unwrap();
    Context::new("id", Value::text("hi"), Value::Nil, Stamp::at(at)).unwrap()
}

#[test]
fn the_deepest_values_are_written_and_read() {
    for wrap in WRAPS {
        on_small_stack(move || {
            let at = time::from_micros(0).unwrap();
            // Attributes can bring in values that are a little deeper than the others.
            let deep = deep(wrap, MAX_DEPTH + 8);
            let context = context().put_metadata(Value::atom("deep"), deep, at);
            let text = context.to_snapshot();
            let copy = Context::from_snapshot(&text).unwrap();
            assert!(copy == context);
            assert_eq!(copy.to_snapshot(), text);
        });
    }
}

#[test]
fn deeper_ones_are_refused() {
    for wrap in WRAPS {
        for levels in [MAX_DEPTH + 20, 600, 5_000, 50_000] {
            // Made on a large stack, as text.
            let (text, _) = document(wrap, levels);
            on_small_stack(move || {
                Context::from_snapshot(text.as_bytes()).unwrap_err();
            });
        }
    }
    on_small_stack(|| {
        for open in [
            "[",
            "{\"a\":",
            "{\"$tuple\":[",
            "{\"$map\":[[1,",
            "{\"$map\":[[",
        ] {
            for levels in [NESTING - 20, NESTING, 1_000_000] {
                let text = format!("{{\"version\":1,\"metadata\":{}", open.repeat(levels));
                Context::from_snapshot(text.as_bytes()).unwrap_err();
                json::read(text.as_bytes(), NESTING).unwrap_err();
            }
        }
    });
}

fn document(wrap: Wrap, levels: usize) -> (String, usize) {
    let (open, close) = match std::str::from_utf8(&of_one(wrap)) {
        Ok(text) => {
            let (open, close) = text.split_once('1').unwrap();
            (open.to_owned(), close.to_owned())
        }
        Err(_) => unreachable!(),
    };
    let text = format!(
        "{{\"version\":1,\"id\":\"c\",\"created_at\":\"1970-01-01T00:00:00Z\",\
         \"updated_at\":\"1970-01-01T00:00:00Z\",\"metadata\":{{\"v\":{}1{}}},\"iterations\":[]}}",
        open.repeat(levels),
        close.repeat(levels)
    );
    (text, levels)
}

/// The JSON that one level adds.
fn of_one(wrap: Wrap) -> Vec<u8> {
    let at = time::from_micros(0).unwrap();
    // A number that stands nowhere else.
    let marked = wrap(Value::Int(777));
    let context = context().put_metadata(Value::text("v"), marked, at);
    let text = String::from_utf8(context.to_snapshot()).unwrap();
    let (_, rest) = text.split_once("{\"v\":").unwrap();
    let (value, _) = rest.split_once("},\"iterations\"").unwrap();
    // Maps with other keys hold the number 1 beside the value.
    let value = value.replace(",1]", ",0]").replace("[1,", "[0,");
    value.replace("777", "1").into_bytes()
}
