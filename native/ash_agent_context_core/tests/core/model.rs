//! Random operations and the plain model that the fuzzer has, and what holds of a context's weight.

use crate::checks;
use crate::make::{conversation, list};

use std::fmt::Debug;

use arbitrary::{Arbitrary, Unstructured};
use ash_agent_context_core::{Context, Map, Stamp, Value};
use checks::at;
use checks::operations::{self, Op};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_context_does_what_its_model_does(ops in prop::collection::vec(op(), 1..40)) {
        operations::run(&ops);
    }
}

/// An operation, most of the time one that a conversation is made of.
pub(crate) fn op() -> impl Strategy<Value = Op> {
    let calls = prop::collection::vec(any_of(), 0..4);
    let results = prop::collection::vec(any_of(), 1..4);
    prop_oneof![
        6 => any_of(),
        2 => (any_of(), any_of()).prop_map(|(content, note)| Op::User(content, note)),
        4 => (any_of(), calls, any_of())
            .prop_map(|(content, calls, note)| Op::Assistant(content, calls, note)),
        4 => (results, any_of()).prop_map(|(results, note)| Op::Results(results, note)),
        1 => (any_of(), any_of(), any_of())
            .prop_map(|(whose, yes, reason)| Op::Decide(whose, yes, reason)),
        1 => (0..3i8).prop_map(Op::Rewind),
        1 => any_of().prop_map(Op::Interrupt),
        1 => any_of().prop_map(Op::Fork),
        2 => (any_of(), any_of()).prop_map(|(key, value)| Op::PutMetadata(key, value)),
        2 => (-1..3i8, any_of(), any_of())
            .prop_map(|(back, key, value)| Op::PutIterationMetadata(back, key, value)),
    ]
}

/// Anything, from bytes of its own, so that a failure shrinks one by one.
fn any_of<T: Debug + for<'a> Arbitrary<'a>>() -> impl Strategy<Value = T> {
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    bytes.prop_map(|bytes| T::arbitrary(&mut Unstructured::new(&bytes)).unwrap())
}

fn begin() -> Context {
    conversation("Hello!")
}

fn big(items: usize) -> Value {
    list(vec![Value::Int(1); items])
}

fn with_message(context: &Context, bytes: usize) -> Context {
    let text = Value::text(&"x".repeat(bytes));
    context.add_user_message(text, Stamp::at(at(1))).unwrap()
}

#[test]
fn a_small_context_is_light_to_drop() {
    assert!(!begin().is_heavy_to_drop());
}

#[test]
fn only_the_last_handle_of_a_big_context_is_heavy_to_drop() {
    let context = with_message(&begin(), 10_000_000);
    assert!(context.is_heavy_to_drop());
    let copy = context.clone();
    assert!(!context.is_heavy_to_drop());
    let later = with_message(&context, 1);
    drop(context);
    assert!(
        !copy.is_heavy_to_drop(),
        "what came later holds nearly all of it"
    );
    drop(copy);
    assert!(later.is_heavy_to_drop());
}

#[test]
fn an_old_context_does_not_hold_what_came_after_it() {
    let old = begin();
    let mut new = old.clone();
    for _ in 0..200 {
        new = with_message(&new, 10_000);
    }
    assert!(new.is_heavy_to_drop());
    assert!(!old.is_heavy_to_drop());
}

#[test]
fn heavy_metadata_makes_a_context_heavy_to_drop() {
    let old = begin();
    let key = Value::atom("documents");
    let new = old.put_metadata(key, big(1_000_000), at(1));
    assert!(new.is_heavy_to_drop(), "only this context holds the note");
    drop(old);
}

#[test]
fn heavy_metadata_of_an_iteration_makes_a_context_heavy_to_drop() {
    let old = begin();
    let key = Value::atom("documents");
    let new = old
        .put_iteration_metadata(1, key, big(1_000_000), at(1))
        .unwrap();
    assert!(new.is_heavy_to_drop(), "only this context holds the note");
    drop(old);
}

#[test]
fn a_context_whose_heavy_note_was_replaced_in_a_later_one_is_heavy_to_drop() {
    let key = || Value::atom("documents");
    let old = begin().put_metadata(key(), big(1_000_000), at(1));
    let new = old.put_metadata(key(), Value::Nil, at(2));
    assert!(old.is_heavy_to_drop(), "only this context holds the note");
    drop(new);
}

#[test]
fn calls_without_an_id_get_one_that_no_other_call_of_the_message_has() {
    let call = |id: Value| {
        let name = (Value::atom("name"), Value::atom("tool"));
        Value::Map(Map::new(vec![(Value::atom("id"), id), name]))
    };
    let calls = list(vec![call(Value::text("call_1_2_1")), call(Value::Nil)]);
    let context = begin();
    let next = context.add_assistant_message(Value::Nil, calls, Stamp::at(at(1)));
    assert_eq!(next.map(|next| next.current().count_pending()), Ok(2));
}
