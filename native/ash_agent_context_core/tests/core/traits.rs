//! What the types promise to the compiler: handles cross threads and survive panics.

use std::panic::{RefUnwindSafe, UnwindSafe};

use ash_agent_context_core::{Context, Error, Iteration, Map, Message, Outcome, Value};

const fn crosses_threads_and_panics<T: Send + Sync + UnwindSafe + RefUnwindSafe + 'static>() {}

const _: () = {
    crosses_threads_and_panics::<Context>();
    crosses_threads_and_panics::<Iteration>();
    crosses_threads_and_panics::<Message>();
    crosses_threads_and_panics::<Outcome>();
    crosses_threads_and_panics::<Value>();
    crosses_threads_and_panics::<Map>();
    crosses_threads_and_panics::<Error>();
};

#[test]
fn one_context_is_read_from_many_threads() {
    let at = ash_agent_context_core::time::from_micros(0);
    let context = at.map(|at| Context::empty("c", at));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(context.as_ref().is_some_and(|c| c.count_iterations() == 1)));
        }
    });
}
