//! Counters of steps in walks whose length comes from outside, so that tests can tell linear work from more: a clock would
//! tell of the machine. Other builds count nothing.

#[cfg(feature = "steps")]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[inline]
pub(crate) fn count(steps: usize) {
    #[cfg(feature = "steps")]
    STEPS.with(|all| all.set(all.get() + steps as u64));
    #[cfg(not(feature = "steps"))]
    let _ = steps;
}

/// Returns the steps that this thread took in a function.
#[cfg(feature = "steps")]
pub fn count_steps(work: impl FnOnce()) -> u64 {
    let before = STEPS.get();
    work();
    STEPS.get() - before
}
