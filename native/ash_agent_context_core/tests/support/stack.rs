//! Runs work on the small stack of a scheduler thread.

/// A dirty scheduler has 320 KiB. Builds without optimisation need more; optimised ones need less than half of it.
const STACK: usize = if cfg!(debug_assertions) {
    1024 * 1024
} else {
    160 * 1024
};

pub fn on_small_stack(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(work)
        .unwrap()
        .join()
        .unwrap();
}
