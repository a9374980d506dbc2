//! The handle that Elixir holds, and the end of its life.

use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ash_agent_context_core::Context;
use rustler::{Resource, ResourceArc};

use crate::enif;

/// So many threads have a counter of their own; all others share the last one.
const COUNTERS: usize = 64;

/// Contexts made minus contexts dropped, by thread: a single counter would move between processors with every operation.
static LIVE: [Counter; COUNTERS] = [const { Counter(AtomicIsize::new(0)) }; COUNTERS];

/// A counter with a cache line of its own.
#[repr(align(128))]
struct Counter(AtomicIsize);

thread_local! {
    static MINE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

fn count(change: isize) {
    let [own @ .., Counter(shared)] = &LIVE;
    match own.get(MINE.with(|mine| *mine)) {
        // Only this thread writes here.
        Some(Counter(own)) => own.store(own.load(Ordering::Relaxed) + change, Ordering::Relaxed),
        None => drop(shared.fetch_add(change, Ordering::Relaxed)),
    }
}

/// A context behind a reference.
pub struct ContextResource {
    context: Context,
}

#[rustler::resource_impl]
impl Resource for ContextResource {}

/// The handle that NIFs take and return.
pub type ContextHandle = ResourceArc<ContextResource>;

impl ContextResource {
    pub fn wrap(context: Context) -> ContextHandle {
        count(1);
        ResourceArc::new(Self { context })
    }

    pub const fn get(&self) -> &Context {
        &self.context
    }
}

impl Drop for ContextResource {
    /// Runs at garbage collection, mostly on a normal scheduler. Large resources are freed on a
    /// thread of their own.
    fn drop(&mut self) {
        count(-1);
        note_freed();
        if self.context.let_go() {
            let nothing = Context::empty("", self.context.created_at());
            bury(Box::new(std::mem::replace(&mut self.context, nothing)));
        }
    }
}

/// Hands a value to the thread that drops, which lives as long as the VM. Without it, the value is dropped here.
pub fn bury(value: Box<dyn Send>) {
    static UNDERTAKER: OnceLock<Option<Sender<Box<dyn Send>>>> = OnceLock::new();
    let undertaker = UNDERTAKER.get_or_init(|| {
        let (sender, receiver) = mpsc::channel::<Box<dyn Send>>();
        std::thread::Builder::new()
            .name("context_drop".to_owned())
            .spawn(move || work(&receiver))
            .ok()
            .map(|_| sender)
    });
    if let Some(undertaker) = undertaker {
        // An error gives the value back, and it is dropped here.
        let _ = undertaker.send(value);
    }
}

/// The allocator gives freed memory back to the system after a second, on whichever thread next asks it for memory. Hundreds
/// of megabytes held a scheduler for 5 to 100 ms, so the thread that drops does it earlier.
const GIVE_BACK: Duration = Duration::from_millis(500);

/// Memory was freed since the last time that free memory was given back.
static FREED: AtomicBool = AtomicBool::new(false);

/// Notes that there may be free memory for the system.
pub fn note_freed() {
    // Mostly it is set already, and reading it is cheap on any number of processors.
    if !FREED.load(Ordering::Relaxed) && !FREED.swap(true, Ordering::Relaxed) {
        bury(Box::new(()));
    }
}

/// Drops the values that come, and waits in between.
fn work(coming: &Receiver<Box<dyn Send>>) {
    while let Ok(value) = coming.recv() {
        let started = Instant::now();
        drop(value);
        while let Some(rest) = GIVE_BACK.checked_sub(started.elapsed()) {
            // An error means that the time is up, for somebody may always send.
            coming.recv_timeout(rest).map(drop).unwrap_or_default();
        }
        FREED.store(false, Ordering::Relaxed);
        enif::give_back();
    }
}

/// Returns the number of contexts that are alive, for tests.
pub fn count_contexts() -> isize {
    let counts = LIVE.iter().map(|counter| counter.0.load(Ordering::Relaxed));
    counts.sum()
}
