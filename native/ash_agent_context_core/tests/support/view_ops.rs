//! What an application can do with a view, at random, and the texts, calls and results for it.

pub use crate::make::{list, map};
use ash_agent_context_core::{time, Method, Time, Value};
use proptest::prelude::*;

pub fn at(micros: u64) -> Time {
    time::from_micros(i64::try_from(micros).unwrap()).unwrap()
}

/// Of the exact ones that with the smaller vocabulary: reading one takes seconds in a debug build.
pub const METHODS: [Option<Method>; 3] = [None, Some(Method::Estimate), Some(Method::Cl100k)];

/// What an application can do with a view, and enough of the rest for there to be something in it.
#[derive(Debug, Clone)]
pub enum Op {
    User(usize),
    Assistant(usize),
    /// So many calls, and the length of their results if they have some.
    Tool(usize, Option<usize>),
    /// A result of this length: of the first call that waits if it is even, else of the last.
    Answer(usize),
    Interrupt,
    Usage(u32),
    KeepLast(u64),
    RemoveOld(u64),
    Range(u64, u64),
    Hide(u64, u64),
    /// Within so many hundredths of the tokens there are and a reserve, with the first and the last that stay, the step and the method.
    Fit([u64; 2], [u64; 2], u64, usize),
    Drop(u64, u64),
    Summarize(u64, u64, usize),
    Expand(u64, u64),
    Clear(usize),
    Most(Option<usize>),
    Mask(bool),
    Block(bool),
    Rewind(u64),
    Count(usize),
    Store,
}

pub fn op() -> impl Strategy<Value = Op> {
    let number = || prop_oneof![10 => 1..4_u64, 8 => 1..10_u64, 1 => Just(u64::MAX), 1 => Just(i64::MAX as u64), 1 => Just(0)];
    prop_oneof![
        9 => (0..60_usize).prop_map(Op::User),
        9 => (0..60_usize).prop_map(Op::Assistant),
        8 => (1..4_usize, proptest::option::weighted(0.8, 0..400_usize))
            .prop_map(|(calls, length)| Op::Tool(calls, length)),
        4 => (0..400_usize).prop_map(Op::Answer),
        1 => Just(Op::Interrupt),
        1 => (0..2_000_u32).prop_map(Op::Usage),
        1 => number().prop_map(Op::KeepLast),
        1 => (0..40_u64).prop_map(Op::RemoveOld),
        1 => (number(), number()).prop_map(|(a, b)| Op::Range(a.min(b), a.max(b))),
        1 => (number(), 0..3_u64).prop_map(|(first, more)| Op::Hide(first, first.saturating_add(more))),
        5 => (
            (0..110_u64, prop_oneof![2 => Just(0), 1 => Just(10)]),
            (prop_oneof![3 => Just(0), 1 => number()], prop_oneof![3 => Just(1), 1 => number()]),
            prop_oneof![1 => Just(1), 1 => 1..4_u64, 1 => number()],
            0..3_usize,
        )
            .prop_map(|((percent, reserve), (first, last), step, how)| {
                Op::Fit([percent, reserve], [first, last], step, how)
            }),
        2 => (number(), 0..3_u64).prop_map(|(first, more)| Op::Drop(first, first.saturating_add(more))),
        5 => (number(), 0..3_u64, 0..40_usize)
            .prop_map(|(first, more, length)| Op::Summarize(first, first.saturating_add(more), length)),
        2 => (number(), number()).prop_map(|(a, b)| Op::Expand(a.min(b), a.max(b))),
        2 => prop_oneof![8 => 0..4_usize, 1 => Just(usize::MAX)].prop_map(Op::Clear),
        1 => proptest::option::of(100..300_usize).prop_map(Op::Most),
        1 => any::<bool>().prop_map(Op::Mask),
        1 => any::<bool>().prop_map(Op::Block),
        1 => (1..12_u64).prop_map(Op::Rewind),
        2 => (0..3_usize).prop_map(Op::Count),
        1 => Just(Op::Store),
    ]
}

pub fn words(length: usize) -> String {
    "word and ".chars().cycle().take(length).collect()
}

/// Ids of the calls of a message.
pub const IDS: [&str; 3] = ["a", "b", "c"];

pub fn call(id: &str) -> Value {
    map(vec![("id", Value::text(id)), ("name", Value::text("read"))])
}

pub fn answer(id: &str, length: usize) -> Value {
    let ok = vec![Value::atom("ok"), Value::text(&words(length))];
    let result = Value::Tuple(ok.into_boxed_slice());
    map(vec![("id", Value::text(id)), ("result", result)])
}
