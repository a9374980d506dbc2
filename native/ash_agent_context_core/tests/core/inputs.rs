//! Views that requests were made from: each is known later, as it was, whatever happened to the view since.

use crate::make::{at, conversation, reload};
use ash_agent_context_core::{AnswerTimes, Context, Given, Response, Stamp, Value};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    /// An answer, whose request is known or not, and what the user says then.
    Answer {
        known: bool,
    },
    Block(u8),
    Rewind(u8),
    /// Stored and loaded.
    Store,
    /// Loaded from the iterations of a delta on top of an earlier state.
    Delta(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any::<bool>().prop_map(|known| Step::Answer { known }),
        3 => (0..3_u8).prop_map(Step::Block),
        1 => (1..20_u8).prop_map(Step::Rewind),
        1 => Just(Step::Store),
        1 => (1..20_u8).prop_map(Step::Delta),
    ]
}

fn answer(context: &Context, known: bool) -> Context {
    let response = Response::from_message(Given {
        content: Value::text("Yes"),
        calls: Value::List(Box::default()),
        usage: Value::Nil,
        model: None,
        finish: None,
    });
    let times = AnswerTimes {
        requested_at: known.then(|| at(1)),
        first_chunk_at: None,
    };
    let context = context
        .add_answer(&response.unwrap(), times, Stamp::at(at(2)))
        .unwrap();
    context
        .add_user_message(Value::text("And?"), Stamp::at(at(3)))
        .unwrap()
}

/// The text of the block that the view has; `None` for the log as it is.
fn blocks(context: &Context, number: i64) -> Option<Option<String>> {
    let (_, view) = context.request_view(context.iteration(number).unwrap())?;
    Some(view.map(|view| view.prompt_texts()[0].1.to_string()))
}

proptest! {
    #[test]
    fn each_request_has_its_view(steps in prop::collection::vec(step(), 1..40)) {
        let mut context = conversation("?");
        // By iteration: whether its request is known, and the block at that time.
        let mut expected: Vec<Option<Option<String>>> = Vec::new();
        let mut block: Option<String> = None;
        for step in steps {
            match step {
                Step::Answer { known } => {
                    context = answer(&context, known);
                    expected.push(known.then(|| block.clone()));
                }
                Step::Block(text) => {
                    block = (text > 0).then(|| text.to_string());
                    context = context.put_prompt_block("b", block.as_deref(), at(4));
                }
                Step::Rewind(to) if usize::from(to) <= expected.len() => {
                    context = context.rewind(i64::from(to)).unwrap();
                    expected.truncate(usize::from(to));
                    context = context
                        .add_user_message(Value::text("And?"), Stamp::at(at(3)))
                        .unwrap();
                }
                Step::Store => {
                    let loaded = reload(&context);
                    prop_assert!(loaded == context);
                    context = loaded;
                }
                Step::Delta(since) if usize::from(since) <= expected.len() => {
                    let delta = context.delta(i64::from(since)).unwrap();
                    let delta = ash_agent_context_core::json::read(&delta, 1_000).unwrap();
                    let loaded = context.load_delta(delta).unwrap();
                    prop_assert!(loaded == context);
                    context = loaded;
                }
                Step::Rewind(_) | Step::Delta(_) => {}
            }
            for (known, number) in expected.iter().zip(1..) {
                prop_assert_eq!(&blocks(&context, number), known);
            }
        }
        // One that did not change is written once.
        let text = String::from_utf8(context.to_snapshot()).unwrap();
        let written = text.matches("\"view\":").count();
        let mut distinct: Vec<&Option<String>> = expected.iter().flatten().collect();
        distinct.dedup();
        prop_assert!(written <= distinct.len() + usize::from(context.has_view()));
    }
}
